"""Which files are whose: a folder a process, taken over by the next one that starts for the same application.

A spool belongs to an application, by its name, and to a reporter of it. Two drivers of that name at the same
time have a folder each; a lock beside the folder says that its owner is alive. A folder, since the database is
several files, and what is damaged is set aside by a single rename: all of them or none. The lock's file tells for which
driver it is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from spark_events.dispatch.spool.drivers import is_alive

__all__ = ["Claim", "age_of", "claim", "orphans"]

_DATABASE = "events.db"
#: SQLite keeps these beside a database; one whose database is gone is of no meaning to it.
_FILES = (_DATABASE, f"{_DATABASE}-wal", f"{_DATABASE}-shm", f"{_DATABASE}-journal")
_MOST = 1_000
_RACES = 100
#: Bytes of a line that tells a driver, at most.
_LINE = 200
#: The descriptors of all locks that this process has, or is about to have.
_descriptors: set[int] = set()


class Claim:
    """A spool's folder, and the lock that makes it ours as long as the process lives."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor

    @property
    def path(self) -> Path:
        """The database."""
        return self.folder / _DATABASE

    @property
    def driver(self) -> str:
        """For which driver it was used last; empty where that is not known."""
        return _driver_of(self.folder)

    def sign(self, driver: str) -> None:
        """It is used for this driver from now on."""
        # A full disk says nothing of the driver, and is no reason not to use what there is.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, driver.encode("ascii"), 0)

    def size(self) -> int:
        """Bytes of all its databases, and of what belongs to them."""
        return sum(_size_of(path.parent) for path in self.databases())

    @property
    def is_in_place(self) -> bool:
        """Whether its folder is there: somebody may have removed it."""
        try:
            os.stat(self.folder)
        except FileNotFoundError:
            return False
        return True

    def set_aside(self) -> None:
        """What is damaged makes room; until :meth:`put_away`, what can be read of it is still to be read."""
        self.folder.rename(f"{self.folder}.damaged-{time.time_ns()}")
        self.folder.mkdir(mode=0o700)

    def damaged(self) -> list[Path]:
        """The databases that were set aside, by this process or one that died before it had read them."""
        # Not with glob(), for which a disk that does not answer has nothing.
        names = sorted(os.listdir(self.folder.parent))
        return [
            self.folder.with_name(name) / _DATABASE for name in names if name.startswith(f"{self.folder.name}.damaged-")
        ]

    def databases(self) -> list[Path]:
        """All that may have events: those that were set aside first."""
        found = self.damaged()
        # Not with exists(), for the same reason.
        with contextlib.suppress(FileNotFoundError):
            os.stat(self.path)
            found.append(self.path)
        return found

    def put_away(self, path: Path) -> Path:
        """Keeps one of them for a person to look at; returns its new place."""
        folder = path.parent
        return folder.rename(folder.with_name(folder.name.replace(".damaged-", ".corrupt-")))

    def delete(self) -> None:
        """Removes the database, if there is one, and gives the name back."""
        if not self._is_ours:
            # Somebody has removed the lock; whoever has made another has the folder now, or is about to.
            self.release()
            return
        for name in _FILES:
            (self.folder / name).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.folder.rmdir()
        _lock(self.folder).unlink(missing_ok=True)
        self.release()
        with contextlib.suppress(OSError):
            # Only where nobody else has anything in it.
            self.folder.parent.rmdir()

    @property
    def _is_ours(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(_lock(self.folder)))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Another process may have it now."""
        # By that alone it is free, though somebody may have got the descriptor from this process.
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        _close(self._descriptor)


def age_of(damaged: Path) -> float:
    """How long ago one of :meth:`Claim.damaged` was set aside, in seconds."""
    since = damaged.parent.name.rpartition("-")[2]
    return (time.time_ns() - int(since)) / 1e9 if since.isdecimal() else math.inf


def _size_of(folder: Path) -> int:
    """Bytes of the database in a folder, and of what belongs to it."""
    total = 0
    for name in _FILES:
        with contextlib.suppress(FileNotFoundError):
            total += (folder / name).stat().st_size
    return total


def orphans(own: Claim) -> Iterator[Claim]:
    """The other spools of a reporter whose owners are dead; not those that may be another user's affair."""
    for folder in _spools(own.folder.parent, own.folder.name.rpartition(".")[0]):
        claimed = None
        with contextlib.suppress(OSError):
            claimed = None if folder == own.folder else _try(folder)
        if claimed is not None:
            yield claimed


