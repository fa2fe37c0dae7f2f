"""The spool's file: SQLite, with a write-ahead log. One thread uses it, and it never interprets events."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Appended", "Database", "Done", "NewRow", "Row", "salvage"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL UNIQUE,
    worth INTEGER NOT NULL,
    accepted REAL NOT NULL,
    event BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS events_by_worth ON events (worth, id);
"""
_VERSION = 1
#: What a row costs beside the event itself: its keys, its place in two indexes.
_ROW_BYTES = 150
_SLICE = 500


class NewRow(NamedTuple):
    """An event to be written; ``accepted`` in seconds since the epoch."""

    event_id: str
    worth: int
    accepted: float
    event: bytes


class Row(NamedTuple):
    """An event that was read."""

    id: int
    accepted: float
    event: bytes

    @property
    def done(self) -> Done:
        """How it is removed."""
        return Done(self.id, len(self.event) + _ROW_BYTES)


class Done(NamedTuple):
    """A row that is no longer needed, and the bytes that it takes."""

    id: int
    size: int


class Appended(NamedTuple):
    """What a write did: rows that are new, rows that had to make room for them."""

    added: int
    shed: int


class Database:
    """Rows in the order in which they were appended.

    Args:
        path: the file; made if it is not there.
        fsync: whether a write waits for the disk.

    Raises:
        sqlite3.Error: from every method, where the file cannot be used. ``sqlite3.OperationalError`` may
            pass (a full disk); another ``sqlite3.DatabaseError`` does not: the file is damaged.
    """

    def __init__(self, path: Path, fsync: bool) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        try:
            path.chmod(0o600)
            # One process has it, as its lock says: so it needs no shared memory, which some disks cannot give.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
            self._db.execute("PRAGMA journal_size_limit = 4194304")
            damage = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if damage != "ok":
                raise sqlite3.DatabaseError(damage)
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"its schema is {version}, known here is {_VERSION}")
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version = {_VERSION}")
            self.count, self._bytes = self._db.execute(
                f"SELECT COUNT(*), TOTAL(LENGTH(event) + {_ROW_BYTES}) FROM events"
            ).fetchone()
        except sqlite3.Error:
            self._db.close()
            raise

    def append(self, rows: Sequence[NewRow], done: Sequence[Done], read_through: int, max_bytes: int) -> Appended:
        """Writes rows and removes those that are done with, in one transaction.

        Args:
            rows: to be written; one whose ``event_id`` is there already is not written again.
            done: rows to be removed.
            read_through: rows up to that identifier are with the reporter and cannot make room.
            max_bytes: what may be kept; beyond it the least worthy go, the oldest of them first.
        """
        size = self._bytes - sum(row.size for row in done)
        with self._transaction():
            self._remove(done)
            before = self._db.total_changes
            for row in rows:
                cursor = self._db.execute(
                    "INSERT OR IGNORE INTO events (event_id, worth, accepted, event) VALUES (?, ?, ?, ?)", row
                )
                size += (len(row.event) + _ROW_BYTES) * cursor.rowcount
            added = self._db.total_changes - before
            shed = 0
            while size > max_bytes and (least := self._least(read_through, size - max_bytes)):
                self._remove(least)
                size -= sum(row.size for row in least)
                shed += len(least)
        self._bytes = size
        self.count += added - shed - len(done)
        return Appended(added, shed)

    def read(self, after: int, most: int) -> list[Row]:
        """The rows behind an identifier, oldest first."""
        query = "SELECT id, accepted, event FROM events WHERE id > ? ORDER BY id LIMIT ?"
        return [Row(*found) for found in self._db.execute(query, (after, most))]

    def shrink(self) -> None:
        """Gives the disk back what is no longer needed."""
        self._db.execute("PRAGMA incremental_vacuum").fetchall()

    def close(self) -> None:
        """Everything that was committed is kept, whether or not this is called."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    def _remove(self, rows: Iterable[Done]) -> None:
        self._db.executemany("DELETE FROM events WHERE id = ?", ((row.id,) for row in rows))

    def _least(self, read_through: int, size: int) -> list[Done]:
        """The least worthy, as many as have that size together."""
        query = f"SELECT id, LENGTH(event) + {_ROW_BYTES} FROM events WHERE id > ? ORDER BY worth, id LIMIT {_SLICE}"
        least: list[Done] = []
        for found in self._db.execute(query, (read_through,)).fetchall():
            if size <= 0:
                break
            least.append(Done(*found))
            size -= least[-1].size
        return least

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # A disk that is full has rolled it back already.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def salvage(path: Path, after: int) -> list[NewRow]:
    """The rows behind an identifier, of a file that may be damaged: up to the first that cannot be read."""
    rows: list[NewRow] = []
    query = "SELECT event_id, worth, accepted, event FROM events NOT INDEXED WHERE id > ? ORDER BY id"
    db = sqlite3.connect(path)
    try:
        # Its owner was killed, perhaps: what it had written is in the log beside the file.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        for found in db.execute(query, (after,)):
            rows.append(NewRow(*found))
    except sqlite3.Error:
        # What was read before it is what there is.
        return rows
    finally:
        db.close()
    return rows
