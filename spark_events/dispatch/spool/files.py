"""Which file is whose: one a process, taken over by the next one that starts for the same application.

A spool belongs to an application, by its name, and to a reporter of it. Two drivers of that name at the same
time have a file each; a lock beside the file says that its owner is alive.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Claim", "claim", "orphans"]

_DATABASE = ".db"
_LOCK = ".lock"
#: What SQLite keeps beside a database.
_COMPANIONS = ("", "-wal", "-shm", "-journal")
_MOST = 1_000


class Claim:
    """A spool's file, and the lock that makes it ours as long as the process lives."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def set_aside(self, moment: str) -> Path:
        """Renames what cannot be read, so that a person may look at it; returns its new name."""
        aside = self.path.with_name(f"{self.path.name}.corrupt-{moment}")
        for companion in _COMPANIONS:
            source = Path(f"{self.path}{companion}")
            if source.exists():
                source.rename(f"{aside}{companion}")
        return aside

    def delete(self) -> None:
        """Removes the file and gives its name back."""
        for companion in _COMPANIONS:
            Path(f"{self.path}{companion}").unlink(missing_ok=True)
        self.path.with_suffix(_LOCK).unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Another process may have it now."""
        os.close(self._descriptor)


def claim(directory: Path, application: str, reporter: str) -> Claim:
    """The first file of that reporter that nobody else has; a new one, if need be.

    Raises:
        OSError: the directory cannot be used.
    """
    folder = _folder(directory, application)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(_MOST):
        claimed = _try(folder / f"{reporter}.{number}{_DATABASE}")
        if claimed is not None:
            return claimed
    raise OSError(f"all of {_MOST} spools of reporter {reporter} in {folder} are in use")


def orphans(directory: Path, application: str, reporter: str, own: Claim) -> Iterator[Claim]:
    """The files of that reporter, other than our own, whose owners are dead."""
    for path in sorted(_folder(directory, application).glob(f"{reporter}.*{_DATABASE}")):
        if path != own.path and (claimed := _try(path)) is not None:
            yield claimed


def _folder(directory: Path, application: str) -> Path:
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", application)[:40].strip("-")
    digest = hashlib.blake2b(application.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return directory / f"{readable}-{digest}"


def _try(path: Path) -> Claim | None:
    # A file of its own: SQLite has locks on the database's.
    lock = path.with_suffix(_LOCK)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last owner may have deleted it between the opening and the locking.
        if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
            return Claim(path, descriptor)
    except OSError as error:
        if not isinstance(error, BlockingIOError | FileNotFoundError):
            os.close(descriptor)
            raise
    os.close(descriptor)
    return None
