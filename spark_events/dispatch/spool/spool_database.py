"""SQLite file of a spool, with a write-ahead log; only the spool writer's thread uses it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spark_events.dispatch.entries import weight_for

_VERSION = 2
#: Statements that create the tables of a new file.
_SCHEMA = (
    "CREATE TABLE events (id INTEGER PRIMARY KEY, event_id TEXT NOT NULL UNIQUE, priority INTEGER NOT NULL,"
    " accepted REAL NOT NULL, event BLOB NOT NULL)",
    "CREATE INDEX events_by_priority ON events (priority, id)",
    f"PRAGMA user_version = {_VERSION}",
)
#: In pages: minimum size of a file, space for metadata, and maximum size of the log before a checkpoint.
_LEAST_PAGES, _OWN_PAGES, _LOG_PAGES, _PAGE_BYTES = 64, 16, 1_000, 4_096


class CorruptFileError(sqlite3.DatabaseError):
    """Raised if the file is not a spool, was deleted or replaced, or lacks rows."""


def is_corruption(error: Exception) -> bool:
    """Return whether the error indicates a corrupt file.

    A full, missing or failing disk raises other subclasses of ``sqlite3.DatabaseError``; these do not indicate
    corruption.
    """
    return type(error) is sqlite3.DatabaseError or isinstance(error, CorruptFileError)


class Appended(NamedTuple):
    """Result of a write."""

    ids: list[int]  # ids of the new rows; 0 for a row that was not written
    duplicates: int  # number of new rows that were not written because the file already has their event_id
    shed: int  # number of older rows that were dropped to keep the file within its size


class SpoolDatabase:
    """Table of events in the order of their ids.

    All methods raise ``sqlite3.Error``; see :func:`is_corruption`. ``max_bytes`` limits the size of the file; the last
    write and the write-ahead log may exceed this limit. ``rows`` is the number of rows whose id is greater than
    ``after``. If ``last_id`` is not negative, rows with a greater id are deleted, because they belong to a commit that
    reported an error.
    """

    def __init__(self, path: Path, fsync: bool, max_bytes: int, after: int = 0, last_id: int = -1) -> None:
        self._path = path
        self._max_pages = max(_LEAST_PAGES, max_bytes // _PAGE_BYTES)
        if last_id >= 0 and not path.parent.exists():
            raise CorruptFileError("the folder was deleted")
        path.touch(mode=0o600)
        self._status = os.stat(path)
        # Wait briefly, because another process may still have the file open without holding the lock.
        self._db = sqlite3.connect(path, isolation_level=None, timeout=0.5)
        try:
            self._prepare(fsync)
            if last_id >= 0:
                self._db.execute("DELETE FROM events WHERE id > ?", (last_id,))
            self.last_id = max(last_id, self._number("SELECT COALESCE(MAX(id), 0) FROM events"))
            self.rows = self._number("SELECT COUNT(*) FROM events WHERE id > ?", after)
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, fsync: bool) -> None:
        log_pages = max(16, min(_LOG_PAGES, self._max_pages // 8))
        # Use exclusive mode, in which the write-ahead log needs no shared memory; some file systems do not support
        # shared memory.
        for pragma in ("locking_mode = EXCLUSIVE", f"page_size = {_PAGE_BYTES}", "journal_mode = WAL"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {log_pages}")
        self._db.execute(f"PRAGMA journal_size_limit = {log_pages * _PAGE_BYTES}")
        version = self._number("PRAGMA user_version")
        # A new file has version 0.
        if version not in (0, _VERSION):
            raise CorruptFileError(
                f"the schema has version {version}, but this release reads only version {_VERSION}; deliver the events "
                "with the spark-events that wrote the file"
            )
        try:
            if version != _VERSION:
                with self._db:
                    self._db.execute("BEGIN IMMEDIATE")
                    for statement in _SCHEMA:
                        self._db.execute(statement)
            self._db.execute("SELECT id, event_id, priority, accepted, event FROM events LIMIT 0")
        except sqlite3.OperationalError as error:
            if "no such" in str(error) or "already exists" in str(error):
                raise CorruptFileError(str(error)) from error
            raise

    def append(self, rows: Sequence[tuple[str, int, float, bytes]], through: int, protected: int) -> Appended:
        """Delete settled rows and write new rows in one transaction; shed rows that exceed the size.

        A new row consists of event_id, priority, time in seconds since the epoch, and event. Rows with ids up to
        ``through`` are settled. Rows with ids up to ``protected`` are also in memory, so they are not shed.
        """
        # Detect a deleted file, because SQLite would continue to write to it.
        if not self._path.exists() or not os.path.samestat(os.stat(self._path), self._status):
            raise CorruptFileError("the file was deleted or replaced")
        first = self.last_id + 1
        # Skip an event that exceeds the maximum size by itself, because it would displace all other events.
        most_bytes = (self._max_pages - _OWN_PAGES) * _PAGE_BYTES
        numbered = [(first + index, *row) for index, row in enumerate(rows) if len(row[3]) <= most_bytes]
        added, shed = {number for number, *_ in numbered}, 0
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM events WHERE id <= ?", (through,))
            duplicates = self._insert(numbered)
            added -= duplicates
            # Count used pages instead of bytes of events, because rows may not fill their pages.
            while (excess := self._used_pages() - self._max_pages) > 0:
                query = "SELECT id FROM events WHERE id > ? ORDER BY priority, id LIMIT ?"
                if not (least := self._db.execute(query, (protected, excess)).fetchall()):
                    break
                self._db.executemany("DELETE FROM events WHERE id = ?", least)
                added.difference_update(number for (number,) in least)
                shed += sum(number < first for (number,) in least)
        self.last_id += len(rows)
        return Appended([n if n in added else 0 for n in range(first, first + len(rows))], len(duplicates), shed)

    def _insert(self, rows: Sequence[tuple[Any, ...]]) -> set[int]:
        """Insert rows; return the ids of rows whose event is already in the file."""
        before = self._db.total_changes
        self._db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?) ON CONFLICT (event_id) DO NOTHING", rows)
        if self._db.total_changes - before == len(rows):
            return set()
        query = "SELECT id FROM events WHERE event_id = ?"
        return {number for number, event_id, *_ in rows if self._number(query, event_id) != number}

    def read(self, after: int, most: int) -> list[tuple[int, float, bytes]]:
        """Return the id, time and event of each row after an id.

        The result has at most ``most`` rows, and fewer if the rows are large. A failed read counts as corruption and is
        not retried.
        """
        query = "SELECT id, accepted, event, length(event) FROM events WHERE id > ? ORDER BY id LIMIT ?"
        rows: list[tuple[int, float, bytes]] = []
        try:
            for number, accepted, event, size in self._db.execute(query, (after, most)):
                rows.append((number, accepted, event))
                if (most := most - weight_for(size)) <= 0:
                    break
        except sqlite3.OperationalError as error:
            raise CorruptFileError(str(error)) from error
        return rows

    def close(self) -> None:
        """Close the file; committed rows also survive without this call."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    def _used_pages(self) -> int:
        return self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")

    def _number(self, query: str, *parameters: int | str) -> int:
        (number,) = self._db.execute(query, parameters).fetchone()
        return int(number)
