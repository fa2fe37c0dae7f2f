"""Takes into a spool what is in others: one of its own that was damaged, those of predecessors that are dead."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable
from pathlib import Path

from spark_events.dispatch.spool.connection import open_file
from spark_events.dispatch.spool.database import BEFORE_ALL, Database, NewRow
from spark_events.dispatch.spool.inflow import Slice, slices_of
from spark_events.dispatch.spool.salvage import Salvage

__all__ = ["Takeover"]


@dataclasses.dataclass(slots=True)
class Takeover:
    """Goes on until everything is there; a death in the middle of it repeats it, and no event comes in twice.

    Attributes:
        database: where everything goes.
        after: rows up to that identifier are with the reporter, or were.
        next_id: the first identifier that is free.
        writing: identifiers of rows that are about to be written.
        on_progress: called now and then, as long as the disk answers.
        lost: how many are known to be lost.
        shed: how many rows had to make room.
    """

    database: Database
    after: int
    next_id: int
    writing: frozenset[int]
    on_progress: Callable[[], None]
    lost: int = 0
    shed: int = 0

    def keep(self, db: sqlite3.Connection) -> Salvage:
        """Rows of an earlier file of this spool, which keep their place, but for those that are in memory.

        From where others have taken their places, a run that could not read that file, they come behind these.
        """
        salvage = Salvage(db, self.after)
        is_taken = False
        for rows in salvage:
            wanted = [row for row in rows if row.id not in self.writing]
            is_taken = is_taken or self.database.has_others_at(wanted)
            self._append(self._behind(wanted) if is_taken else wanted)
        self.lost += salvage.lost
        return salvage

    def keep_file(self, path: Path) -> Salvage:
        """The same, of a file that nobody has open.

        Raises:
            UnreadableError: somebody has it open all the same, say.
        """
        with open_file(path, self.on_progress) as db:
            return self.keep(db)

    def add_file(self, path: Path, after: int = BEFORE_ALL, but: frozenset[int] = frozenset()) -> Salvage:
        """Rows of an earlier file of this spool, behind all that are here.

        Args:
            path: the file.
            after: rows up to that identifier are not wanted.
            but: nor are rows with these.

        Raises:
            UnreadableError: somebody has it open, say.
        """
        with open_file(path, self.on_progress) as db:
            salvage = Salvage(db, after)
            for piece in slices_of(salvage, but):
                self.add(piece)
        return salvage

    def add(self, piece: Slice) -> None:
        """Rows of another spool, behind all that are here."""
        self._append(self._behind(piece.rows))
        self.lost += piece.lost

    def _behind(self, rows: list[NewRow]) -> list[NewRow]:
        return [row._replace(id=self.next_id + place) for place, row in enumerate(rows)]

    def _append(self, rows: list[NewRow]) -> None:
        appended = self.database.append(rows, (), self.after)
        self.on_progress()
        self.shed += len(appended.shed)
        if rows:
            self.next_id = max(self.next_id, rows[-1].id + 1)
