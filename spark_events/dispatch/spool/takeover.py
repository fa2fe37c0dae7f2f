"""Takes into a spool what is in others: one of its own that was damaged, those of predecessors that are dead."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from spark_events.dispatch.spool.database import BEFORE_ALL, Database, NewRow, connect
from spark_events.dispatch.spool.salvage import Salvage

__all__ = ["Takeover", "UnreadableError", "probe"]


class UnreadableError(sqlite3.OperationalError):
    """A file cannot be had at this moment, which says nothing of what is in it."""


@dataclasses.dataclass(slots=True)
class Takeover:
    """Goes on until everything is there; a death in the middle of it repeats it, and no event comes in twice.

    Attributes:
        database: where everything goes.
        after: rows up to that identifier are with the reporter, or were.
        next_id: the first identifier that is free.
        writing: identifiers of rows that are about to be written.
        on_progress: called now and then, as long as the disk answers.
        rows: how many came from elsewhere.
        lost: how many are known to be lost.
        shed: how many rows had to make room.
    """

    database: Database
    after: int
    next_id: int
    writing: frozenset[int]
    on_progress: Callable[[], None]
    rows: int = 0
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
        with _open(path, self.on_progress) as db:
            return self.keep(db)

    def add_file(self, path: Path, after: int = BEFORE_ALL, but: frozenset[int] = frozenset()) -> Salvage:
        """Rows of another spool, or of an earlier file of this one, behind all that are here.

        Args:
            path: the file.
            after: rows up to that identifier are not wanted.
            but: nor are rows with these.

        Raises:
            UnreadableError: somebody has it open, say.
        """
        with _open(path, self.on_progress) as db:
            salvage = Salvage(db, after)
            for rows in salvage:
                self._append(self._behind([row for row in rows if row.id not in but]))
        self.lost += salvage.lost
        return salvage

    def _behind(self, rows: list[NewRow]) -> list[NewRow]:
        return [row._replace(id=self.next_id + place) for place, row in enumerate(rows)]

    def _append(self, rows: list[NewRow]) -> None:
        appended = self.database.append(rows, (), self.after)
        self.on_progress()
        self.rows += len(rows) - len(appended.duplicates)
        self.shed += len(appended.shed)
        if rows:
            self.next_id = max(self.next_id, rows[-1].id + 1)


def probe(path: Path, on_progress: Callable[[], None]) -> None:
    """Whether a file can be read now.

    Raises:
        UnreadableError: it cannot.
    """
    with _open(path, on_progress):
        pass


@contextlib.contextmanager
def _open(path: Path, on_progress: Callable[[], None]) -> Iterator[sqlite3.Connection]:
    """A file of which at least the beginning can be read, or of which it is known that it is damaged."""
    # The one before it may have kept us waiting until we gave up.
    on_progress()
    try:
        db = connect(path, on_progress)
    except sqlite3.OperationalError as error:
        raise UnreadableError(f"{path}: {error}") from error
    try:
        _read_the_first_page(db, path)
        yield db
    finally:
        db.close()


def _read_the_first_page(db: sqlite3.Connection, path: Path) -> None:
    try:
        db.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError as error:
        # Locked, no descriptors left, a disk that has gone away: to take that for damage would give up what is sound.
        raise UnreadableError(f"{path}: {error}") from error
    except sqlite3.DatabaseError:
        # What can still be read is for the salvage to find out.
        return
