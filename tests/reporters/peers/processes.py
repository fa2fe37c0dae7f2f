"""Servers as child processes: found or skipped, started, seen to be ready, and ended by their own id."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from inherited import INHERITED

__all__ = ["Server", "missing", "private_folder"]


def missing(what: str) -> NoReturn:
    """Skips, with the reason; in continuous integration what is missing is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}: on CI it must be there")
    pytest.skip(what)


def private_folder(name: str) -> Path:
    """A folder for a server that may run as another user: pytest's own are closed to others."""
    return Path(tempfile.mkdtemp(prefix=f"spark-events-{name}-"))


class Server:
    """One process of a server; its output goes to ``log`` in its folder.

    Args:
        folder: its own, gone with it.
        command: the program and its arguments.
        environment: in addition to this process's.
        user: the user it runs as; None: the present one.
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
    def said(self) -> str:
        """The end of its output, for the message of a failure."""
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
                # Its own group: Ctrl-C is for the tests, which end their servers themselves.
                start_new_session=True,
            )

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it and waits; the folder stays, so that it can be started again."""
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
        """Ends it for good."""
        self.stop(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)
