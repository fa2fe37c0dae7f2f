"""Attempts after a failed first attempt.

A successful first attempt does not use this module, because a retry loop around every call would cost more than the
pool.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

from spark_events.enrichment.engine.admission import Admission
from spark_events.enrichment.engine.back_off import back_off, doubled, spread
from spark_events.enrichment.engine.bulk import Accept
from spark_events.enrichment.engine.calls import Call
from spark_events.enrichment.engine.failure import (
    ABANDONED,
    AbandonedError,
    AttemptError,
    EndError,
    NoAnswerError,
    RowFailure,
    failure_of,
)
from spark_events.enrichment.engine.feedback import Feedback
from spark_events.enrichment.engine.invoke import Invoke
from spark_events.enrichment.engine.places import Places
from spark_events.enrichment.engine.run import EngineRun
from spark_events.enrichment.engine.timeouts import Runner
from spark_events.enrichment.engine.verdicts import Verdict, verdict_on
from spark_events.enrichment.settings import Retry

__all__ = ["CallAttempts"]

_ONCE = Retry(attempts=1)


class CallAttempts:
    """All attempts except those that a runner of the pool makes itself; used by the loop's thread only.

    Args:
        run: the run with its timeouts and its retry policy.
        invoke: makes one attempt.
        accept: converts the result of an attempt to the answer, or raises an exception; None: the result is the answer.
        admission: delays the attempts.
        feedback: receives the outcome of each attempt.
        places: the places of the window, which a call lends while it waits for ``Retry-After``.
    """

    def __init__(
        self,
        run: EngineRun,
        invoke: Invoke,
        accept: Accept | None,
        admission: Admission,
        feedback: Feedback,
        places: Places,
    ) -> None:
        self.invoke = invoke
        self.accept = accept
        self.admission = admission
        self.feedback = feedback
        self.places = places
        self._run = run
        self._tuning = run.tuning.back_off
        self._retry = run.plan.retry or _ONCE

    async def begin(self, runner: Runner) -> RowFailure | None:
        """Wait until the first attempt may start, and set when it expires; return a failure if it will never start."""
        runner.started = self._run.clock()
        try:
            runner.started += await self.admission.enter(runner, again=False)
        except (EndError, AttemptError, asyncio.CancelledError) as error:
            return failure_of(self._end_of(runner, error), 0, self._run.clock() - runner.started)
        now = self._run.clock()
        runner.expires = min(now + self._run.timeout, runner.started + self._run.total)
        return None

    async def heed(self, runner: Runner) -> None:
        """Clear a cancellation that did not come from the engine, so that it does not affect the runner's next row.

        Raises:
            CancelledError: when the cancellation is still pending, because the call cancelled its own task and
                returned.
        """
        seen: asyncio.CancelledError | None = None
        while runner.cancelled:
            runner.cancelled = False
            try:
                # This raises a pending cancellation. Call uncancel() only afterwards, because in Python 3.13 uncancel()
                # also removes a pending cancellation.
                await asyncio.sleep(0)
            except asyncio.CancelledError as error:
                seen = error
                if self._run.stopping or runner.why is not None:
                    # The engine has cancelled the call in the meantime.
                    raise
        runner.uncancel()
        if seen is not None:
            raise seen

    async def after(self, runner: Runner, call: Call, error: BaseException | None) -> Any:
        """Return the answer or the failure of a call whose first attempt failed.

        Args:
            runner: the runner that made the attempt.
            call: the call.
            error: the exception that the attempt raised; None: the attempt returned a result, but too late.
        """
        await self._forget(runner)
        answer = await self._after(runner, call, error)
        await self._forget(runner)
        if runner.why is not None and not runner.abandoned:
            # The call had already ended when the engine cancelled it.
            runner.revive()
        return answer

    async def _forget(self, runner: Runner) -> None:
        """Clear a cancellation like :meth:`heed`, for a call that has already failed."""
        if runner.cancelled and runner.why is None and not runner.abandoned and not self._run.stopping:
            try:
                await self.heed(runner)
            except asyncio.CancelledError:
                if self._run.stopping:
                    raise

    async def _after(self, runner: Runner, call: Call, error: BaseException | None) -> Any:
        # Read the number before the attempt counts, because the attempt may have answered some rows of the call.
        used, answers = 0, self._run.counts.answers
        failed = self._failed(runner, error)
        try:
            while isinstance(failed, AttemptError):
                used += not failed.verdict.throttled
                pause = self._pause_after(runner, call, failed.verdict, used)
                if pause is None:
                    break
                verdict = failed.verdict
                await self._pause(runner, pause, lends=verdict.retry_after is not None or verdict.exceeds_rate)
                if self._run.stopping:
                    # The runner is about to be cancelled, or the call has turned its cancellation into another error.
                    raise asyncio.CancelledError
                overtakes = call.attempt < self._tuning.overtaking_attempts or not failed.verdict.exceeds_rate
                await self.admission.enter(runner, again=True, overtakes=overtakes)
                call.attempt += 1
                self._run.counts.retries += 1
                try:
                    return await self._once(runner, call)
                except AttemptError as again:
                    failed = again
            raise failed
        except AbandonedError:
            return ABANDONED
        except (AttemptError, EndError, asyncio.CancelledError) as ended:
            last, elapsed = self._end_of(runner, ended), self._run.clock() - runner.started
            if isinstance(failed, AttemptError) and failed.verdict.throttled:
                if isinstance(last, EndError) and last.kind == "timeout":
                    # The call waited because the destination had rejected it, so report the rejection as the reason.
                    last = failed
                breaker, longest = self.feedback.destination.breaker, self._tuning.give_up_ratio * self._run.total
                if breaker is not None and self._run.counts.answers == answers and elapsed > longest:
                    breaker.give_up(f"it rejected all calls for {elapsed:.0f} s", failed.cause)
            return failure_of(last, call.attempt, elapsed)

    async def _once(self, runner: Runner, call: Call) -> Any:
        counts = self._run.counts
        runner.attempted = now = self._run.clock()
        runner.expires = min(now + self._run.timeout, runner.started + self._run.total)
        counts.begin()
        failed: BaseException | None = None
        answer: Any = None
        try:
            answer = await self.invoke(call)
            for permit in runner.permits.values():
                permit.spend(answer)
            if runner.cancelled and runner.why is None:
                await self.heed(runner)
            if self.accept is not None and runner.why is None:
                answer = self.accept(call, answer, runner.started)
        except BaseException as error:
            failed = self._failed(runner, error)
        else:
            if runner.why is not None:
                failed = self._failed(runner, None)
        if failed is not None:
            raise failed
        runner.expires = math.inf
        counts.end(self._run.clock() - now)
        self.feedback.measure(runner)
        self.answered(runner)
        return answer

    def answered(self, runner: Runner) -> None:
        """Report an answered attempt."""
        self.feedback.answered()
        self.admission.leave(runner, answered=True)

    def abandon(self, runner: Runner) -> None:
        """Report an attempt that may still run, but that the engine no longer waits for."""
        self.admission.leave(runner)
        self.invoke.abandon(runner.call())

    def _failed(self, runner: Runner, error: BaseException | None) -> BaseException:
        """Classify the outcome of an attempt, count the attempt, and report the outcome."""
        if runner.abandoned:
            return AbandonedError()
        if isinstance(error, asyncio.CancelledError) and runner.why is None and self._run.stopping:
            self.admission.leave(runner)
            return error
        took = self._run.clock() - runner.attempted
        self._run.counts.end(took)
        why = runner.why
        runner.revive()
        if why is not None and error is None:
            self._run.counts.swallowed += 1
        if why == "down":
            self._run.counts.unreachable += 1
            self.admission.leave(runner)
            return self._run.refused()
        if why == "timeout":
            error = self._no_answer(runner, took)
        assert error is not None
        if isinstance(error, asyncio.CancelledError):
            error = _explained(error)
        if not isinstance(error, AttemptError):
            try:
                error = AttemptError(*verdict_on(error, self._run.plan.retry))
            except BaseException as broken:
                # The user's `on` raised an error, so report this error instead. Catch SystemExit too, which would end
                # the runner and leave the row without an answer.
                error = AttemptError(broken, Verdict(retryable=False))
        self._record(runner, error)
        return error

    def _no_answer(self, runner: Runner, took: float) -> BaseException:
        whole = runner.attempted + took - runner.started
        if took + 0.001 < self._run.timeout and whole + 0.001 >= self._run.total:
            return NoAnswerError(f"no answer within {self._run.total:g} s (total_timeout)")
        return NoAnswerError(f"no answer within {self._run.timeout:g} s (timeout)")

    def _record(self, runner: Runner, failed: AttemptError) -> None:
        counts, call = self._run.counts, runner.call()
        verdict, is_partial = failed.verdict, failed.is_partial
        counts.timeouts += verdict.timeout
        counts.throttled += verdict.throttled
        counts.partly_throttled += verdict.throttled and is_partial
        counts.unreachable += verdict.unreachable and not is_partial
        call.failed(counts.answers, self._tuning.suspicious_attempts, exceeds_rate=verdict.exceeds_rate)
        self.feedback.failed(runner, failed)
        self.admission.leave(runner, answered=verdict.answered or is_partial)

    def _pause_after(self, runner: Runner, call: Call, verdict: Verdict, used: int) -> float | None:
        """Return the pause in seconds before the next attempt, or None if there is no next attempt.

        Args:
            runner: the runner.
            call: the call.
            verdict: the verdict on its last attempt.
            used: the number of the call's attempts that count; rejections by a busy destination do not count.
        """
        if not verdict.retryable or used >= self._retry.attempts:
            return None
        pause = back_off(self._retry, call.attempt)
        if verdict.throttled and self._run.counts.answers:
            # The destination can accept the call again as soon as other calls are complete.
            latency = self.feedback.destination.window.latency
            busy = spread(latency, self._tuning.busy_jitter) or self._tuning.busy_seconds
            pause = min(pause, doubled(busy, call.vain))
        asked, gate = verdict.retry_after, self.feedback.destination.gate
        if asked is not None and asked >= pause and self._retry.honor_retry_after:
            # A closed gate delays the attempt and releases waiting attempts in order, so no pause is needed.
            pause = asked if gate.is_open else 0.0
        final = runner.started + self._run.total
        # The pause would end after total_timeout, so let the call fail now.
        is_late = self._run.clock() + pause >= final or (not gate.is_open and gate.until >= final)
        return None if is_late else pause

    async def _pause(self, runner: Runner, seconds: float, *, lends: bool) -> None:
        runner.expires = runner.started + self._run.total
        await (self.places.lend(seconds) if lends and seconds else asyncio.sleep(seconds))
        runner.expires = math.inf

    def _end_of(self, runner: Runner, error: BaseException) -> BaseException:
        """Return the error; for a cancellation during a wait, return the error that explains it.

        The engine cancels a wait after a timeout, when the destination is down, and when the run ends. If other code
        cancelled the wait, the row fails; otherwise the row would never be settled.
        """
        if not isinstance(error, asyncio.CancelledError):
            return error
        why = runner.why
        self.admission.leave(runner)
        if why is None and self._run.stopping:
            raise error
        runner.revive()
        if why is None:
            return AttemptError(_explained(error), Verdict(retryable=False))
        if why == "down":
            return self._run.refused()
        # The cancellation interrupted a wait and not an attempt, because total_timeout has passed.
        return EndError("timeout", f"no answer within {self._run.total:g} s (total_timeout)")


def _explained(error: asyncio.CancelledError) -> asyncio.CancelledError:
    """Return a cancellation that has a message.

    A cancellation without a message came from user code, not from the engine.
    """
    if error.args and error.args[0]:
        return error
    message = "cancelled by the function itself, or by other code that runs on the same event loop"
    return asyncio.CancelledError(message).with_traceback(error.__traceback__)
