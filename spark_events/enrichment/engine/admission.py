"""Admission of attempts: each limiter in turn, and the permits that an attempt holds."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from spark_events.enrichment.engine.failure import EndError
from spark_events.enrichment.engine.limiter import Attempt, Limiter
from spark_events.enrichment.engine.run import EngineRun
from spark_events.enrichment.engine.shared_window import SharedWindow
from spark_events.enrichment.engine.timeouts import Runner
from spark_events.enrichment.engine.window import Window

__all__ = ["Admission"]


class Admission:
    """Waits before the attempts of one run; used by the loop's thread only.

    Args:
        run: the run, whose attempts wait.
        limiters: what may delay an attempt, in order.
        window: learns that something else limits the calls in flight.
    """

    def __init__(self, run: EngineRun, limiters: Sequence[Limiter], window: Window | SharedWindow) -> None:
        self.limiters = limiters
        self._run = run
        self._tuning = run.tuning.admission
        self._window = window

    @property
    def cause(self) -> str:
        """The cause for which attempts wait, as in :func:`.statistics.counted`; "" if they do not wait."""
        return next((limiter.cause for limiter in self.limiters if limiter.cause), "")

    async def enter(self, runner: Runner, *, again: bool, overtakes: bool = False) -> float:
        """Wait until all limiters admit the attempt at the same time.

        Args:
            runner: the runner.
            again: whether the attempt is a retry.
            overtakes: whether the attempt has priority over first attempts.

        Returns:
            The seconds of waiting before a first attempt that do not count against ``total_timeout``.
        """
        attempt, untimed = Attempt(runner.call, overtakes), 0.0
        try:
            while (index := self._next(runner)) is not None:
                limiter = self.limiters[index]
                for later in self.limiters[index:]:
                    if (permit := runner.permits.pop(later, None)) is not None:
                        permit.give_back()
                waited = await self._enter(runner, limiter, attempt, untimed, again=again)
                untimed += 0.0 if again or limiter.is_timed else waited
        except BaseException:
            self.give_back(runner)
            raise
        for permit in runner.permits.values():
            permit.begin()
        return untimed

    def _next(self, runner: Runner) -> int | None:
        """Return the index of the first limiter that has not admitted the attempt."""
        for index, limiter in enumerate(self.limiters):
            permit = runner.permits.get(limiter)
            if limiter.limits if permit is None else not permit.is_valid:
                return index
        return None

    async def _enter(self, runner: Runner, limiter: Limiter, attempt: Attempt, untimed: float, *, again: bool) -> float:
        """Wait for one limiter, and return the seconds."""
        run, final = self._run, runner.started + self._run.total + untimed
        if run.refusal is not None:
            raise run.refused()
        if limiter.until > final:
            raise EndError(
                "throttled",
                f"the destination asks to wait another {limiter.until - run.clock():.1f} s, "
                f"longer than the remaining part of total_timeout ({run.total:g} s)",
            )
        runner.expires = final if again or limiter.is_timed else math.inf
        before = run.clock()
        runner.permits[limiter] = await limiter.enter(attempt)
        waited = run.clock() - before
        runner.expires = math.inf
        if run.stopping:
            # The limiter has admitted the call after the run ended; the call's row has already been returned as failed.
            raise asyncio.CancelledError
        self._window.is_idle |= waited > max(limiter.min_wait, self._tuning.min_wait_ratio * self._window.latency)
        return waited

    def leave(self, runner: Runner, *, answered: bool = False) -> None:
        """Report a finished attempt to the limiters that admitted it."""
        while runner.permits:
            runner.permits.popitem()[1].end(answered=answered)

    def give_back(self, runner: Runner) -> None:
        """Return the permits of an attempt that will not start."""
        while runner.permits:
            runner.permits.popitem()[1].give_back()
