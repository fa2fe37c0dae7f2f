"""Remaining calls that a destination reports in the headers of its answers.

A report may not count the other attempts in flight, so their number is subtracted. Answers arrive in any order. A
report is out of date, and ignored, if its attempt began before another reported attempt and more calls remained.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from spark_events.enrichment.engine.rate_headers import ReportedLimit, lower_case, reported_limits
from spark_events.enrichment.engine.verdicts import LONGEST_PAUSE

__all__ = ["ReportedQuota"]


class ReportedQuota:
    """Admission of attempts while the destination has remaining calls; used by the loop's thread only.

    Other processes may use the same limit. Therefore the quota admits this process's share of the remaining calls: its
    share of the calls that were used before the last reset. After a reset, until the next report, the quota admits as
    many attempts as the destination has accepted from this process before.

    Attributes:
        limits: whether attempts must wait for :meth:`wait`.
        in_flight: returns the number of attempts in flight, including the attempt that reports.
        is_exhausted: whether no call remained according to the last report.
        until: the time of ``clock`` at which the limit is reset.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self.limits = self.is_exhausted = False
        self.in_flight: Callable[[], int] = lambda: 1
        self._clock = clock
        self._wall = wall
        self._begun = self._reported = 0
        #: The number of remaining calls in the latest report.
        self._said = 0.0
        self._name, self._counts_calls = "", True
        self._left = self.until = math.inf
        #: The longest time until a reset that was reported for the limit, in seconds.
        self._period = 0.0
        #: Attempts since the last reset that the destination has not rejected.
        self._accepted = 0
        #: The largest and the smallest reported number of remaining calls since the last reset.
        self._most, self._least = 0.0, math.inf
        #: This process's share of the calls that the destination accepted before the last reset.
        self._share = 1.0
        self._again: deque[asyncio.Future[None]] = deque()
        self._first: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> int:
        """Count the start of an attempt, and return its number."""
        self._begun += 1
        self._left -= 1
        self._accepted += 1
        return self._begun

    def report(self, number: int, headers: Any) -> None:
        """Process the headers of an answer.

        Args:
            number: the number of the attempt, from :meth:`begin`.
            headers: the headers, a mapping of names to values.
        """
        known = [limit for limits in reported_limits(lower_case(headers), self._wall) for limit in limits]
        lowest = min(known, key=lambda limit: (_calls_left(limit), -limit.seconds), default=None)
        if lowest is None or (left := _calls_left(lowest)) == math.inf:
            return
        self.is_exhausted = left <= 0
        if number < self._reported and left > self._said:
            return
        self._reported, self._said = max(self._reported, number), left
        if lowest.name != self._name:
            self._name, self._period = lowest.name, 0.0
            self._most, self._least = 0.0, math.inf
        seconds = min(max(0.0, lowest.seconds), LONGEST_PAUSE)
        self._period = max(self._period, seconds)
        self._most, self._least = max(self._most, left), min(self._least, left)
        others = self.in_flight() - 1
        # Without other attempts in flight, no later report could correct a share that is too small.
        least = 1 if left >= 1 and not others else -math.inf
        self._left, self.until = max(least, left * self._share - others), self._clock() + seconds
        self.limits, self._counts_calls = True, lowest.counts_calls
        self._wake()

    def rejected(self) -> None:
        """Count an attempt that the destination has rejected because no call remained."""
        self._accepted -= 1

    def admits(self) -> bool:
        """Return whether an attempt may start now."""
        now = self._clock()
        if self.limits and now >= self.until:
            if self._accepted > 0 and self._most > self._least:
                # The largest number was reported after its own call.
                self._share = min(1.0, self._accepted / (self._most + 1 - self._least))
            self._left, self.until = max(1, self._accepted) if self._counts_calls else math.inf, now + self._period
            self._most, self._least, self._accepted = 0.0, math.inf, 0
            self.limits = self._counts_calls
        return self._left >= 1

    async def wait(self, *, again: bool) -> None:
        """Wait until an attempt can probably start; retries have priority over first attempts.

        Another attempt may start first, so the caller must call :meth:`admits` before the attempt.
        """
        if self.admits():
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._again if again else self._first).append(waiting)
        self._wake()
        await waiting

    def _wake(self) -> None:
        woken = 0
        while (queue := self._again or self._first) and self.admits() and woken < self._left:
            waiting = queue.popleft()
            if not waiting.done():
                waiting.set_result(None)
                woken += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if queue:
            seconds = max(0.001, self.until - self._clock())
            self._timer = asyncio.get_running_loop().call_later(seconds, self._wake)


def _calls_left(limit: ReportedLimit) -> float:
    """Return the number of remaining calls of a limit; infinite if unknown.

    The number of calls that remain of another unit is known only if nothing remains.
    """
    if limit.left is None:
        return math.inf
    return limit.left if limit.counts_calls or limit.left <= 0 else math.inf
