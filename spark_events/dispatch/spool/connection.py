"""How a file is opened: one's own, or another's, which may be in use, damaged or away."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = [
    "UnreadableError",
    "connect",
    "is_new",
    "is_of_the_disk",
    "is_sound",
    "may_pass",
    "open_file",
    "read_through",
    "refuse_to_wait",
    "remove_through",
]

#: After so many steps of SQLite's own machine, some hundred rows, it is told that it gets on.
_STEPS = 1_000
_CHUNK_BYTES = 1 << 20


#: What SQLite's check says of a page that it did not get, and which reasons may pass: no memory, an error of the disk,
#: a file that could not be opened. Of some pages it gives no reason, so of those it cannot be told whether it got them.
_NOT_GOT, _NOT_GOT_OR_DAMAGED = "failed to get page", "Failed to read ptrmap"
_CODE = re.compile(r"error code=(\d+)")
_PASSING = frozenset({7, 10, 14})
#: The same where there is no code: before Python 3.11.
_PASSING_MESSAGES = frozenset({"out of memory", "disk I/O error", "unable to open database file"})


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


def is_new(db: sqlite3.Connection, is_patient: bool) -> bool:
    """Whether nothing has ever been in it: whoever had it died before its tables were made.

    Raises:
        UnreadableError: the disk fails now, and is waited for.
    """
    try:
        (pages,), (tables,) = (
            db.execute(query).fetchone() for query in ("PRAGMA page_count", "SELECT COUNT(*) FROM sqlite_master")
        )
    except (sqlite3.Error, MemoryError) as error:
        refuse_to_wait(error, is_patient)
        return False
    return bool(pages <= 1 and not tables)


def is_sound(db: sqlite3.Connection) -> bool:
    """Whether a file may be written: one that is damaged might be damaged more."""
    try:
        return bool(db.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.Error:
        return False


def may_pass(damage: str) -> bool:
    """Whether what a check has found is only that a page could not be had."""
    return _was_not_got(damage) or _NOT_GOT_OR_DAMAGED in damage


def _was_not_got(damage: str) -> bool:
    # The extended codes have the plain one in their lowest byte.
    return _NOT_GOT in damage or any(int(code) & 0xFF in _PASSING for code in _CODE.findall(damage))


def refuse_to_wait(error: sqlite3.Error | MemoryError, is_patient: bool, db: sqlite3.Connection | None = None) -> None:
    """Whoever gets past this takes it for damage.

    Args:
        error: what reading has failed with.
        is_patient: whether the disk is waited for.
        db: the file, where SQLite may have taken the disk's failure for damage; then all of it is checked.

    Raises:
        UnreadableError: it is the disk that fails, or the machine, and not the file.
    """
    if is_patient and (_is_passing(error) or (db is not None and is_of_the_disk(error, db))):
        raise UnreadableError(str(error)) from error


def _is_passing(error: sqlite3.Error | MemoryError) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    is_passing = str(error) in _PASSING_MESSAGES if code is None else code & 0xFF in _PASSING
    return is_passing or isinstance(error, MemoryError)


def is_of_the_disk(error: BaseException, db: sqlite3.Connection) -> bool:
    """Of a page for which the disk gives EIO, a query says the same as of one that is damaged; the check does not."""
    if type(error) is not sqlite3.DatabaseError:
        return False
    try:
        (said,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except (sqlite3.Error, MemoryError) as again:
        return _is_passing(again)
    return said == "ok" or _was_not_got(said)


def remove_through(db: sqlite3.Connection, last: int) -> bool:
    """Removes the rows up to that identifier, if the disk can do that now; whether it could."""
    try:
        # After a power cut they are there again, and in the own file, too: that is no reason to wait for the disk.
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("DELETE FROM events WHERE id <= ?", (last,))
    except sqlite3.Error:
        return False
    return True


def read_through(path: Path, on_progress: Callable[[], None]) -> None:
    """So that it is in memory when SQLite reads it, which takes what a disk does not give for damage.

    And it checks all pages in one step, in their logical order, of which older versions tell nothing as it gets on.

    Args:
        path: the file, with the log beside it. Not while this process has it open: that would end SQLite's locks.
        on_progress: called now and then.

    Raises:
        OSError: it cannot be read, at this moment at least.
    """
    for part in (path, path.with_name(f"{path.name}-wal")):
        try:
            with part.open("rb") as file:
                while file.read(_CHUNK_BYTES):
                    on_progress()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(part)) from error


@contextlib.contextmanager
def open_file(path: Path, on_progress: Callable[[], None], is_patient: bool) -> Iterator[sqlite3.Connection]:
    """A file of which at least the beginning can be read, or of which it is known that it is damaged.

    Args:
        path: the file.
        on_progress: called now and then, as long as the disk answers.
        is_patient: whether it counts as one that cannot be had, if any of it cannot be read.

    Raises:
        UnreadableError: it cannot be had now; or whoever reads it has said so, then with its name.
    """
    # The one before it may have kept us waiting until we gave up.
    on_progress()
    try:
        read_through(path, on_progress)
    except OSError as error:
        if is_patient:
            raise UnreadableError(str(error)) from error
    try:
        db = connect(path, on_progress)
    except sqlite3.OperationalError as error:
        raise UnreadableError(f"{path}: {error}") from error
    try:
        _read_the_first_page(db)
        yield db
    except UnreadableError as error:
        raise UnreadableError(f"{path}: {error}") from error
    finally:
        db.close()


def _read_the_first_page(db: sqlite3.Connection) -> None:
    try:
        db.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError as error:
        # Locked, no descriptors left, a disk that has gone away: to take that for damage would give up what is sound.
        raise UnreadableError(str(error)) from error
    except sqlite3.DatabaseError:
        # What can still be read is for the salvage to find out.
        return
