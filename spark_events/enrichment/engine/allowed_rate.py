"""Estimate of the rate that a destination allows, from the calls that it rejects (429).

A destination that rejects calls answers exactly at its limit. Therefore the answers per second, measured while some
calls are rejected, are the limit. Attempts slightly above the estimate keep it up to date, and cost a few rejections.
If a rejection also causes a pause (``Retry-After``), attempts stay slightly below the estimate and exceed it rarely.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable

from spark_events.enrichment.engine.limits import WaitingAttempts

__all__ = ["AllowedRate"]

#: Most common period of rate limits, in seconds; the first estimate covers one period.
_PERIOD = 1.0
#: Attempts relative to the estimate: if the destination's rejections request no pause, and if they do.
_ABOVE, _BELOW = 1.02, 0.98
#: Factor of the rate after a rejection that requests a pause, provided that most attempts were answered.
_FALLS = 0.96
#: Minimum number of attempts, and maximum number of seconds, between two estimates.
_LEAST_ATTEMPTS, _LONGEST = 10, 15.0
#: Share of rejections above which a new estimate is made early.
_FAR_OFF = 0.25
#: Growth of the rate without rejections: initial factor, and largest factor (a doubling).
_GROWTH, _MOST_GROWTH = 0.05, 1.0
#: If rejections request pauses, seconds without a rejection before the rate grows: initial value, and maximum.
_PATIENCE, _LONGEST_PATIENCE = 15.0, 120.0
_LOWEST = 0.1
#: Minimum number of seconds between the first rejection and the first estimate.
_SETTLES = 0.05
#: Maximum number of attempts that a late timer may start at once, as seconds of the rate.
_CREDIT_SECONDS = 0.02


class AllowedRate:
    """Spacing of attempts once the destination has rejected an attempt; used by the loop's thread only.

    Attributes:
        rate: attempts per second; infinite until the first rejection.
        limits: whether attempts must wait for :meth:`wait`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = math.inf
        self.limits = False
        self._clock = clock
        self._answers = 0
        #: Times and numbers of the answers in the last period.
        self._marks: deque[tuple[float, int]] = deque([(clock(), 0)])
        #: Time until which the engine awaits the answers to the calls that were in flight at the first rejection.
        self._settled = math.inf
        #: Time, answers and attempts at the last estimate, and the number of rejections since then.
        self._estimated, self._answers_then, self._attempts, self._rejections = clock(), 0, 0, 0
        #: Rejections of attempts that began before this time are ignored: the time of the latest rejection, or the end
        #: of the pause that it requested.
        self._since = self._rejected = -math.inf
        self._growth = _GROWTH
        self._pauses = False
        self._patience = _PATIENCE
        self._free = 0.0
        self._waiting: WaitingAttempts[None] = WaitingAttempts()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def lately(self) -> int:
        """Number of answers in the last period."""
        return self._answers - self._marks[0][1]

    def answered(self, answers: int) -> None:
        """Count further answers, and make a new estimate if it is due; called several times per second."""
        now = self._clock()
        self._answers += answers
        if now >= self._settled:
            self._settle(now)
        if now - self._marks[-1][0] > _PERIOD:
            # No task has run since the previous call of this method, so this time shows nothing about the rate.
            self._begin(now)
        if now - self._marks[-1][0] >= _PERIOD / 20:
            self._marks.append((now, self._answers))
            while len(self._marks) > 1 and self._marks[1][0] <= now - _PERIOD and self._settled == math.inf:
                self._marks.popleft()
        if self.rate == math.inf:
            return
        elapsed = now - self._estimated
        is_far_off = self._rejections > _FAR_OFF * self._attempts >= 1 and elapsed >= _PERIOD / 2
        if is_far_off or elapsed >= min(max(_PERIOD, _LEAST_ATTEMPTS / self.rate), _LONGEST):
            self._estimate(now)

    def rejected(self, began: float, asked: float, latency: float) -> None:
        """Process a rejection.

        Args:
            began: the time at which the rejected attempt began.
            asked: seconds for which the destination asks to pause; all attempts pause for this time. 0: no pause.
            latency: the usual latency in seconds; 0 if unknown.
        """
        now = self._clock()
        if began < self._since or self._settled < math.inf:
            self._pauses |= asked > 0
            return
        self._rejections += 1
        self._rejected = max(self._rejected, now + asked)
        if self.rate == math.inf:
            self._pauses |= asked > 0
            self._settled = self._free = now + max(_SETTLES, 1.5 * latency)
            self.limits = True
        elif asked:
            self._pauses = True
            self._estimate(now)
            self._since = self._free = now + asked

    def _settle(self, now: float) -> None:
        """Make the first estimate, from the answers in the period before the first rejection."""
        self._settled = math.inf
        self._since = now
        self.limits = self.lately > 0
        if not self.limits:
            # Other clients have used up the limit, so rows wait for their own back-off.
            self._growth, self._patience = _MOST_GROWTH, _PERIOD
            return
        self.rate = self.lately / _PERIOD * (_BELOW if self._pauses else 1)
        self._free = max(self._marks[0][0], self._rejected - _PERIOD) + _PERIOD
        self._begin(max(now, self._free))

    def _estimate(self, now: float) -> None:
        got, elapsed = self._answers - self._answers_then, now - self._estimated
        if self._rejections and got and elapsed >= _PERIOD / 2:
            measured = got / elapsed
            if self._pauses and measured > 0.5 * self.rate:
                # Most attempts were answered, so the rate was nearly right. The number of answers per second does not
                # show the allowed rate, because the pause has lowered that number.
                self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
                self.rate *= _FALLS
            else:
                self.rate = min(self.rate, measured * (_BELOW if self._pauses else _ABOVE))
            self._growth = _GROWTH
        elif self._rejections and elapsed > 0:
            self.rate *= _BELOW if got else 0.5
            self._growth = _GROWTH if got else _MOST_GROWTH
        elif self._attempts > 0.8 * self.rate * elapsed and (not self._pauses or now - self._rejected > self._patience):
            self.rate *= 1 + self._growth
            self._growth = min(2 * self._growth, _MOST_GROWTH)
        elif self._pauses and self._attempts > 0.5 * self.rate * elapsed:
            # The next estimate covers the time after the latest rejection, but not a time with few attempts.
            return
        self.rate = max(self.rate, _LOWEST)
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._estimated, self._answers_then, self._attempts, self._rejections = now, self._answers, 0, 0
        self._since = max(self._since, now)

    async def wait(self, *, again: bool) -> None:
        """Wait until an attempt may start; retries have priority over first attempts."""
        waiting = self._waiting.add(again=again)
        if self._timer is None:
            self._grant()
        await waiting

    def _grant(self) -> None:
        self._timer = None
        now = self._clock()
        while self._free <= now and (waiting := self._waiting.pop()) is not None:
            waiting.set_result(None)
            self._attempts += 1
            self._free = max(self._free, now - _CREDIT_SECONDS) + 1 / self.rate
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(max(0.001, self._free - now), self._grant)
