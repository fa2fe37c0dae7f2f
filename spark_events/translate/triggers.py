"""How often a query looks for data, as far as its own words tell."""

from __future__ import annotations

import statistics
from collections import deque

__all__ = ["TriggerPeriod"]

#: Between so many words the median is taken: a batch that overran, or one long pause, is no period.
_GAPS = 5


class TriggerPeriod:
    """The time between two triggers of a query; nothing in Spark's events says it.

    The first gap does not count: ``Trigger.ProcessingTime`` fires at once and from then on at whole
    multiples of its interval, so the first gap may be as short as you like.
    """

    __slots__ = ("_gaps", "_last", "_words")

    def __init__(self) -> None:
        self._last = 0
        self._words = 0
        self._gaps: deque[int] = deque(maxlen=_GAPS)

    def word(self, at: int) -> None:
        """A trigger fired, or said that there was nothing to do; milliseconds since the epoch."""
        if at <= self._last:
            return
        self._words += 1
        if self._words > 2:
            self._gaps.append(at - self._last)
        self._last = at

    @property
    def millis(self) -> int | None:
        """The period; None while it is not known."""
        return statistics.median_low(self._gaps) if self._gaps else None