def _spools(parent: Path, reporter: str) -> list[Path]:
    pattern = re.compile(rf"({re.escape(reporter)}\.\d+)(\.damaged-\d+)?")
    found = {match[1] for name in os.listdir(parent) if (match := pattern.fullmatch(name))}
    return [parent / name for name in sorted(found)]


def claim(directory: Path, application: str, reporter: str, driver: str = "") -> Claim:
    """The spool of that reporter that this driver has used; else the first that nobody else has, or needs.

    A new one, if need be.

    Args:
        directory: where all spools are.
        application: its name.
        reporter: its name in the configuration.
        driver: the line that tells it; empty: it is not known.

    Raises:
        OSError: the directory cannot be used.
    """
    parent, name = directory / _folder(application), quote(reporter, safe="")
    own: list[Path] = []
    with contextlib.suppress(FileNotFoundError):
        own = [folder for folder in _spools(parent, name) if driver and _driver_of(folder) == driver]
    for folder in [*own, *(parent / f"{name}.{number}" for number in range(_MOST))]:
        claimed = None if _is_needed(folder, driver) else _try_below(folder)
        if claimed is not None:
            claimed.folder.mkdir(mode=0o700, exist_ok=True)
            claimed.sign(driver)
            return claimed
    raise OSError(f"all of {_MOST} spools of reporter {reporter} in {parent} are in use")


def _is_needed(folder: Path, driver: str) -> bool:
    """Whether another driver lives that used it last: its sidecar may be dead, and about to be started again."""
    last = _driver_of(folder)
    return last != driver and is_alive(last)


def _driver_of(folder: Path) -> str:
    try:
        with _lock(folder).open("rb") as lock:
            return lock.read(_LINE).decode("ascii", "replace")
    except OSError:
        return ""


def _try_below(folder: Path) -> Claim | None:
    for attempt in range(1, _RACES + 1):
        try:
            _make(folder.parent)
            return _try(folder)
        except (FileNotFoundError, FileExistsError):
            # Whoever leaves takes the folder with him, if it is empty; perhaps just now.
            if attempt == _RACES:
                raise
    return None


def _make(folder: Path) -> None:
    """With all that is above it; none of these is anybody else's, either."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _folder(application: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", application)[:40].strip("-")
    return f"{readable}-{hashlib.blake2b(application.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def _lock(folder: Path) -> Path:
    # Beside the folder: SQLite has locks on its own files, and the folder may be set aside.
    return folder.with_name(f"{folder.name}.lock")


def _try(folder: Path) -> Claim | None:
    lock = _lock(folder)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _descriptors.add(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last owner may have deleted it between the opening and the locking.
        if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
            return Claim(folder, descriptor)
    except OSError as error:
        if not isinstance(error, BlockingIOError | FileNotFoundError):
            _close(descriptor)
            raise OSError(error.errno, error.strerror, str(lock)) from error
    _close(descriptor)
    return None


def _close(descriptor: int) -> None:
    # In this order: once it is closed, the number may be somebody else's.
    _descriptors.discard(descriptor)
    os.close(descriptor)


def _let_go_of_the_parent_s() -> None:
    """A lock lives as long as anybody has its descriptor, and a child that a reporter forks has all of them.

    They are closed, not unlocked: unlocking is for all who have it.
    """
    while _descriptors:
        with contextlib.suppress(OSError):
            os.close(_descriptors.pop())


os.register_at_fork(after_in_child=_let_go_of_the_parent_s)
