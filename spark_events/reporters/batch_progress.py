"""Progress within a batch, for destinations that receive a batch in several requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from spark_events.errors import PermanentError
from spark_events.event import Event

#: Maximum number of bisections per refused batch; 30 bisections can find three bad events among a thousand.
_MOST_HALVINGS = 30


class RefusedError(PermanentError):
    """The destination refuses a request because of one or more of its events."""


class TooLargeError(RefusedError):
    """The request exceeds the destination's size limit."""


class BatchProgress:
    """Undelivered parts of a batch, kept between attempts.

    After an outage in the middle of a batch, accepted events are not sent again, and the order of events is unchanged.

    Attributes:
        left: the parts, in reverse order.
    """

    def __init__(self, events: Sequence[Event] = ()) -> None:
        self._ids = [event.event_id for event in events]
        self.left = [events] if events else []
        self._rejected = 0
        self._reason = ""
        self._halvings = 0

    def of(self, events: Sequence[Event]) -> BatchProgress:
        """Return the progress of this batch.

        If the previous, failed attempt contained the same events, its progress continues; otherwise a new progress
        begins.
        """
        return self if self.left and self._ids == [event.event_id for event in events] else BatchProgress(events)

    async def deliver(self, send: Callable[[Sequence[Event]], Awaitable[tuple[int, str]]]) -> None:
        """Send the remaining parts in order; halve a part that the destination refuses.

        A single refused event is rejected. A part is also rejected if the bisection limit is reached, unless the part
        is too large.

        Args:
            send: sends one part, and returns the number of rejected events and the reason. If it raises another error
                than :class:`RefusedError`, the next attempt continues with this part.

        Raises:
            PermanentError: events were rejected; the message states how many, and the last reason.
        """
        while self.left:
            part = self.left[-1]
            try:
                rejected, reason = await send(part)
            except RefusedError as error:
                is_too_large = isinstance(error, TooLargeError)
                if len(part) > 1 and (is_too_large or self._halvings < _MOST_HALVINGS):
                    self._halvings += 0 if is_too_large else 1
                    self.left[-1:] = [part[len(part) // 2 :], part[: len(part) // 2]]
                    continue
                rejected, reason = len(part), str(error)
            self.left.pop()
            self._rejected += rejected
            self._reason = reason or self._reason
        if self._rejected:
            text = f"the destination refused {self._rejected} of {len(self._ids)} events: {self._reason}"
            raise PermanentError(text, self._rejected)
