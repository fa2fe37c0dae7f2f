"""What can still be read of a spool's file, however damaged."""

from __future__ import annotations

import itertools
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from spark_events.dispatch.spool.connection import refuse_to_wait
from spark_events.dispatch.spool.database import NewRow

__all__ = ["Salvage", "Slice", "say_kept"]

_LOG = logging.getLogger(__name__)
_SLICE = 500
_COLUMNS = "id, event_id, worth, accepted, event"
_TYPES = (int, str, int, float, bytes)


class Slice(NamedTuple):
    """Rows of a file, in their order.

    Attributes:
        rows: with the places that they have there.
        last: up to that place everything has been read there.
        lost: so many more were there, and cannot be read.
    """

    rows: list[NewRow]
    last: int
    lost: int


class Salvage:
    """Reads rows in slices, and one by one from the first that cannot be read.

    It goes on where it was, should the disk fail in the middle of it.

    Args:
        after: rows behind that identifier are wanted.

    Attributes:
        last: up to that identifier everything has been taken that can be had.
        found: how many rows were taken.
        lost: how many rows are there and cannot be read, as far as that can be known.
        is_whole: whether everything could be read.
    """

    def __init__(self, after: int) -> None:
        self.last = after
        self.found = 0
        self.lost = 0
        self.is_whole = True

    def read(self, db: sqlite3.Connection, is_patient: bool) -> Iterator[Slice]:
        """The slices; whoever asks for the next has taken the last one.

        Args:
            db: open; nothing is written to it.
            is_patient: whether a row is waited for that the disk does not give now; else it is lost.

        Raises:
            UnreadableError: the disk fails now.
        """
        try:
            # With the next line SQLite would take tables that it could not read for tables that are not there.
            db.execute("SELECT 1 FROM sqlite_master LIMIT 0")
        except (sqlite3.Error, MemoryError) as error:
            refuse_to_wait(error, is_patient, db)
        # Without it SQLite does not read a file that is shorter than its header says.
        db.execute("PRAGMA writable_schema = ON")
        for piece in self._slices(db, is_patient):
            yield piece
            self.last = piece.last
            self.found += len(piece.rows)
            self.lost += piece.lost

    def _slices(self, db: sqlite3.Connection, is_patient: bool) -> Iterator[Slice]:
        # The next row tells whether the last one of a slice is in its place.
        query = f"SELECT {_COLUMNS} FROM events WHERE id > ? ORDER BY id LIMIT {_SLICE + 1}"
        last = self.last
        while True:
            try:
                found = db.execute(query, (last,)).fetchall()
            except (sqlite3.Error, MemoryError) as error:
                refuse_to_wait(error, is_patient, db)
                break
            if not found:
                return
            if not _ascends(found, last):
                # SQLite takes their order for granted: where one is out of it, the next query leaves others out, or
                # begins anew for ever.
                break
            last = found[:_SLICE][-1][0]
            yield self._sound(found[:_SLICE], last)
        self.is_whole = False
        yield from self._one_by_one(db, last, is_patient)

    def _one_by_one(self, db: sqlite3.Connection, last: int, is_patient: bool) -> Iterator[Slice]:
        query = f"SELECT {_COLUMNS} FROM events WHERE id = ?"
        lost = 0
        for number in self._rest(db, last, is_patient):
            last = number
            try:
                found = db.execute(query, (number,)).fetchall()
            except (sqlite3.Error, MemoryError) as error:
                refuse_to_wait(error, is_patient)
                lost += 1
            else:
                # It is known by an index alone.
                lost += not found
                piece = self._sound(found, number)
                yield piece._replace(lost=piece.lost + lost)
                lost = 0
        if lost:
            yield Slice([], last, lost)

    def _rest(self, db: sqlite3.Connection, last: int, is_patient: bool) -> list[int]:
        """The identifiers behind one, from whichever of the table and its two indexes knows most of them."""
        known: set[int] = set()
        for source in ("INDEXED BY events_by_worth", "INDEXED BY sqlite_autoindex_events_1", "NOT INDEXED"):
            try:
                for (number,) in db.execute(f"SELECT id FROM events {source} WHERE id > ?", (last,)):
                    if isinstance(number, int) and number > last:
                        known.add(number)
            except (sqlite3.Error, MemoryError) as error:
                # What was read before it is what there is.
                refuse_to_wait(error, is_patient)
        return sorted(known)

    def _sound(self, found: list[tuple[object, ...]], last: int) -> Slice:
        sound = [NewRow(*row) for row in found if all(map(isinstance, row, _TYPES))]  # type: ignore[arg-type]
        lost = len(found) - len(sound)
        if lost:
            self.is_whole = False
        return Slice(sound, last, lost)


def _ascends(found: list[tuple[Any, ...]], after: int) -> bool:
    """Whether the identifiers go up."""
    numbers = [after, *(row[0] for row in found)]
    return all(isinstance(number, int) and before < number for before, number in itertools.pairwise(numbers))


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
