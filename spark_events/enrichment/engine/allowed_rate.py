"""Spacing of one process's attempts, once the destination has rejected an attempt because of the rate (429).

The process reports its attempts, answers and rejections to the :class:`.JobRate`, in the driver or in this process,
several times per second, and receives its share of the rate after each change.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Callable

from spark_events.enrichment.engine.job_rate import JobRate, RateReport, RateShare
from spark_events.enrichment.engine.limiter import Attempt, Permit
from spark_events.enrichment.engine.rate_search import AllowedRateTuning
from spark_events.enrichment.engine.waiting import WaitingAttempts

__all__ = ["AllowedRate"]


class AllowedRate:
    """Limiter that spaces attempts evenly at this process's share of the allowed rate.

    Used by the loop's thread only.

    Args:
        clock: monotonic time in seconds.
        tuning: constants of the search.
        holds: whether the first attempts wait for the first share, for a fraction of a second. Not needed if a window
            of the job holds them.

    Attributes:
        limits: whether attempts must wait.
    """

    until, is_timed, min_wait = 0.0, False, 0.001

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        tuning: AllowedRateTuning | None = None,
        *,
        holds: bool = False,
    ) -> None:
        self.limits = holds
        self._clock = clock
        self._tuning = tuning or AllowedRateTuning()
        self._send: Callable[[RateReport], None] | None = None
        self._interval = 0.0
        self._share = RateShare(is_settling=holds)
        #: The time at which the next attempt may start.
        self._free = clock() + self._tuning.connect_seconds
        #: Attempts that began before this time belong to an earlier epoch.
        self._since = -math.inf
        #: The report that is in preparation, time of the last one, and whether an attempt has waited since then.
        self._draft, self._reported, self._has_waited = RateReport(), clock(), False
        #: Whether the process waits for the estimate after a pause.
        self._is_asking = False
        self._waiting: WaitingAttempts[None] = WaitingAttempts()
        self._timer: asyncio.TimerHandle | None = None
        self._permit = _Spaced(self)

    @property
    def cause(self) -> str:
        """The reason for which attempts wait."""
        return "service" if self.limits and self._send is not None else ""

    def connect(self, send: Callable[[RateReport], None]) -> None:
        """Report with this function from now on; :meth:`receive` gets the shares."""
        self._send, self._interval = send, self._tuning.reports.max_interval
        self._report(asks=True)

    def go_alone(self) -> None:
        """Search for the rate in this process, because the driver is unreachable."""
        job = JobRate(self._clock, self._tuning, self._share.rate)
        self._send, self._interval = functools.partial(job.report, 0, send=self.receive), 0.0
        self._report(asks=True)

    def leave(self) -> None:
        """Stop reporting, because the run has ended."""
        self._send = None

    def receive(self, share: RateShare) -> None:
        """Use another share."""
        now = self._clock()
        if share.epoch != self._share.epoch:
            self._since = now
            if share.is_settling:
                # The other processes report before the estimate, too.
                self._reported = -math.inf
        if share.delay:
            self._free = now + share.delay
        self._share, self.limits, self._is_asking = share, share.limits, False
        if self._waiting:
            self._grant_at(now)

    async def enter(self, attempt: Attempt) -> Permit:
        """Wait until the attempt may start; retries have priority over first attempts."""
        waiting = self._waiting.add(again=attempt.overtakes)
        if self._timer is None and not self._is_asking:
            self._grant()
        await waiting
        return self._permit

    def give_back(self) -> None:
        """Let another attempt start in place of one that will not, for example because the gate has closed."""
        now = self._clock()
        self._free = max(self._free - 1 / self._share.rate, now - self._tuning.credit_seconds)
        if self._waiting and not self._is_asking:
            self._grant_at(now)

    def _grant(self) -> None:
        self._timer = None
        now = self._clock()
        if self._share.is_settling and self._free <= now:
            self._is_asking = True
            if self._send is None:
                # The driver does not answer.
                self.receive(RateShare())
            else:
                self._report(asks=True)
            return
        while self._free <= now and (waiting := self._waiting.pop()) is not None:
            waiting.set_result(None)
            self._free = max(self._free, now - self._tuning.credit_seconds) + 1 / self._share.rate
        if self._waiting:
            self._has_waited = True
            self._grant_at(now)

    def _grant_at(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(0.001, self._free - now), self._grant)

    def passed(self, begun: int, answers: int) -> None:
        """Count further attempts and answers; called several times per second."""
        draft = self._draft
        self._draft = draft._replace(begun=draft.begun + begun, answers=draft.answers + answers)
        if self._clock() - self._reported >= self._interval:
            self._report()

    def rejected(self, began: float, asked: float, latency: float) -> None:
        """Process a rejection.

        Args:
            began: the time at which the rejected attempt began.
            asked: seconds for which the destination asks to pause; all attempts pause for this time. 0: no pause.
            latency: the usual latency in seconds; 0 if unknown.
        """
        draft, is_current = self._draft, began >= self._since
        self._draft = draft._replace(
            rejected=draft.rejected + 1,
            current=draft.current + is_current,
            asked=max(draft.asked, asked),
            latency=latency,
        )
        # The first rejection of an epoch may concern all processes.
        if not self._interval or (is_current and not draft.current):
            self._report()

    def _report(self, *, asks: bool = False) -> None:
        if self._send is None:
            return
        now, draft = self._clock(), self._draft
        elapsed = max(now - self._reported, self._interval)
        is_limited = self._has_waited or self._waiting or not elapsed
        wanted = math.inf if is_limited else self._tuning.spare_ratio * draft.begun / elapsed + 1
        self._draft, self._reported, self._has_waited = RateReport(), now, False
        self._send(draft._replace(epoch=self._share.epoch, wanted=wanted, asks=asks))


class _Spaced(Permit):
    """Permission of an attempt that the rate has admitted."""

    __slots__ = ("_allowed",)

    def __init__(self, allowed: AllowedRate) -> None:
        self._allowed = allowed

    def give_back(self) -> None:
        self._allowed.give_back()
