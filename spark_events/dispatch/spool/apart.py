"""What was set aside of one's own spool and could not be read then: the next file is used, these rows come later."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from spark_events.dispatch.spool.attempts import Attempts
from spark_events.dispatch.spool.connection import UnreadableError, open_file
from spark_events.dispatch.spool.inflow import Heir, Inflow, Slice, Trail, slices_of
from spark_events.dispatch.spool.salvage import Salvage
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
        # Up to where rows were with the reporter when it was set aside, or are here; which were about to be written.
        self._left: dict[Path, tuple[int, frozenset[int]]] = {}
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
        try:
            with open_file(path, on_progress) as db:
                after, but = self._left[path]
                salvage = Salvage(db, after)
                for piece in slices_of(salvage, but):
                    yield piece
                    self._left[path] = max(after, piece.last), but
        except UnreadableError as error:
            self._attempts.failed(path, _UNREADABLE, error)
        else:
            self._taken(path, salvage)

    def take_all(self, paths: Sequence[Path], takeover: Takeover) -> None:
        """Takes in all that there are, into a file that is begun.

        Raises:
            sqlite3.Error: that file cannot be used.
        """
        # What somebody has removed is not waited for.
        self._left = {path: self._left[path] for path in paths if path in self._left}
        self.salvaged = []
        for path in paths:
            try:
                self._take(path, takeover)
            except UnreadableError as error:
                self._left.setdefault(path, (takeover.after, takeover.writing))
                self._attempts.failed(path, _UNREADABLE, error)

    def _take(self, path: Path, takeover: Takeover) -> None:
        if path in self._left:
            # Their places are taken: others have come meanwhile.
            self._taken(path, takeover.add_file(path, *self._left[path]))
        else:
            self.salvaged.append((path, takeover.keep_file(path)))

    def _taken(self, path: Path, salvage: Salvage) -> None:
        del self._left[path]
        self._attempts.succeeded(path)
        self.salvaged.append((path, salvage))
