"""How far a batch has come, for destinations that take it in several steps."""

from __future__ import annotations

from collections.abc import Sequence

from spark_events.errors import PermanentError
from spark_events.event import Event

__all__ = ["BatchProgress"]


class BatchProgress:
    """Events are answered for from the front; when the same batch comes again, it goes on where it stopped.

    So an outage in mid-batch neither repeats what was taken nor lets anything overtake.
    """

    def __init__(self) -> None:
        self._ids: tuple[str, ...] = ()
        self._answered = 0
        self._rejected = 0
        self._why = ""

    def begin(self, events: Sequence[Event]) -> None:
        """A batch has come: a new one, or the last one again."""
        ids = tuple(event.event_id for event in events)
        if ids != self._ids:
            self._ids = ids
            self._answered = self._rejected = 0

    @property
    def answered(self) -> int:
        """How many events, from the front, have been taken or refused."""
        return self._answered

    @property
    def is_done(self) -> bool:
        return self._answered >= len(self._ids)

    def take(self, count: int) -> None:
        """The next so many have been taken."""
        self._answered += count

    def refuse(self, count: int, why: str) -> None:
        """The next so many will never be taken."""
        self._rejected += count
        self._answered += count
        self._why = why

    def end(self) -> None:
        """All have been answered for.

        Raises:
            PermanentError: some were refused; it says how many, and why the last one was.
        """
        total, self._ids = len(self._ids), ()
        if self._rejected:
            said = f"{self._rejected} of {total} events refused: {self._why}"
            raise PermanentError(said, rejected=self._rejected)
