"""What was set aside of one's own spool and could not be read then: the next file is used, these rows come later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from spark_events.dispatch.spool import files
from spark_events.dispatch.spool.attempts import Attempts
from spark_events.dispatch.spool.salvage import Salvage
from spark_events.dispatch.spool.takeover import Takeover, UnreadableError, probe

__all__ = ["Apart"]

_UNREADABLE = "what was set aside of its damaged spool cannot be read now, it is tried again"


class Apart:
    """The files that were set aside and are still to be read.

    Args:
        reporter: its name in the configuration.
    """

    def __init__(self, reporter: str) -> None:
        self._attempts = Attempts(reporter)
        # Up to where rows were with the reporter when it was set aside, and which were about to be written.
        self._left: dict[Path, tuple[int, frozenset[int]]] = {}

    @property
    def is_left(self) -> bool:
        """Whether there is one."""
        return bool(self._left)

    def find(self, most: int, on_progress: Callable[[], None]) -> list[Path]:
        """Looks which can be read now.

        Args:
            most: those that are larger stay where they are, in bytes.
            on_progress: called now and then, as long as the disk answers.
        """
        return [path for path in self._left if self._can_be_taken(path, most, on_progress)]

    def _can_be_taken(self, path: Path, most: int, on_progress: Callable[[], None]) -> bool:
        if not self._attempts.is_due(path):
            return False
        try:
            if files.size_of(path.parent) > most:
                return False
            probe(path, on_progress)
        except (OSError, UnreadableError) as error:
            self._attempts.failed(path, _UNREADABLE, error)
            return False
        return True

    def take_all(self, paths: Sequence[Path], takeover: Takeover) -> list[tuple[Path, Salvage]]:
        """Takes in all that there are, into a file that is begun; returns those that could be read.

        Raises:
            sqlite3.Error: that file cannot be used.
        """
        # What somebody has removed is not waited for.
        self._left = {path: self._left[path] for path in paths if path in self._left}
        return self.take(paths, takeover)

    def take(self, paths: Sequence[Path], takeover: Takeover) -> list[tuple[Path, Salvage]]:
        """The same, into a file that is used."""
        taken = []
        for path in paths:
            try:
                taken.append((path, self._take(path, takeover)))
            except UnreadableError as error:
                self._left.setdefault(path, (takeover.after, takeover.writing))
                self._attempts.failed(path, _UNREADABLE, error)
        return taken

    def _take(self, path: Path, takeover: Takeover) -> Salvage:
        if path not in self._left:
            return takeover.keep_file(path)
        # Their places are taken: others have come meanwhile.
        salvage = takeover.add_file(path, *self._left[path])
        del self._left[path]
        self._attempts.succeeded(path)
        return salvage
