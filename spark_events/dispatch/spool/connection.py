"""How a file is opened: one's own, or another's, which may be in use, damaged or away."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["UnreadableError", "connect", "is_new", "is_sound", "open_file", "remove_through"]

#: After so many steps of SQLite's own machine, some hundred rows, it is told that it gets on.
_STEPS = 1_000


class UnreadableError(sqlite3.OperationalError):
    """A file cannot be had at this moment, which says nothing of what is in it."""


def connect(path: Path, on_progress: Callable[[], None], patience: float = 0.0) -> sqlite3.Connection:
    """A connection that has the file to itself.

    One process has it, as its lock says: so no shared memory is needed, which some disks cannot give.

    Args:
        path: the file.
        on_progress: called now and then while something takes long, as long as the disk answers.
        patience: how long somebody who reads it all the same is waited for, in seconds.
    """
    db = sqlite3.connect(path, isolation_level=None, timeout=patience)
    db.set_progress_handler(on_progress, _STEPS)
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    return db


def is_new(db: sqlite3.Connection) -> bool:
    """Whether nothing has ever been in it: whoever had it died before its tables were made."""
    try:
        (pages,), (tables,) = (
            db.execute(query).fetchone() for query in ("PRAGMA page_count", "SELECT COUNT(*) FROM sqlite_master")
        )
    except sqlite3.Error:
        return False
    return bool(pages <= 1 and not tables)


def is_sound(db: sqlite3.Connection) -> bool:
    """Whether a file may be written: one that is damaged might be damaged more."""
    try:
        return bool(db.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.Error:
        return False


def remove_through(db: sqlite3.Connection, last: int) -> None:
    """Removes the rows up to that identifier, if the disk can do that now."""
    with contextlib.suppress(sqlite3.Error):
        # After a power cut they are there again, and in the own file, too: that is no reason to wait for the disk.
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("DELETE FROM events WHERE id <= ?", (last,))


@contextlib.contextmanager
def open_file(path: Path, on_progress: Callable[[], None]) -> Iterator[sqlite3.Connection]:
    """A file of which at least the beginning can be read, or of which it is known that it is damaged.

    Raises:
        UnreadableError: it cannot be had now.
    """
    # The one before it may have kept us waiting until we gave up.
    on_progress()
    try:
        db = connect(path, on_progress)
    except sqlite3.OperationalError as error:
        raise UnreadableError(f"{path}: {error}") from error
    try:
        _read_the_first_page(db, path)
        yield db
    finally:
        db.close()


def _read_the_first_page(db: sqlite3.Connection, path: Path) -> None:
    try:
        db.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError as error:
        # Locked, no descriptors left, a disk that has gone away: to take that for damage would give up what is sound.
        raise UnreadableError(f"{path}: {error}") from error
    except sqlite3.DatabaseError:
        # What can still be read is for the salvage to find out.
        return
