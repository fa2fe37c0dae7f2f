"""What can still be read of a spool's file, however damaged."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from spark_events.dispatch.spool.database import NewRow

__all__ = ["Salvage", "say_kept"]

_LOG = logging.getLogger(__name__)
_SLICE = 500
_COLUMNS = "id, event_id, worth, accepted, event"
_TYPES = (int, str, int, float, bytes)


class Salvage:
    """Reads rows in slices, and one by one from the first that cannot be read.

    Args:
        db: open; nothing is written to it.
        after: rows behind that identifier are wanted.

    Attributes:
        found: how many rows were read.
        lost: how many rows are there and cannot be read, as far as that can be known.
        is_whole: whether everything could be read.
    """

    def __init__(self, db: sqlite3.Connection, after: int) -> None:
        self._db = db
        # Without it SQLite does not read a file that is shorter than its header says.
        db.execute("PRAGMA writable_schema = ON")
        self._after = after
        self.found = 0
        self.lost = 0
        self.is_whole = True

    def __iter__(self) -> Iterator[list[NewRow]]:
        query = f"SELECT {_COLUMNS} FROM events WHERE id > ? ORDER BY id LIMIT {_SLICE}"
        last = self._after
        while True:
            try:
                found = self._db.execute(query, (last,)).fetchall()
            except sqlite3.Error:
                break
            if not found:
                return
            yield self._sound(found)
            last = found[-1][0]
        self.is_whole = False
        yield from self._one_by_one(last)

    def _one_by_one(self, last: int) -> Iterator[list[NewRow]]:
        query = f"SELECT {_COLUMNS} FROM events WHERE id = ?"
        for number in self._rest(last):
            try:
                found = self._db.execute(query, (number,)).fetchall()
            except sqlite3.Error:
                self.lost += 1
            else:
                yield self._sound(found)

    def _rest(self, last: int) -> list[int]:
        """The identifiers behind one, from whichever of the table and its two indexes knows most of them."""
        known: set[int] = set()
        for source in ("INDEXED BY events_by_worth", "INDEXED BY sqlite_autoindex_events_1", "NOT INDEXED"):
            try:
                for (number,) in self._db.execute(f"SELECT id FROM events {source} WHERE id > ?", (last,)):
                    known.add(number)
            except sqlite3.Error:
                # What was read before it is what there is.
                continue
        return sorted(known)

    def _sound(self, found: list[tuple[object, ...]]) -> list[NewRow]:
        sound = [NewRow(*row) for row in found if all(map(isinstance, row, _TYPES))]  # type: ignore[arg-type]
        self.found += len(sound)
        if len(sound) < len(found):
            self.lost += len(found) - len(sound)
            self.is_whole = False
        return sound


def say_kept(reporter: str, salvage: Salvage, kept: Path) -> None:
    """Into the log: what became of a damaged file."""
    _LOG.error(
        "reporter %s: its spool was damaged; it is kept as %s, %d events were read from it%s",
        reporter,
        kept,
        salvage.found,
        _rest(salvage),
    )


def _rest(salvage: Salvage) -> str:
    if salvage.lost:
        return f", {salvage.lost} could not be"
    return "" if salvage.is_whole else "; whether there were more is not known"
