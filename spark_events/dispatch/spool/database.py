"""The spool's file: SQLite, with a write-ahead log. One thread uses it, and it never interprets events."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from spark_events.dispatch.entries import places_for
from spark_events.dispatch.spool.connection import UnreadableError, connect, may_pass, read_through

__all__ = ["BEFORE_ALL", "Appended", "DamagedError", "Database", "Extent", "NewRow", "Row"]

#: No row has an identifier as low as this.
BEFORE_ALL = -(2**62)
_VERSION = 1
_SCHEMA = (
    "CREATE TABLE events (id INTEGER PRIMARY KEY, event_id TEXT NOT NULL UNIQUE, worth INTEGER NOT NULL,"
    " accepted REAL NOT NULL, event BLOB NOT NULL)",
    "CREATE INDEX events_by_worth ON events (worth, id)",
    f"PRAGMA user_version = {_VERSION}",
)
_PAGE_BYTES = 4096
#: The tables themselves, and a few events: no spool is smaller.
_LEAST_PAGES = 64
#: What is in the file besides events, at most.
_OWN_PAGES = 16
#: The log beside the file is folded in when it has so many pages; less for a small spool.
_LOG_PAGES = 1_000
#: So many pages are kept for the next events, before the disk is given them back.
_SPARE_PAGES = 256
#: How long somebody who reads one's own file is waited for, in seconds.
_LOCKED_SECONDS = 1.0


class DamagedError(sqlite3.DatabaseError):
    """The file is not what it should be, and will not become so by waiting."""


class NewRow(NamedTuple):
    """An event to be written; ``accepted`` in seconds since the epoch."""

    id: int
    event_id: str
    worth: int
    accepted: float
    event: bytes


class Row(NamedTuple):
    """An event that was read; ``size`` in bytes."""

    id: int
    accepted: float
    event: bytes
    size: int


class Appended(NamedTuple):
    """What a write did, in identifiers of rows.

    Attributes:
        added: those that are there now.
        duplicates: those that were not written, since their ``event_id`` is there already.
        shed: those, old or new, that had to make room.
    """

    added: frozenset[int]
    duplicates: frozenset[int]
    shed: frozenset[int]


class Extent(NamedTuple):
    """How many rows, and between which identifiers; both 0 where there is none."""

    rows: int
    first: int
    last: int


class Database:
    """Rows in the order of their identifiers.

    Args:
        path: the file; made if it is not there.
        fsync: whether a write waits for the disk.
        max_bytes: how large it may be, but for what a single write needs, and for the log beside it.
        on_progress: called now and then while something takes long, as long as the disk answers.
        is_patient: whether a file is not opened of which the disk does not give all.

    Raises:
        OSError: it was not opened.
        sqlite3.Error: from every method. ``sqlite3.OperationalError`` may pass (a full disk);
            ``sqlite3.DatabaseError`` itself and :class:`DamagedError` do not: the file is damaged.
    """

    def __init__(
        self,
        path: Path,
        fsync: bool,
        max_bytes: int,
        on_progress: Callable[[], None] = lambda: None,
        is_patient: bool = False,
    ) -> None:
        self.path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._max_pages = max(_LEAST_PAGES, max_bytes // _PAGE_BYTES)
        self._max_bytes_of_one = (self._max_pages - _OWN_PAGES) * _PAGE_BYTES
        try:
            read_through(path, on_progress)
        except OSError:
            if is_patient:
                raise
        self.connection = connect(path, on_progress, _LOCKED_SECONDS)
        try:
            self._prepare(fsync, is_patient)
            self.status = os.stat(path)
            self._log_status = os.stat(self._log)
        except BaseException:
            self.connection.close()
            raise

    def _prepare(self, fsync: bool, is_patient: bool) -> None:
        db = self.connection
        self.path.chmod(0o600)
        log_pages = max(16, min(_LOG_PAGES, self._max_pages // 8))
        for pragma in (
            f"page_size = {_PAGE_BYTES}",
            "auto_vacuum = INCREMENTAL",
            "journal_mode = WAL",
            f"synchronous = {'FULL' if fsync else 'NORMAL'}",
            f"wal_autocheckpoint = {log_pages}",
            f"journal_size_limit = {log_pages * _PAGE_BYTES}",
        ):
            db.execute(f"PRAGMA {pragma}")
        damage = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if is_patient and may_pass(damage):
            # The disk gave it a moment ago, when the file was read through.
            raise UnreadableError(f"{self.path}: {damage}")
        if damage != "ok":
            raise DamagedError(damage)
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _VERSION):
            raise DamagedError(f"its schema has version {version}, known here is {_VERSION}")
        try:
            if version == 0:
                with self._transaction():
                    for statement in _SCHEMA:
                        db.execute(statement)
            db.execute("SELECT id, event_id, worth, accepted, event FROM events INDEXED BY events_by_worth LIMIT 0")
        except sqlite3.OperationalError as error:
            # A table that is there but not of this schema, or is not there; not a disk that is full.
            if "no such" in str(error) or "already exists" in str(error):
                raise DamagedError(str(error)) from error
            raise

    @property
    def is_in_place(self) -> bool:
        """Whether the file is still under its name: writes to one that is not are lost with the process."""
        try:
            return os.path.samestat(os.stat(self.path), self.status)
        except FileNotFoundError:
            return False

    def tend_log(self) -> bool:
        """Sees to it that the log beside the file is there, and is folded in; whether somebody had removed it.

        SQLite looks after neither: it writes into a log that has no name any more, and goes on writing one that it
        cannot fold in, however large it becomes.

        Raises:
            OSError: there is no log, and none can be made; or the file itself has gone, which can be read all the same.
        """
        log = None
        with contextlib.suppress(FileNotFoundError):
            log = os.stat(self._log)
        # One that somebody has put back is not the one that is written.
        if log is None or not os.path.samestat(log, self._log_status):
            # First what only this process can still see; where that fails, it is tried again.
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if not self.is_in_place:
                # Without its log SQLite does not even read a file that has no name.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
            # Reading makes a log.
            for pragma in ("journal_mode = DELETE", "journal_mode = WAL", "user_version"):
                self.connection.execute(f"PRAGMA {pragma}").fetchall()
            self._log_status = os.stat(self._log)
            return True
        if log.st_size > self.capacity:
            # Costs nothing where it has just been done; where that fails, it is said only to who asks.
            self.connection.execute("PRAGMA wal_checkpoint")
        return False

    @property
    def capacity(self) -> int:
        """Bytes that all rows together may use."""
        return self._max_pages * _PAGE_BYTES

    @property
    def room(self) -> int:
        """Bytes that may still be used; those of rows that have gone are used again, whatever the file's size."""
        return max(0, self._max_pages - self._used_pages()) * _PAGE_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether there is no row."""
        return self.connection.execute("SELECT 1 FROM events LIMIT 1").fetchone() is None

    def has_only(self, ids: Iterable[int]) -> bool:
        """Whether there is no row but these, if any."""
        known = frozenset(ids)
        return all(number in known for (number,) in self.connection.execute("SELECT id FROM events"))

    def extent(self, after: int = BEFORE_ALL) -> Extent:
        """The rows behind an identifier."""
        query = "SELECT COUNT(*), COALESCE(MIN(id), 0), COALESCE(MAX(id), 0) FROM events WHERE id > ?"
        return Extent(*self.connection.execute(query, (after,)).fetchone())

    def append(self, rows: Sequence[NewRow], done: Sequence[int], protected: int) -> Appended:
        """Writes rows and removes those that are done with, in one transaction.

        Args:
            rows: to be written; one whose ``event_id`` is there already is not written again.
            done: identifiers of rows to be removed.
            protected: rows up to that identifier are with the reporter and cannot make room; of the
                others the least worthy go, the oldest of them first.
        """
        # What could not stay though it were alone must not make others go first.
        shed = {row.id for row in rows if len(row.event) > self._max_bytes_of_one}
        with self._transaction():
            self._remove(done)
            duplicates = self._insert([row for row in rows if row.id not in shed])
            # Rows are counted by the pages that they need in fact: how well they fill them depends on their sizes.
            while (excess := self._used_pages() - self._max_pages) > 0 and (least := self._least(protected, excess)):
                self._remove(least)
                shed.update(least)
        return Appended(frozenset(row.id for row in rows) - duplicates - shed, duplicates, frozenset(shed))

    def _used_pages(self) -> int:
        (all_,) = self.connection.execute("PRAGMA page_count").fetchone()
        (free,) = self.connection.execute("PRAGMA freelist_count").fetchone()
        return int(all_ - free)

    def _insert(self, rows: Sequence[NewRow]) -> frozenset[int]:
        """Returns those that were there already."""
        before = self.connection.total_changes
        self.connection.executemany("INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?, ?)", rows)
        if self.connection.total_changes - before == len(rows):
            return frozenset()
        places = {row.id: self._place_of(row) for row in rows}
        if None in places.values():
            # To take that for a duplicate would lose it without a word.
            raise DamagedError("the place of a row is another's")
        return frozenset(wanted for wanted, place in places.items() if place != wanted)

    def _place_of(self, row: NewRow) -> int | None:
        found = self.connection.execute("SELECT id FROM events WHERE event_id = ?", (row.event_id,)).fetchone()
        return None if found is None else int(found[0])

    def found(self, rows: Sequence[NewRow]) -> frozenset[int]:
        """The identifiers of those that are there."""
        return frozenset(row.id for row in rows if self._place_of(row) == row.id)

    def has_others_at(self, rows: Sequence[NewRow]) -> bool:
        """Whether one of the places belongs to another event."""
        query = "SELECT 1 FROM events WHERE id = ? AND event_id != ?"
        return any(self.connection.execute(query, (row.id, row.event_id)).fetchone() for row in rows)

    def read(self, after: int, most: int) -> list[Row]:
        """The rows behind an identifier, oldest first: so many, or fewer if they are large."""
        query = "SELECT id, accepted, event, ifnull(length(event), 0) FROM events WHERE id > ? ORDER BY id LIMIT ?"
        rows: list[Row] = []
        with contextlib.closing(self.connection.execute(query, (after, most))) as cursor:
            for found in cursor:
                rows.append(Row(*found))
                most -= places_for(rows[-1].size)
                if most <= 0:
                    break
        return rows

    def forget(self, through: int, but: Iterable[int]) -> None:
        """Removes the rows up to an identifier, and some others."""
        with self._transaction():
            self.connection.execute("DELETE FROM events WHERE id <= ?", (through,))
            self._remove(but)

    def shrink(self) -> None:
        """Gives the disk back what is no longer needed."""
        if self.connection.execute("PRAGMA freelist_count").fetchone()[0] > _SPARE_PAGES:
            # A script, for it is done step by step, and execute() takes only the first.
            self.connection.executescript(f"PRAGMA incremental_vacuum({_SPARE_PAGES})")

    def close(self) -> None:
        """Everything that was committed is kept, whether or not this is called."""
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()

    def _remove(self, ids: Iterable[int]) -> None:
        self.connection.executemany("DELETE FROM events WHERE id = ?", [(number,) for number in ids])

    def _least(self, protected: int, most: int) -> list[int]:
        """The least worthy."""
        query = "SELECT id FROM events WHERE id > ? ORDER BY worth, id LIMIT ?"
        return [number for (number,) in self.connection.execute(query, (protected, most))]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            # A disk that is full has rolled it back already.
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
