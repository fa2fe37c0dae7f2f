"""Clock of a log: the latest time of its lines."""

from __future__ import annotations


class LogClock:
    """Time at which the shim would have received the current line, in milliseconds since the epoch.

    Attributes:
        now: the latest time so far.
    """

    def __init__(self) -> None:
        self.now = 0

    def at(self, time: int) -> int:
        """Advance the clock to this time if this time is later; return the clock."""
        if time > self.now:
            self.now = time
        return self.now

    def times(self, time: int | None) -> tuple[int, int]:
        """Return the clock and the event's own time; if the event contains no time, both are the clock."""
        if time is None or time < 0:
            return self.now, self.now
        return self.at(time), time
