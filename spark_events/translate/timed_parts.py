"""The timers of a translation, which cause events without a record."""

from __future__ import annotations

from collections.abc import Iterator

from spark_events.translate.deadlines.deadlines import Deadlines
from spark_events.translate.draft import Draft
from spark_events.translate.executor_events import ExecutorEvents
from spark_events.translate.heartbeats import Heartbeats
from spark_events.translate.streams import Streams

__all__ = ["TimedParts"]

#: Maximum plausible delay of a record, in milliseconds. A larger delay shows that the driver's clock differs from the
#: sidecar's clock.
_MOST_BEHIND = 60_000


class TimedParts:
    """The timers of one application: idle watermarks, merged commits, heartbeats, deadlines, counts of executors.

    Args:
        streams: has the timers of queries, which follow the times of the records.
        heartbeats: None if they are off; they read the clock.
        deadlines: asks the driver about overdue work.
        executor_events: counts suppressed events.

    Attributes:
        runs: the running queries, which have timers.
        latest: time of the latest record, and when the shim received it, in milliseconds since the epoch. Records of an
            event log do not pass through the shim, so their second number is 0.
    """

    def __init__(
        self, streams: Streams, heartbeats: Heartbeats | None, deadlines: Deadlines, executor_events: ExecutorEvents
    ) -> None:
        self._streams = streams
        self._heartbeats = heartbeats
        self._deadlines = deadlines
        self._executor_events = executor_events
        self.runs = streams.runs
        self.latest = 0, 0

    @property
    def next_due(self) -> int | None:
        """Time of the next :meth:`tick` that may emit an event, in milliseconds since the epoch."""
        parts = (self._deadlines, self._executor_events, *(() if self._heartbeats is None else (self._heartbeats,)))
        due = [at for part in parts if (at := part.next_due) is not None]
        if self.runs and (at := self._streams.next_due) is not None:
            due.append(at + self.behind)
        return min(due, default=None)

    @property
    def behind(self) -> int:
        """Delay of the latest record, in milliseconds."""
        moment, received = self.latest
        return min(max(0, received - moment), _MOST_BEHIND)

    def is_due_before(self, moment: int) -> bool:
        """Return whether timers of queries are due before a record of this time."""
        due = self._streams.next_due
        return due is not None and due <= moment

    def before(self, moment: int) -> Iterator[Draft]:
        """Return the events of queries that are due before a record."""
        return self._streams.tick(moment)

    def tick(self, now: int) -> Iterator[Draft]:
        """Return the events that are due.

        Args:
            now: milliseconds since the epoch.
        """
        # The newest records may still be in Spark's listener bus.
        yield from self._streams.tick(now - self.behind)
        if self._heartbeats is not None:
            yield from self._heartbeats.tick(now)
        self._deadlines.tick(now)
        yield from self._executor_events.flush(now)

    def clock_stepped(self, by: int, now: int) -> None:
        """Continue all time limits after the wall clock was set; see :meth:`Translator.clock_stepped`."""
        self._streams.clock_stepped(by)
        self._deadlines.clock_stepped(by, now)

    def flush(self) -> Iterator[Draft]:
        """Report what was merged or counted, because no more records will arrive."""
        yield from self._streams.flush()
        yield from self._executor_events.flush()
