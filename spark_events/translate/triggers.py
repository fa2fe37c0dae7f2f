"""Trigger period of a query, estimated from its progress and idle reports."""

from __future__ import annotations

import statistics
from collections import deque

__all__ = ["TriggerPeriod"]

#: Number of gaps to keep; a single long batch or pause does not affect their median.
_GAPS = 5


class TriggerPeriod:
    """Estimated time between two triggers of a query; Spark does not report this time.

    The first gap is ignored because it may be arbitrarily short: ``Trigger.ProcessingTime`` fires immediately, and
    later at multiples of its interval.
    """

    __slots__ = ("_count", "_gaps", "_last")

    def __init__(self) -> None:
        self._last = 0
        self._count = 0
        self._gaps: deque[int] = deque(maxlen=_GAPS)

    def note(self, at: int) -> None:
        """Record the time of a trigger, with or without data, in milliseconds since the epoch."""
        if at <= self._last:
            return
        self._count += 1
        if self._count > 2:
            self._gaps.append(at - self._last)
        self._last = at

    @property
    def millis(self) -> int | None:
        """Trigger period in milliseconds; None while it is unknown."""
        return statistics.median_low(self._gaps) if self._gaps else None
