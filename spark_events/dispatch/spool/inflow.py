"""What comes from another file into a spool that is in use: a slice at a time, and its own events between two."""

from __future__ import annotations

import itertools
import sqlite3
from collections import deque
from collections.abc import Generator, Mapping
from typing import NamedTuple, Protocol

from spark_events.dispatch.spool.connection import remove_through
from spark_events.dispatch.spool.database import Appended, Database, NewRow
from spark_events.dispatch.spool.salvage import Slice
from spark_events.dispatch.spool.window import Standing

__all__ = ["Came", "Heir", "Inflow", "Trail"]

#: What a row takes besides its event: its identifiers, twice. And pages may be half empty.
_ROW_BYTES, _PAGES_SHARE = 256, 2


class Came(NamedTuple):
    """What a slice has changed.

    Attributes:
        rows: so many were not known here, whatever has become of them.
        unread: so many more are on disk alone.
        dropped: how many were given up, of those that came or of others, by reason.
        is_own: whether they were in an earlier file of the same spool.
    """

    rows: int
    unread: int
    dropped: Mapping[str, int]
    is_own: bool


class Heir(Protocol):
    """Who gets it: see :class:`~spark_events.dispatch.spool.spool.Spool`."""

    @property
    def read_through(self) -> int: ...
    def standing(self) -> Standing: ...
    def reserve(self, count: int) -> int: ...
    def inherited(self, came: Came) -> None: ...


class Trail:
    """What has come and is still there. It goes there when it is settled here: no death and no end delivers it again.

    Not before: should this process die then, whoever found the rest first would deliver it before what had come.
    """

    def __init__(self, heir: Heir) -> None:
        self._heir = heir
        self._db: sqlite3.Connection | None = None
        # By row, its place here and there.
        self._places: deque[tuple[int, int]] = deque()
        # What is settled and still there: all up to that row.
        self._settled: int | None = None

    def follow(self, db: sqlite3.Connection | None) -> None:
        """That is where it is now; None, where it cannot be had at the moment, or may not be written."""
        self._db = db

    def end(self) -> None:
        """What has come of that file is all there was."""
        self._db = self._settled = None
        self._places.clear()

    def note(self, rows: list[NewRow], first: int) -> None:
        """These have places here from that one on."""
        self._places.extend((here, row.id) for here, row in enumerate(rows, first))

    def remove_settled(self) -> None:
        """Removes what need not be there any more."""
        settled = self._heir.standing().settled_through
        while self._places and self._places[0][0] <= settled:
            self._settled = self._places.popleft()[1]
        if self._db is not None and self._settled is not None and remove_through(self._db, self._settled):
            self._settled = None


class Inflow:
    """Remembers how far it is, whatever fails meanwhile: nothing that has come comes again.

    Args:
        slices: whoever asks it for the next has taken the last one in.
        trail: knows what of it is settled.
        is_own: whether that is an earlier file of the same spool.
    """

    def __init__(self, slices: Generator[Slice], trail: Trail, is_own: bool) -> None:
        self.is_own = is_own
        self._trail = trail
        self._slices = slices
        # So many rows of the next slice find room.
        self._fitting = 0
        self._next: Slice | None = None

    def advance(self) -> bool:
        """Reads the next slice, if the last was taken; False when there is none."""
        self._trail.remove_settled()
        if self._next is None:
            self._next = next(self._slices, None)
        return self._next is not None

    def fits(self, database: Database) -> bool:
        """Whether some of the slice can come now, and makes nobody else go.

        One that finds no room though there is nothing else comes alone, to be given up there, and counted.
        """
        rows = [] if self._next is None else self._next.rows
        sizes = itertools.accumulate(_PAGES_SHARE * (len(row.event) + _ROW_BYTES) for row in rows)
        room = database.room
        self._fitting = sum(1 for size in sizes if size <= room)
        if rows and not self._fitting and database.is_empty:
            self._fitting = 1
        return self._next is not None and (self._fitting > 0 or not rows)

    def take(self, database: Database, heir: Heir) -> None:
        """Takes the slice in, behind all that is here, or as much of it as :meth:`fits`.

        Raises:
            sqlite3.Error: the own file cannot be used; the slice comes later.
        """
        assert self._next is not None
        count = self._fitting
        coming = self._next.rows[:count]
        # Whatever becomes of this, nobody else gets these places.
        first = heir.reserve(count)
        rows = [row._replace(id=place) for place, row in enumerate(coming, first)]
        try:
            appended = database.append(rows, (), heir.read_through)
        except sqlite3.Error:
            # A commit may have been made though it failed.
            if not (there := database.found(rows)):
                raise
            appended = Appended(there, frozenset(row.id for row in rows) - there, frozenset())
        lost, shed = self._next.lost, appended.shed
        came = Came(
            len(rows) - len(appended.duplicates) + lost,
            len(appended.added) - len(shed.difference(row.id for row in rows)),
            {"spool-corrupt": lost, "spool-full": len(shed)},
            self.is_own,
        )
        heir.inherited(came)
        self._trail.note(coming, first)
        rest = self._next.rows[count:]
        self._next = self._next._replace(rows=rest, lost=0) if rest else None

    def close(self) -> None:
        """What has not come stays where it is."""
        self._trail.remove_settled()
        self._slices.close()
