"""Remaining calls that a destination reports in the headers of its answers.

A report might not include the other attempts in flight, so the quota subtracts them. Answers arrive in any order: a
report of an earlier attempt that contains more remaining calls is out of date, and ignored.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping

from spark_events.enrichment.engine.limits import WaitingAttempts
from spark_events.enrichment.engine.rate_headers import ReportedLimit, reported_limits
from spark_events.enrichment.engine.verdicts import LONGEST_PAUSE

__all__ = ["ReportedQuota"]

#: If a pause becomes longer by more than this, in seconds, waiting attempts compare it with their time limits again.
_LONGER = 1.0


class ReportedQuota:
    """Admission of attempts up to the number of remaining calls; used by the loop's thread only.

    Other processes may use the same limit. Therefore the quota admits this process's share of the remaining calls: its
    share of the calls that were used before the last reset. After a reset, until the next report, the attempts in
    flight have a bound: the number of attempts that the destination had accepted before the reset or, if larger, this
    process's share of the largest report. The bound grows with each ended attempt, as in TCP's slow start, because some
    services report a limit only with rejections.

    Attributes:
        limits: whether a limit is known; attempts must then call :meth:`reserve`.
        loop: the loop that uses this object.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self.limits = False
        self.loop = asyncio.get_running_loop()
        self._clock = clock
        self._wall = wall
        self._begun = self._reserved = 0
        self._in_flight: set[int] = set()
        #: The number of the latest attempt that has reported, and the number of remaining calls.
        self._reported, self._left = 0, math.inf
        #: The time of the next reset; infinite if unknown.
        self._reset_at = math.inf
        self._name = ""
        self._counts_calls = True
        #: The largest and the smallest reported number of remaining calls since the last reset.
        self._high, self._low = 0.0, math.inf
        #: Attempts since the last reset that the destination has not rejected.
        self._accepted = 0
        #: Reports since the last reset, except those of rejected attempts. Reports of attempts that began before the
        #: reset count too, because the reported numbers include these attempts.
        self._reports = 0
        self._share = 1.0
        self._waiting: WaitingAttempts[bool] = WaitingAttempts()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def delays(self) -> bool:
        """Whether attempts wait."""
        return bool(self._waiting)

    @property
    def pause_until(self) -> float:
        """Time of ``clock`` until which no call remains; 0 if calls remain."""
        return self._reset_at if self._left < 1 else 0.0

    def begin(self) -> int:
        """Count the start of an attempt, and return its number."""
        self._begun += 1
        self._accepted += 1
        self._in_flight.add(self._begun)
        return self._begun

    def end(self, number: int) -> None:
        """Record that an attempt has ended, or is abandoned; may be called again for the same attempt."""
        if number in self._in_flight:
            self._in_flight.remove(number)
            self._left += self._reset_at == math.inf
            if self.delays:
                self._wake()

    def report(self, number: int, headers: Mapping[str, str]) -> None:
        """Process the headers of an answer.

        Args:
            number: the number of the attempt, from :meth:`begin`.
            headers: the headers by lower-case name.
        """
        limits = [limit for kind in reported_limits(headers, self._wall) for limit in kind]
        lowest = min(limits, key=lambda limit: (_calls_left(limit), -limit.seconds), default=None)
        if lowest is None or (left := _calls_left(lowest)) == math.inf:
            return
        if self._clock() >= self._reset_at:
            self._reset()
        if lowest.name != self._name:
            self._name, self._counts_calls = lowest.name, lowest.counts_calls
            self._high, self._low, self._reports = 0.0, math.inf, 0
        self._high = max(self._high, left)
        self._reports += 1
        if number < self._reported and left > self._left:
            return
        self._low = min(self._low, left)
        pause = self.pause_until
        self._reported, self._left, self.limits = max(self._reported, number), left, True
        self._reset_at = self._clock() + min(max(0.0, lowest.seconds), LONGEST_PAUSE)
        if self.pause_until > pause + _LONGER:
            while (waiting := self._waiting.pop()) is not None:
                waiting.set_result(False)
        self._wake()

    def rejected(self) -> bool:
        """Return whether a rejection is due to this limit, because no call remains; if so, count the rejection."""
        is_exhausted = self.pause_until > self._clock()
        self._accepted -= is_exhausted
        self._reports -= is_exhausted
        return is_exhausted

    def reserve(self) -> bool:
        """Reserve an attempt for the caller if one may start now; attempts that wait start first."""
        if self.delays or self._room() < 1:
            return False
        self._reserved += 1
        return True

    async def wait(self, *, again: bool) -> bool:
        """Wait until an attempt is reserved for the caller; retries have priority over first attempts.

        Returns:
            False if no attempt is reserved, because the pause has become longer.
        """
        return await self._waiting.wait(again=again, admit=self._wake, undo=self._give_back)

    def redeem(self) -> None:
        """Use a reservation, immediately before :meth:`begin`."""
        self._reserved -= 1

    def release(self) -> None:
        """Give a reservation back, because the attempt does not start."""
        self._reserved -= 1
        self._wake()

    def _give_back(self, is_reserved: bool) -> None:
        if is_reserved:
            self.release()

    def _room(self) -> float:
        """Return the number of attempts that may start now."""
        if self._clock() >= self._reset_at:
            self._reset()
        others = len(self._in_flight) + self._reserved
        if self._reset_at == math.inf:
            return self._left - others
        # If nothing is in flight, no report would correct a share that is too small.
        least = 1.0 if self._left >= 1 and not others else -math.inf
        return max(least, self._left * self._share - others)

    def _reset(self) -> None:
        if self._high > self._low and self._reports > 0:
            # The largest report already excludes its own call; add it.
            self._share = min(1.0, self._reports / (self._high + 1 - self._low))
        most = max(1, self._accepted, self._high * self._share)
        self._left, self._reset_at = most if self._counts_calls else math.inf, math.inf
        self._high, self._low, self._accepted, self._reports = 0.0, math.inf, 0, 0
        self.limits = self._counts_calls

    def _wake(self) -> None:
        while self._waiting and self._room() >= 1 and (waiting := self._waiting.pop()) is not None:
            self._reserved += 1
            waiting.set_result(True)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self._reset_at < math.inf:
            self._timer = self.loop.call_later(max(0.001, self._reset_at - self._clock()), self._wake)


def _calls_left(limit: ReportedLimit) -> float:
    """Return the number of remaining calls of a limit; infinite if unknown.

    For a limit in another unit, such as tokens, the number is known only if it is 0.
    """
    if limit.left is None:
        return math.inf
    return limit.left if limit.counts_calls or limit.left <= 0 else math.inf
