"""Remaining calls of a destination's limit, counted between its reports; pure logic.

A report might not include the other attempts in flight, so their number is subtracted. Answers arrive in any order: a
report of an earlier attempt that contains more remaining calls is out of date, and ignored.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from spark_events.enrichment.engine.job_reports import ReportTuning
from spark_events.enrichment.engine.rate_headers import ReportedLimit
from spark_events.enrichment.engine.verdicts import LONGEST_PAUSE

__all__ = ["LowestLimit", "QuotaTuning", "RemainingCalls", "lowest_limit"]


@dataclasses.dataclass(frozen=True, slots=True)
class QuotaTuning:
    """Constants of the reported limit.

    Attributes:
        longer_seconds: if a pause becomes longer by more than this time, waiting attempts compare it with their time
            limits again.
        reports: times of the reports to the driver.
    """

    longer_seconds: float = 1.0
    reports: ReportTuning = dataclasses.field(default_factory=ReportTuning)


class LowestLimit(NamedTuple):
    """The lowest limit that answers have reported.

    Attributes:
        name: the name of the limit, or its unit.
        counts_calls: whether the unit of the limit is calls.
        left: the number of remaining calls.
        seconds: seconds until the limit is reset.
        high: the largest number of remaining calls in these reports.
        reports: the number of reports.
    """

    name: str
    counts_calls: bool
    left: float
    seconds: float
    high: float = 0.0
    reports: int = 1


def lowest_limit(limits: Iterable[ReportedLimit]) -> LowestLimit | None:
    """Return the limit with the fewest remaining calls; None if no number of calls is known."""
    lowest = min(limits, key=lambda limit: (_calls_left(limit), -limit.seconds), default=None)
    if lowest is None or (left := _calls_left(lowest)) == math.inf:
        return None
    seconds = min(max(0.0, lowest.seconds), LONGEST_PAUSE)
    return LowestLimit(lowest.name, lowest.counts_calls, left, seconds, left)


def _calls_left(limit: ReportedLimit) -> float:
    """Return the number of remaining calls of a limit; infinite if unknown.

    For a limit in another unit, such as tokens, the number is known only if it is 0.
    """
    if limit.left is None:
        return math.inf
    return limit.left if limit.counts_calls or limit.left <= 0 else math.inf


class RemainingCalls:
    """Number of attempts that may start, from the reports and the attempts of this process or this job.

    Others may use the same limit. Therefore only a fraction of the remaining calls is available: the fraction of the
    calls that were used before the last reset. After a reset, until the next report, the attempts in flight have a
    bound: the number of attempts that the destination had accepted before the reset or, if larger, the fraction of the
    largest report. The bound grows with each ended attempt, as in TCP's slow start, because some services report a
    limit only with rejections.

    Attributes:
        limits: whether a limit is known.
        reset_at: the time of the next reset; infinite if unknown.
        begun: the number of the latest attempt.
    """

    def __init__(self, clock: Callable[[], float], begun: int = 0) -> None:
        self.limits = False
        self.reset_at = math.inf
        self.begun = begun
        self._clock = clock
        self._in_flight: set[int] = set()
        #: The number of the latest attempt that has reported, and the number of remaining calls.
        self._reported, self._left = 0, math.inf
        self._name = ""
        self._counts_calls = True
        #: The largest and the smallest reported number of remaining calls since the last reset.
        self._high, self._low = 0.0, math.inf
        #: Attempts since the last reset that the destination has not rejected.
        self._accepted = 0
        #: Reports since the last reset, except those of rejected attempts. Reports of attempts that began before the
        #: reset count too, because the reported numbers include these attempts.
        self._reports = 0
        self._fraction = 1.0

    @property
    def until(self) -> float:
        """Time until which no call remains; 0 if calls remain."""
        return self.reset_at if self._left < 1 else 0.0

    def begin(self) -> int:
        """Count the start of an attempt, and return its number."""
        self.begun += 1
        self._accepted += 1
        self._in_flight.add(self.begun)
        return self.begun

    def end(self, number: int) -> bool:
        """Record that an attempt has ended; return whether it was in flight."""
        if number not in self._in_flight:
            return False
        self._in_flight.remove(number)
        self._left += self.reset_at == math.inf
        return True

    def report(self, number: int, limit: LowestLimit) -> None:
        """Process the reports of attempts up to a number."""
        now = self._clock()
        if now >= self.reset_at:
            self._reset()
        if limit.name != self._name:
            self._name, self._counts_calls = limit.name, limit.counts_calls
            self._high, self._low, self._reports = 0.0, math.inf, 0
        self._high = max(self._high, limit.high)
        self._reports += limit.reports
        if number < self._reported and limit.left > self._left:
            return
        self._low = min(self._low, limit.left)
        self._reported, self._left, self.limits = max(self._reported, number), limit.left, True
        self.reset_at = now + limit.seconds

    def rejected(self) -> bool:
        """Return whether a rejection is due to this limit, because no call remains; if so, count the rejection."""
        is_exhausted = self.until > self._clock()
        self._accepted -= is_exhausted
        self._reports -= is_exhausted
        return is_exhausted

    def room(self, reserved: int, _: int = 1) -> float:
        """Return the number of attempts that may start now, besides the reserved ones."""
        if self._clock() >= self.reset_at:
            self._reset()
        others = len(self._in_flight) + reserved
        if self.reset_at == math.inf:
            return self._left - others
        # If nothing is in flight, no report would correct a fraction that is too small.
        least = 1.0 if self._left >= 1 and not others else -math.inf
        return max(least, self._left * self._fraction - others)

    def _reset(self) -> None:
        if self._high > self._low and self._reports > 0:
            # The largest report already excludes its own call; add it.
            self._fraction = min(1.0, self._reports / (self._high + 1 - self._low))
        most = max(1, self._accepted, self._high * self._fraction)
        self._left, self.reset_at = most if self._counts_calls else math.inf, math.inf
        self._high, self._low, self._accepted, self._reports = 0.0, math.inf, 0, 0
        self.limits = self._counts_calls
