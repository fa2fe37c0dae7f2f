"""Takes into a spool what is in others: one of its own that was damaged, those of predecessors that are dead."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable
from pathlib import Path

from spark_events.dispatch.spool.connection import open_file
from spark_events.dispatch.spool.database import Database, NewRow
from spark_events.dispatch.spool.salvage import Salvage, Slice

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

    def keep(self, db: sqlite3.Connection, salvage: Salvage, is_patient: bool) -> None:
        """Rows of an earlier file of this spool, which keep their place, but for those that are in memory.

        From where others have taken their places, a run that could not read that file, they come behind these.

        Args:
            db: that file.
            salvage: reads it.
            is_patient: whether a row is waited for that the disk does not give now.

        Raises:
            UnreadableError: the disk fails now; what the salvage has read by then is here.
        """
        is_taken = False
        for piece in salvage.read(db, is_patient):
            wanted = [row for row in piece.rows if row.id not in self.writing]
            is_taken = is_taken or self.database.has_others_at(wanted)
            self._append(self._behind(wanted) if is_taken else wanted)
            self.lost += piece.lost

    def keep_file(self, path: Path, salvage: Salvage, is_patient: bool) -> None:
        """The same, of a file that nobody has open.

        Raises:
            UnreadableError: somebody has it open all the same, say.
        """
        with open_file(path, self.on_progress, is_patient) as db:
            self.keep(db, salvage, is_patient)

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
