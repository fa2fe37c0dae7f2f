"""What happens once a first attempt has failed, or must ask before it is made.

A first attempt that works passes none of this: a retry loop around every call costs more than the pool itself.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from spark_events.enrichment.engine.breaker import DestinationBreaker
from spark_events.enrichment.engine.bulk import Accept
from spark_events.enrichment.engine.calls import Call
from spark_events.enrichment.engine.deadlines import Slot
from spark_events.enrichment.engine.failure import (
    ABANDONED,
    AbandonedError,
    AttemptError,
    EndError,
    NoAnswerError,
    RowFailure,
    failure_of,
    message_of,
    type_of,
)
from spark_events.enrichment.engine.limits import Gate, RateLimit
from spark_events.enrichment.engine.statistics import EngineCounts
from spark_events.enrichment.engine.verdicts import Verdict, verdict_on
from spark_events.enrichment.plan import Plan, Retry

__all__ = ["CallAttempts", "back_off"]

_ONCE = Retry(attempts=1)
_MOST_DOUBLINGS = 64


def back_off(retry: Retry, attempt: int) -> float:
    """Return the pause after an attempt, from 1: doubling from ``initial`` to ``max``, with jitter on top."""
    doubled = retry.initial * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS)
    return min(doubled, retry.max) + random.uniform(0, retry.jitter)


class CallAttempts:
    """Makes the attempts of a call that its worker could not make itself; for the loop's thread alone.

    Args:
        plan: times and the retry policy.
        invoke: one attempt.
        accept: what an attempt returned becomes the answer, or a failure is raised; None: it is the answer.
        gate: passed before each attempt.
        rate: waited for before each attempt.
        breaker: told of each attempt.
        counts: where everything is counted.

    Attributes:
        stopping: whether a cancellation comes from the run's end.
        refusal: why no attempt is worth making any more; None: they are.
    """

    def __init__(
        self,
        plan: Plan,
        invoke: Callable[[Call], Awaitable[Any]],
        accept: Accept | None,
        gate: Gate,
        rate: RateLimit | None,
        breaker: DestinationBreaker | None,
        counts: EngineCounts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.invoke = invoke
        self.accept = accept
        self.gate = gate
        self.rate = rate
        self.breaker = breaker
        self._counts = counts
        self.stopping: Callable[[], bool] = lambda: False
        self.refusal: RowFailure | None = None
        self._clock = clock
        self._policy = plan.retry
        self._retry = plan.retry or _ONCE
        self._timeout = math.inf if plan.timeout is None else plan.timeout
        self._total = math.inf if plan.total_timeout is None else plan.total_timeout

    async def begin(self, slot: Slot) -> RowFailure | None:
        """Waits until the first attempt may be made, and sets its deadline; the failure if it never may."""
        slot.started = self._clock()
        try:
            slot.started += await self._enter(slot, again=False)
        except (EndError, asyncio.CancelledError) as error:
            return failure_of(self._end_of(slot, error), 0, self._clock() - slot.started)
        now = self._clock()
        slot.deadline = min(now + self._timeout, slot.started + self._total)
        return None

    async def heed(self, slot: Slot) -> None:
        """A call is over and was cancelled, though not by the engine: none of that is left for the next row.

        Raises:
            CancelledError: the call has not seen it: it has cancelled itself and returned.
        """
        seen: asyncio.CancelledError | None = None
        while slot.cancelled:
            slot.cancelled = False
            try:
                # What is pending is raised here. Before that nothing may be taken back: Python 3.13 would take it, too.
                await asyncio.sleep(0)
            except asyncio.CancelledError as error:
                seen = error
                if self.stopping() or slot.why is not None:
                    # That was the engine.
                    raise
        slot.uncancel()
        if seen is not None:
            raise seen

    async def after(self, slot: Slot, call: Call, error: BaseException | None) -> Any:
        """The answer, or the failure, of a call whose first attempt went wrong.

        Args:
            slot: the worker that made it.
            call: what it was.
            error: what it raised; None: it returned, but too late.
        """
        await self._forget(slot)
        answer = await self._after(slot, call, error)
        await self._forget(slot)
        if slot.why is not None and not slot.abandoned:
            # It came when everything was over.
            slot.revive()
        return answer

    async def _forget(self, slot: Slot) -> None:
        """As :meth:`heed`, of a call that has failed anyway."""
        if slot.cancelled and slot.why is None and not slot.abandoned and not self.stopping():
            try:
                await self.heed(slot)
            except asyncio.CancelledError:
                if self.stopping():
                    raise

    async def _after(self, slot: Slot, call: Call, error: BaseException | None) -> Any:
        failed = self._failed(slot, error)
        try:
            while isinstance(failed, AttemptError):
                pause = self._pause_after(slot, call, failed.verdict)
                if pause is None:
                    break
                await self._pause(slot, pause)
                if self.stopping():
                    # The worker is about to be cancelled, or the call has made another error of that.
                    raise asyncio.CancelledError
                await self._enter(slot, again=True)
                call.attempt += 1
                self._counts.retries += 1
                try:
                    return await self._once(slot, call)
                except AttemptError as again:
                    failed = again
            raise failed
        except AbandonedError:
            return ABANDONED
        except (AttemptError, EndError, asyncio.CancelledError) as ended:
            return failure_of(self._end_of(slot, ended), call.attempt, self._clock() - slot.started)

    async def _once(self, slot: Slot, call: Call) -> Any:
        counts = self._counts
        slot.attempted = now = self._clock()
        slot.deadline = min(now + self._timeout, slot.started + self._total)
        counts.begin()
        failed: BaseException | None = None
        answer: Any = None
        try:
            answer = await self.invoke(call)
            if slot.cancelled and slot.why is None:
                await self.heed(slot)
            if self.accept is not None and slot.why is None:
                answer = self.accept(call, answer, slot.started)
        except BaseException as error:
            failed = self._failed(slot, error)
        else:
            if slot.why is not None:
                failed = self._failed(slot, None)
        if failed is not None:
            raise failed
        slot.deadline = math.inf
        counts.end(self._clock() - now)
        self.answered(slot)
        return answer

    def answered(self, slot: Slot) -> None:
        """An attempt was answered: the gate and the breaker may know."""
        if self.breaker is not None:
            self.breaker.succeeded()
        self.leave(slot, answered=True)

    def _failed(self, slot: Slot, error: BaseException | None) -> BaseException:
        """What the end of an attempt means; counts it, and tells the gate and the breaker."""
        if slot.abandoned:
            return AbandonedError()
        if error is not None and slot.why is None and isinstance(error, asyncio.CancelledError) and self.stopping():
            self.leave(slot)
            return error
        took = self._clock() - slot.attempted
        self._counts.end(took)
        why = slot.why
        slot.revive()
        if why is not None and error is None:
            self._counts.swallowed += 1
        if why == "down":
            self.leave(slot)
            return self.refused()
        if why == "timeout":
            error = self._no_answer(slot, took)
        assert error is not None
        if isinstance(error, asyncio.CancelledError):
            error = _explained(error)
        try:
            error, verdict = verdict_on(error, self._policy)
        except BaseException as broken:
            # The user's `on` raised: that is what is to be seen, not what it was asked about. SystemExit, too: it would
            # end the worker, and the row be waited for for ever.
            error, verdict = broken, Verdict(retryable=False)
        self._tell(slot, error, verdict)
        return AttemptError(error, verdict)

    def refused(self) -> EndError:
        """Why a call is ended though it had time left: there is a :attr:`refusal`."""
        assert self.refusal is not None
        return EndError(self.refusal.kind, self.refusal.message)

    def _no_answer(self, slot: Slot, took: float) -> BaseException:
        whole = slot.attempted + took - slot.started
        if took + 0.001 < self._timeout and whole + 0.001 >= self._total:
            return NoAnswerError(f"no answer within {self._total:g} s (total_timeout)")
        return NoAnswerError(f"no answer within {self._timeout:g} s (timeout)")

    def _tell(self, slot: Slot, error: BaseException, verdict: Verdict) -> None:
        counts = self._counts
        counts.timeouts += verdict.timeout
        counts.throttled += verdict.throttled
        if verdict.retry_after is not None and self._retry.honor_retry_after:
            # All that are in flight may be refused together: that is one closing.
            counts.gate_closed += self.gate.close(verdict.retry_after, crowded=True)
        if self.breaker is not None:
            if verdict.outage:
                self.breaker.failed(f"{type_of(error)}: {message_of(error)}", self.gate)
            elif verdict.answered:
                self.breaker.succeeded()
        self.leave(slot, answered=verdict.answered)

    def leave(self, slot: Slot, *, answered: bool = False) -> None:
        """Gives back what the gate gave it: the gate outlives the run, and counts those inside."""
        self.gate.leave(slot.passed, answered=answered)
        slot.passed = 0

    async def _enter(self, slot: Slot, *, again: bool) -> float:
        """Waits for the gate and the rate limit; returns the seconds for which the rate limit held it back.

        Only the gate's time counts against ``total_timeout`` of a call that has not begun: the rate limit is the user's
        own wish.
        """
        final = slot.started + self._total
        held = 0.0
        while True:
            if self.refusal is not None:
                raise self.refused()
            if not self.gate.lets(slot.passed):
                if self.gate.until > final + held:
                    left = self.gate.until - self._clock()
                    raise EndError(
                        "throttled",
                        f"the destination asks to be left alone for another {left:.1f} s, "
                        f"longer than what is left of total_timeout, {self._total:g} s",
                    )
                slot.deadline = final + held
                slot.passed = await self.gate.enter(again=again)
            if self.rate is not None:
                slot.deadline = final if again else math.inf
                before = self._clock()
                await self.rate.wait()
                held += 0.0 if again else self._clock() - before
            slot.deadline = math.inf
            if self.stopping():
                # It was let through when the run was over already, and its row has gone out as failed.
                raise asyncio.CancelledError
            if self.gate.lets(slot.passed):
                return held

    def _pause_after(self, slot: Slot, call: Call, verdict: Verdict) -> float | None:
        """Return the seconds before the next attempt; None: there is none."""
        if not verdict.retryable or call.attempt >= self._retry.attempts:
            return None
        pause = back_off(self._retry, call.attempt)
        asked = verdict.retry_after
        if asked is not None and asked >= pause and self._retry.honor_retry_after:
            # The gate holds it back, and lets those that wait through in their order.
            pause = 0.0
        final = slot.started + self._total
        # A pause that ends behind the last moment is not worth waiting for.
        is_late = self._clock() + pause >= final or (not self.gate.is_open and self.gate.until >= final)
        return None if is_late else pause

    async def _pause(self, slot: Slot, seconds: float) -> None:
        slot.deadline = slot.started + self._total
        await asyncio.sleep(seconds)
        slot.deadline = math.inf

    def _end_of(self, slot: Slot, error: BaseException) -> BaseException:
        """The same, but for a cancellation while it waited: a timeout, the end of the destination, or of the run.

        Or somebody else's: then the row has failed, for without any end it would be waited for for ever.
        """
        if not isinstance(error, asyncio.CancelledError):
            return error
        why = slot.why
        self.leave(slot)
        if why is None and self.stopping():
            raise error
        slot.revive()
        if why is None:
            return AttemptError(_explained(error), Verdict(retryable=False))
        if why == "down":
            return self.refused()
        # No attempt was under way: what ended was the call's time.
        return EndError("timeout", f"no answer within {self._total:g} s (total_timeout)")


def _explained(error: asyncio.CancelledError) -> asyncio.CancelledError:
    """The same; one that says nothing says what it is, where neither the engine's clock nor its end was the reason."""
    if error.args and error.args[0]:
        return error
    said = "cancelled by the function itself, or by other code that runs on the same event loop"
    return asyncio.CancelledError(said).with_traceback(error.__traceback__)
