"""Server processes for tests: start a server, wait until it is ready, and stop it by its process id."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from inherited import INHERITED

__all__ = ["Server", "private_folder"]


def private_folder(name: str) -> Path:
    """Create a folder for a server that may run as another user; pytest's own folders are private."""
    return Path(tempfile.mkdtemp(prefix=f"spark-events-{name}-"))


class Server:
    """Server process, whose output is in the file ``log`` in its folder.

    Args:
        folder: working folder, deleted by :meth:`remove`.
        command: program and arguments.
        environment: variables in addition to the inherited variables.
        user: user of the process; default: the current user.
    """

    def __init__(
        self,
        folder: Path,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        self._folder = folder
        self._command = [str(part) for part in command]
        self._environment = {**INHERITED, **(environment or {})}
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> str:
        """Return the last part of the server's output, for failure messages."""
        log = self._folder / "log"
        return log.read_text(errors="replace")[-3000:] if log.exists() else ""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=self._environment,
                user=self._user,
                # Start the server in a new process group, so that Ctrl-C reaches only the tests. The tests then stop
                # their servers.
                start_new_session=True,
            )

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the process, wait for its exit, and keep the folder for a restart."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def remove(self) -> None:
        """Kill the process and delete its folder."""
        self.stop(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)
