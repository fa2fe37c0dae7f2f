"""Ownership of spool files: the owner is the process that holds the lock file beside the folder.

The lock file contains the identity of the owner's driver. If a sidecar dies, its driver starts a new sidecar, which
needs the file of the old sidecar.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from spark_events.clocks import boot

_LOG = logging.getLogger(__name__)


def driver_identity(pid: int) -> str:
    """Return a line that identifies a running process: boot, PID, start time; '' if unknown."""
    try:
        # Split after the process name, which may contain any character. Of the following fields, the first is the
        # state, and the twentieth is the start time.
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        started = fields[19]
    except (OSError, IndexError):
        return ""
    began = boot()
    return "" if fields[0] in ("Z", "X") or not began else f"{began} {pid} {started}"


class SpoolFolder:
    """Folder of one spool file, and the lock beside this folder.

    The lock is outside the folder because a folder with a corrupt file is renamed, and because SQLite itself locks the
    files in the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = int(folder.name.rpartition(".")[2])
        self.path = folder / "events.db"
        self._lock = folder.with_name(f"{folder.name}.lock")
        self._descriptor = -1

    @property
    def driver(self) -> str:
        """Identity of the driver that used the file last; '' if unknown."""
        with contextlib.suppress(OSError):
            return self._lock.read_bytes().decode("ascii", "replace")
        return ""

    def is_needed_by_another(self, driver: str) -> bool:
        """Return whether another driver, still alive, used the file last and may start a sidecar for it."""
        last = self.driver
        parts = last.split()
        return last != driver and len(parts) == 3 and parts[1].isdecimal() and driver_identity(int(parts[1])) == last

    def acquire(self) -> bool:
        """Acquire the file until :meth:`release` or the exit of this process; return False if another owns it."""
        return self._acquire(os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def acquire_to_read(self) -> bool:
        """Acquire the file as :meth:`acquire` does, but also on a read-only file system."""
        try:
            return self.acquire()
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            return self._acquire(os.open(self._lock, os.O_RDONLY | os.O_CLOEXEC))

    def _acquire(self, descriptor: int) -> bool:
        self._descriptor = descriptor
        with contextlib.ExitStack() as undo, contextlib.suppress(BlockingIOError, FileNotFoundError):
            undo.callback(os.close, self._descriptor)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous owner may have deleted the lock file after this process opened it.
            if os.path.samestat(os.fstat(self._descriptor), os.stat(self._lock)):
                undo.callback(self._lock.unlink)  # if the disk has no space for the folder
                self.folder.mkdir(mode=0o700, exist_ok=True)
                undo.pop_all()
                return True
        return False

    def sign(self, driver: str) -> None:
        """Write the identity of this driver into the lock file.

        Errors are ignored, because a full disk must not stop the spool.
        """
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, driver.encode("ascii"), 0)

    def quarantine(self) -> Path:
        """Rename the folder, so that no process reads its file again; return the folder's new path."""
        return self.folder.rename(f"{self.folder}.corrupt-{time.time_ns()}")

    def delete(self) -> None:
        """Delete the file and its lock; delete the application's folder too if no other files remain in it."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.folder.rmdir()
        self._lock.unlink(missing_ok=True)
        self.release()
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()

    def release(self) -> None:
        """Release the file, so that another process can acquire it."""
        # Unlock explicitly. If a child process has inherited the descriptor, closing the descriptor here does not
        # release the lock.
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


class SpoolFolders:
    """Spool files of one reporter of one application.

    Args:
        directory: the configured spool directory.
        application: the application's name.
        reporter: the reporter's name in the configuration.
        driver: the driver's identity; '' if unknown.
    """

    def __init__(self, directory: Path, application: str, reporter: str, driver: str) -> None:
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", application)[:40].strip("-")
        digest = hashlib.blake2b(application.encode("utf-8", "replace"), digest_size=4).hexdigest()
        self._parent = directory / f"{readable}-{digest}"
        self._prefix = quote(reporter, safe="")
        self._driver = driver
        self._skipped: set[Path] = set()

    def claim_own(self) -> SpoolFolder:
        """Acquire a file: the file that this driver used before, else the newest free file, else a new file."""
        _make(self._parent)
        found = self.found()
        return self._claim([*self.used_by_driver(), *reversed(found)])

    def claim_new(self) -> SpoolFolder:
        """Acquire a new file."""
        _make(self._parent)
        return self._claim([])

    def used_by_driver(self) -> list[SpoolFolder]:
        """Return the files that this driver used last."""
        return [one for one in self.found() if self._driver and one.driver == self._driver]

    def _claim(self, preferred: Sequence[SpoolFolder]) -> SpoolFolder:
        found = self.found()
        first = found[-1].number + 1 if found else 0
        # Try several names, because other drivers of the application may start at the same time.
        new = [SpoolFolder(self._parent / f"{self._prefix}.{number}") for number in range(first, first + 100)]
        for one in (*preferred, *new):
            if not one.is_needed_by_another(self._driver) and one.acquire():
                one.sign(self._driver)
                return one
        raise FileExistsError(f"{self._parent}: 100 spool folders are in use by other processes; the sidecar retries")

    def claim_dead(self) -> Iterator[SpoolFolder]:
        """Yield the files of dead owners, oldest first; acquire each file before yielding it."""
        for one in self.found():
            try:
                is_free = not one.is_needed_by_another(self._driver) and one.acquire()
            except OSError as error:
                # For example a file of another user.
                if one.path not in self._skipped:
                    self._skipped.add(one.path)
                    _LOG.warning("cannot lock %s of an earlier run, so it is skipped: %s", one.path, error)
                continue
            if is_free:
                yield one

    def found(self) -> list[SpoolFolder]:
        """Return all files, oldest first, whoever owns them."""
        pattern = re.compile(rf"({re.escape(self._prefix)}\.\d+)(?:\.lock)?")
        try:
            listed = os.listdir(self._parent)
        except FileNotFoundError:
            return []
        names = {match[1] for name in listed if (match := pattern.fullmatch(name))}
        return sorted((SpoolFolder(self._parent / name) for name in names), key=lambda one: one.number)


def _make(folder: Path) -> None:
    """Create a folder and its missing parents, accessible only to the owner."""
    if not folder.parent.exists():
        _make(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
