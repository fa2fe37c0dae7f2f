"""What was set aside of one's own spool and could not be read then: the next file is used, these rows come later."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from spark_events.dispatch.spool import attempts
from spark_events.dispatch.spool.attempts import Attempts
from spark_events.dispatch.spool.connection import UnreadableError, open_file
from spark_events.dispatch.spool.files import age_of
from spark_events.dispatch.spool.inflow import Heir, Inflow, Trail
from spark_events.dispatch.spool.salvage import Salvage, Slice
from spark_events.dispatch.spool.takeover import Takeover

__all__ = ["Apart"]

_UNREADABLE = "what was set aside of its damaged spool cannot be read now, it is tried again"


class Apart:
    """The files that were set aside and are still to be read.

    Args:
        reporter: its name in the configuration.

    Attributes:
        salvaged: those that have been read, and by what.
    """

    def __init__(self, reporter: str) -> None:
        self._attempts = Attempts(reporter)
        # How far each has been read: rows before that were with the reporter when it was set aside, or are here.
        # And which were about to be written then.
        self._left: dict[Path, tuple[Salvage, frozenset[int]]] = {}
        # The same, as it was when a file was used last: before the one that is begun.
        self._left_before = self._left
        # Those of which the last attempt has read nothing.
        self._in_vain: set[Path] = set()
        # Whose rows have other places here than there.
        self._came_behind: set[Path] = set()
        self.salvaged: list[tuple[Path, Salvage]] = []

    @property
    def is_left(self) -> bool:
        """Whether there is one."""
        return bool(self._left)

    def find(self, on_progress: Callable[[], None], heir: Heir) -> Inflow | None:
        """Looks whether one can be read now.

        Args:
            on_progress: called now and then, as long as the disk answers.
            heir: who gets it.
        """
        for path in filter(self._attempts.is_due, list(self._left)):
            inflow = Inflow(self._slices(path, on_progress), Trail(heir), is_own=True)
            if inflow.advance():
                return inflow
        return None

    def _slices(self, path: Path, on_progress: Callable[[], None]) -> Generator[Slice]:
        salvage, but = self._left[path]
        began = salvage.last
        is_patient = self._is_patient(path)
        try:
            with open_file(path, on_progress, is_patient) as db:
                for piece in salvage.read(db, is_patient):
                    yield piece._replace(rows=[row for row in piece.rows if row.id not in but])
                    # It gets on.
                    self._attempts.succeeded(path)
        except UnreadableError as error:
            self._failed(path, salvage, began, error)
        else:
            del self._left[path]
            self._attempts.succeeded(path)
            self._came_behind.add(path)
            self.salvaged.append((path, salvage))

    def take_all(self, paths: Sequence[Path], takeover: Takeover) -> None:
        """Takes in, in their places, all that are new, into a file that is begun.

        The others wait until it is used: their places are taken, and others are had then.

        Raises:
            sqlite3.Error: that file cannot be used.
        """
        # What somebody has removed is not waited for.
        self._left = {path: left for path, left in self._left.items() if path in paths}
        self.salvaged = [(path, by) for path, by in self.salvaged if path in paths and path in self._came_behind]
        known = {*self._left, *dict(self.salvaged)}
        for path in paths:
            if path not in known:
                self._take(path, takeover)

    def _take(self, path: Path, takeover: Takeover) -> None:
        salvage = Salvage(takeover.after)
        try:
            takeover.keep_file(path, salvage, self._is_patient(path))
        except UnreadableError as error:
            self._left[path] = salvage, takeover.writing
            self._failed(path, salvage, takeover.after, error)
        else:
            self._attempts.succeeded(path)
            self.salvaged.append((path, salvage))

    def begun(self) -> None:
        """The file is used: what has come into it stays there."""
        self._left_before = self._left

    def not_begun(self) -> None:
        """The file cannot be used: what is there now is taken again, by the next."""
        self._left = self._left_before

    def _failed(self, path: Path, salvage: Salvage, began: int, error: UnreadableError) -> None:
        if salvage.last == began:
            self._in_vain.add(path)
        else:
            self._in_vain.discard(path)
        self._attempts.failed(path, _UNREADABLE, error)

    def _is_patient(self, path: Path) -> bool:
        # Where no run is as long as this process would wait, it must be known from one to the next; a first attempt
        # each has.
        is_old = path in self._in_vain and age_of(path) >= attempts.HOPEFUL_SECONDS
        return self._attempts.is_patient(path) and not is_old
