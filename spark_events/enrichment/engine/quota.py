"""Admission of attempts up to the remaining calls that a destination reports in the headers of its answers.

The calls are counted by a :class:`.RemainingCalls` of this process. If the process shares the state of a job, the
driver counts, and leases calls to the process (:class:`.LeasedCalls`).

The user's function passes the headers with ``ctx.read_limits``. Hooks of HTTP clients would need code for each client,
and could not reach a client inside an SDK. In the simulation of ``tests/property/test_adaptive.py``, a limit of 1,000
calls per minute is used to 31 % without the headers, and to 97 % with them. The remaining calls are not spaced until
the reset, because a job with fewer rows than remaining calls would take longer than necessary.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping

from spark_events.enrichment.engine.leased_calls import LeasedCalls
from spark_events.enrichment.engine.limiter import Attempt, Permit
from spark_events.enrichment.engine.rate_headers import reported_limits
from spark_events.enrichment.engine.remaining_calls import QuotaTuning, RemainingCalls, lowest_limit
from spark_events.enrichment.engine.waiting import WaitingAttempts

__all__ = ["ReportedQuota"]


class ReportedQuota:
    """Limiter of attempts by the reported limit; used by the loop's thread only.

    Args:
        clock: monotonic time in seconds.
        wall: seconds since 1970.
        leased: the calls that the driver leases; None: this process counts on its own.
        tuning: constants.

    Attributes:
        loop: the loop that uses this object; None before the first attempt.
    """

    is_timed = False

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        leased: LeasedCalls | None = None,
        tuning: QuotaTuning | None = None,
    ) -> None:
        self._tuning = tuning or QuotaTuning()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._clock = clock
        self._wall = wall
        self._calls: RemainingCalls | LeasedCalls = leased or RemainingCalls(clock)
        if leased is not None:
            leased.on_lease(self._wake)
        self._reserved = 0
        self._waiting: WaitingAttempts[bool] = WaitingAttempts()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def min_wait(self) -> float:
        """Seconds of waiting from which this limiter limits the calls; a lease needs a round trip to the driver."""
        return 0.02 if isinstance(self._calls, LeasedCalls) else 0.001

    @property
    def limits(self) -> bool:
        """Whether a limit is known; attempts must then :meth:`reserve`."""
        return self._calls.limits

    @property
    def cause(self) -> str:
        """The reason for which attempts wait."""
        return "service" if self._waiting else ""

    @property
    def until(self) -> float:
        """Time of ``clock`` until which no call remains; 0 if calls remain."""
        return self._calls.until

    def go_alone(self) -> None:
        """Count in this process, because the driver is unreachable."""
        self._calls = RemainingCalls(self._clock, self._calls.begun)
        self._wake()

    def begin(self) -> int:
        """Count the start of an attempt, and return its number."""
        self.loop = asyncio.get_running_loop()
        return self._calls.begin()

    def end(self, number: int) -> None:
        """Record that an attempt has ended, or is abandoned; may be called again for the same attempt."""
        if self._calls.end(number) and self._waiting:
            self._wake()

    def beat(self) -> None:
        """Report to the driver; called several times per second."""
        if isinstance(self._calls, LeasedCalls):
            self._calls.beat(self._reserved + len(self._waiting))

    def report(self, number: int, headers: Mapping[str, str]) -> None:
        """Process the headers of an answer.

        Args:
            number: the number of the attempt, from :meth:`begin`.
            headers: the headers by lower-case name.
        """
        lowest = lowest_limit(limit for kind in reported_limits(headers, self._wall) for limit in kind)
        if lowest is None:
            return
        pause = self.until
        self._calls.report(number, lowest)
        if self.until > pause + self._tuning.longer_seconds:
            while (waiting := self._waiting.pop()) is not None:
                waiting.set_result(False)
        self._wake()

    def rejected(self) -> bool:
        """Return whether a rejection is due to this limit, because no call remains; if so, count the rejection."""
        return self._calls.rejected()

    def reserve(self) -> bool:
        """Reserve an attempt for the caller if one may start now; attempts that wait start first."""
        if self._waiting or self._calls.room(self._reserved, 1) < 1:
            return False
        self._reserved += 1
        return True

    async def enter(self, attempt: Attempt) -> Permit:
        """Wait until an attempt is reserved, or until the pause has become longer; the permit is then invalid."""
        return _Reservation(self, self.reserve() or await self.wait(again=attempt.overtakes))

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

    def _wake(self) -> None:
        calls = self._calls
        while self._waiting and calls.room(self._reserved, len(self._waiting)) >= 1:
            if (waiting := self._waiting.pop()) is None:
                break
            self._reserved += 1
            waiting.set_result(True)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and calls.reset_at < math.inf:
            later = max(0.001, calls.reset_at - self._clock())
            self._timer = asyncio.get_running_loop().call_later(later, self._wake)


class _Reservation(Permit):
    """Reservation of one attempt."""

    __slots__ = ("_is_reserved", "_quota")

    def __init__(self, quota: ReportedQuota, is_reserved: bool) -> None:
        self._quota = quota
        self._is_reserved = is_reserved

    @property
    def is_valid(self) -> bool:
        return self._is_reserved

    def begin(self) -> None:
        self._quota.redeem()

    def give_back(self) -> None:
        if self._is_reserved:
            self._quota.release()
