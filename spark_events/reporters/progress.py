"""Progress within a batch, for destinations that accept it in several steps."""

from __future__ import annotations

from collections.abc import Sequence

from spark_events.errors import PermanentError
from spark_events.event import Event


class BatchProgress:
    """Position in a batch that is delivered front to back; a retry resumes there.

    An outage in the middle of a batch therefore neither repeats accepted events nor changes their order.
    """

    def __init__(self) -> None:
        self._ids: tuple[str, ...] = ()
        self._answered = 0
        self._rejected = 0
        self._why = ""

    def begin(self, events: Sequence[Event]) -> None:
        """Start a new batch, or resume if it has the same events as the last one."""
        ids = tuple(event.event_id for event in events)
        if ids != self._ids:
            self._ids = ids
            self._answered = self._rejected = 0

    @property
    def answered(self) -> int:
        """How many events, from the front, the destination has accepted or rejected."""
        return self._answered

    @property
    def is_done(self) -> bool:
        return self._answered >= len(self._ids)

    def take(self, count: int) -> None:
        """Count the next ``count`` events as accepted."""
        self._answered += count

    def refuse(self, count: int, why: str) -> None:
        """Count the next ``count`` events as rejected for good, for the reason ``why``."""
        self._rejected += count
        self._answered += count
        self._why = why

    def end(self) -> None:
        """Finish the batch.

        Raises:
            PermanentError: when events were rejected; states how many, and the reason for the last one.
        """
        total, self._ids = len(self._ids), ()
        if self._rejected:
            said = f"{self._rejected} of {total} events refused: {self._why}"
            raise PermanentError(said, rejected=self._rejected)
