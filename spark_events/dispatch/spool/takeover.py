"""Takes into a spool what is in others: one of its own that was damaged, those of predecessors that are dead."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

from spark_events.dispatch.spool.database import BEFORE_ALL, Database, NewRow, connect
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
        rows: how many came from elsewhere.
        lost: how many are known to be lost.
        shed: how many rows had to make room.
    """

    database: Database
    after: int
    next_id: int
    writing: frozenset[int]
    rows: int = 0
    lost: int = 0
    shed: int = 0

    def keep(self, db: sqlite3.Connection) -> Salvage:
        """Rows of an earlier file of this spool, which keep their place, but for those that are in memory."""
        salvage = Salvage(db, self.after)
        for rows in salvage:
            self._append([row for row in rows if row.id not in self.writing])
        self.lost += salvage.lost
        return salvage

    def keep_file(self, path: Path) -> Salvage:
        """The same, of a file that nobody has open."""
        db = connect(path)
        try:
            return self.keep(db)
        finally:
            db.close()

    def add_file(self, path: Path) -> Salvage:
        """Rows of another spool, behind all that are here."""
        db = connect(path)
        try:
            salvage = Salvage(db, BEFORE_ALL)
            for rows in salvage:
                self._append([row._replace(id=self.next_id + place) for place, row in enumerate(rows)])
        finally:
            db.close()
        self.lost += salvage.lost
        return salvage

    def _append(self, rows: list[NewRow]) -> None:
        appended = self.database.append(rows, (), self.after)
        self.rows += len(rows) - len(appended.duplicates)
        self.shed += len(appended.shed)
        if rows:
            self.next_id = max(self.next_id, rows[-1].id + 1)
