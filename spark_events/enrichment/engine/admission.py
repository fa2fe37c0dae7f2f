"""Admission of attempts: the gate, the limits that a destination reports or enforces, and the limits of the job."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import Any

from spark_events.enrichment.engine.allowed_rate import AllowedRate
from spark_events.enrichment.engine.deadlines import Slot
from spark_events.enrichment.engine.failure import AttemptError, EndError
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.limits import Gate, RateLimit
from spark_events.enrichment.engine.quota import ReportedQuota
from spark_events.enrichment.engine.run import EngineRun
from spark_events.enrichment.engine.shared_window import SharedWindow
from spark_events.enrichment.engine.verdicts import Verdict
from spark_events.enrichment.engine.window import Window

__all__ = ["Admission"]

#: If an attempt waits for the rate at least this long, in seconds, the rate counts as the factor that limits the calls
#: in flight.
_NO_WAIT = 0.001
#: The same threshold for the wait for a lease, which includes a round trip to the driver.
_LEASE_WAIT = 0.02


class Admission:
    """Waits before the attempts of one run, and permissions of the attempts; used by the loop's thread only.

    Args:
        run: the run, whose attempts wait.
        gate: admits or delays each attempt.
        rate: awaited before each attempt; None: no limit.
        allowed: receives rejections because of the rate; after the first rejection, spaces the attempts.
        quota: delays attempts while all remaining calls of the destination are in flight or used.
        window: learns that something else limits the calls in flight.
        share: awaited before each attempt; None: the job has no limits.
    """

    def __init__(
        self,
        run: EngineRun,
        gate: Gate,
        rate: RateLimit | None,
        allowed: AllowedRate,
        quota: ReportedQuota,
        window: Window | SharedWindow,
        share: JobShare | None = None,
    ) -> None:
        self.gate = gate
        self.rate = rate
        self.share = share
        self.allowed = allowed
        self.quota = quota
        self.window = window
        self._run = run
        self._noted = 0

    @property
    def delay(self) -> str:
        """The cause for which attempts wait, as in :func:`.statistics.counted`; "" if they do not wait."""
        if self.allowed.limits or not self.gate.is_open or self.quota.delays:
            return "service"
        if self.share is not None and self.share.lacking:
            return self.share.lacking
        return "" if self.rate is None else "rate_limit"

    async def enter(self, slot: Slot, *, again: bool, overtakes: bool = False) -> float:
        """Wait for the gate, the quota and the rate limits.

        Before the first attempt, only the wait for the gate counts against ``total_timeout``.

        Args:
            slot: the worker.
            again: whether the attempt is a retry.
            overtakes: whether the attempt has priority over first attempts.

        Returns:
            The seconds of waiting that do not count.
        """
        final = slot.started + self._run.total
        held, is_spaced = 0.0, False
        while True:
            if self._run.refusal is not None:
                self.release(slot)
                raise self._run.refused()
            if not self.gate.lets(slot.passed):
                self.release(slot)
                self.window.is_idle = True
                self._check_pause(self.gate.until, final + held)
                slot.deadline = final + held
                slot.passed = await self.gate.enter(again=overtakes)
            slot.deadline = final if again else math.inf
            waited = 0.0
            while self.quota.limits and not slot.is_reserved:
                slot.is_reserved = self.quota.reserve()
                if not slot.is_reserved:
                    self.release(slot)
                    self._check_pause(self.quota.pause_until, final + held + (0.0 if again else waited))
                    waited += await self._timed(self._wait_for_quota(slot, again=overtakes), _NO_WAIT)
            if self.allowed.limits and not is_spaced:
                is_spaced = True
                waited += await self._timed(self.allowed.wait(again=overtakes), _NO_WAIT)
            if self.rate is not None:
                waited += await self._timed(self.rate.wait(), _NO_WAIT)
            if self.share is not None and slot.grant is None:
                waited += await self._timed(self._wait_for_share(slot, self.share, again=overtakes), _LEASE_WAIT)
            held += 0.0 if again else waited
            slot.deadline = math.inf
            if self._run.stopping:
                # The gate has released the call after the run ended; the call's row has already been returned as
                # failed.
                raise asyncio.CancelledError
            if self.gate.lets(slot.passed) and (slot.is_reserved or not self.quota.limits):
                if slot.is_reserved:
                    slot.is_reserved = False
                    self.quota.redeem()
                return held

    def _check_pause(self, until: float, final: float) -> None:
        """Raise an error if a pause that the destination asks for ends after ``final``."""
        if until > final:
            raise EndError(
                "throttled",
                f"the destination asks to wait another {until - self._run.clock():.1f} s, "
                f"longer than the remaining part of total_timeout ({self._run.total:g} s)",
            )

    async def _timed(self, waiting: Awaitable[None], threshold: float) -> float:
        """Wait, and return the seconds.

        If the wait exceeds ``threshold`` seconds, record that the window did not limit the calls in flight.
        """
        before = self._run.clock()
        await waiting
        waited = self._run.clock() - before
        self.window.is_idle |= waited > max(threshold, 0.1 * self.window.latency)
        return waited

    async def _wait_for_quota(self, slot: Slot, *, again: bool) -> None:
        slot.is_reserved = await self.quota.wait(again=again)

    async def _wait_for_share(self, slot: Slot, share: JobShare, *, again: bool) -> None:
        """Wait until the job's limits admit the attempt."""
        try:
            cost = share.cost_of(slot.call())
        except Exception as error:
            self.leave(slot)
            raise AttemptError(error, Verdict(retryable=False)) from error
        slot.grant = await share.wait(cost, again=again)

    def note_answers(self) -> None:
        """Report new answers to the allowed rate."""
        before, self._noted = self._noted, self._run.counts.answers
        self.allowed.answered(self._noted - before)

    def spend(self, slot: Slot, answer: Any) -> None:
        """Count the usage of an answered attempt, and record that the attempt is no longer in flight."""
        share, grant = self.share, slot.grant
        assert share is not None
        assert grant is not None
        slot.grant = None
        counts = self._run.counts
        share.spent(grant, answer, several=self._run.plan.batch_size is not None)
        share.ended()
        counts.usage = share.used
        if share.problem:
            text = f"Budget.usage failed ({share.problem}); the estimate counts instead: correct Budget.usage"
            counts.hints[text] = 1

    def leave(self, slot: Slot, *, answered: bool = False) -> None:
        """Report a finished attempt to the gate and the quota, which outlive the run and count attempts in progress."""
        if slot.grant is not None:
            assert self.share is not None
            self.share.ended()
            slot.grant = None
        if slot.is_reserved:
            slot.is_reserved = False
            self.quota.release()
        if slot.made is not None:
            # An abandoned attempt may run for as long as the process.
            self.quota.end(slot.made.number)
        self.gate.leave(slot.passed, answered=answered)
        slot.passed = 0

    def release(self, slot: Slot) -> None:
        """Release the permissions for an attempt that will not start."""
        if slot.is_reserved:
            slot.is_reserved = False
            self.quota.release()
        if slot.grant is not None:
            assert self.share is not None
            self.share.give_back(slot.grant)
            slot.grant = None
