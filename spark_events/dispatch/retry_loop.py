"""Calls to a reporter's methods; each call is retried until it succeeds or the deadline passes."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

import tenacity

from spark_events.dispatch.breaker import Breaker, BreakerState
from spark_events.dispatch.calls import Call, asked_pause, begin, end, made
from spark_events.dispatch.config import DeliveryConfig
from spark_events.errors import PermanentError
from spark_events.loops import wait_for
from spark_events.reporters.reporter import Reporter

_LOG = logging.getLogger(__name__)

#: Reason for dropped events when the deadline leaves no time for a retry.
SHUTDOWN = "shutdown"
#: Time limit for a call to the constructor, in seconds. The first call, during startup, has no limit.
_MAKING_SECONDS = 30.0
#: Number of consecutive attempts without an answer after which a destination counts as dead. A single such attempt may
#: be due to a lost connection.
_DEAD_AFTER = 2
#: The longest pause between two attempts during a drain, in seconds.
_HURRIED_PAUSE = 1.0


class RetryLoop:
    """Make the attempts of one worker, sequentially.

    Only the worker's thread may use this object, unless a method states otherwise. After a first failure, the tenacity
    library retries with jitter. A permanent error drops the events, a throttled error requests a pause, and any other
    error is transient. An attempt that exceeds its timeout is cancelled. An attempt that blocks the thread cannot be
    cancelled; see :meth:`abandon`.

    Args:
        name: the reporter's name in the configuration.
        config: batch sizes, timeouts and retry intervals.
        breaker: the reporter's circuit breaker, which attempts on other threads may also change.
        work: the event that wakes the worker for new events and for a stop.
        wake: sets ``work``; thread-safe.
        describe: returns an error as a string, with secrets hidden.
        on_failure: called after each failed attempt.

    Attributes:
        busy_since: when the current call began, in seconds of ``time.monotonic``; None between calls.
        patience: how long the current call may take, in seconds.
        in_failure: whether the last attempt failed.
        asks_for_pause: whether the destination throttled the last attempt.
        rejected: how many events the last call permanently rejected; None if the error stated no number.
        abandoned: whether the delivery has abandoned this thread.
        is_draining: whether a drain has begun.
    """

    def __init__(
        self,
        name: str,
        config: DeliveryConfig,
        breaker: Breaker,
        work: asyncio.Event,
        wake: Callable[[], None],
        describe: Callable[[BaseException], str],
        on_failure: Callable[[], None],
    ) -> None:
        self.busy_since: float | None = None
        self.patience = config.timeout
        self.in_failure = False
        self.rejected: int | None = None
        self.abandoned = False
        self._name = name
        self._config = config
        self._breaker = breaker
        self._work = work
        self._wake = wake
        self._describe = describe
        self._on_failure = on_failure
        self._deadline = float("inf")
        self._slow = False
        self.is_draining = False
        # Number of consecutive failed attempts without an answer; a request for a pause counts as an answer.
        self._unanswered = 0
        self.asks_for_pause = False
        # Number of further attempts that may fail before the loop stops retrying; None for no limit.
        self._failures_left: int | None = None
        self._wait = tenacity.wait_exponential(multiplier=config.retry_initial, max=config.retry_max)
        self._jitter = min(config.retry_initial, config.retry_max)
        # Use a separate random generator, so that the random numbers of the user's program stay reproducible.
        self._random = random.Random()

    @property
    def is_over(self) -> bool:
        """Whether no further attempts are made."""
        return self.abandoned or self._failures_left == 0 or time.monotonic() >= self._deadline

    @property
    def is_dead(self) -> bool:
        """Whether the destination counts as dead.

        A destination counts as dead while its breaker is not closed, or after several consecutive attempts without an
        answer. A destination that requests a pause counts as alive.
        """
        is_paused = self._breaker.state is not BreakerState.CLOSED and not self.asks_for_pause
        return is_paused or self._unanswered >= _DEAD_AFTER

    def end_with_next_failure(self) -> None:
        """Stop retrying after the next failed attempt; an attempt in progress counts.

        Called on another thread.
        """
        self._failures_left = 1
        self._wake()

    def begin_drain(self) -> None:
        """Begin to drain: end pauses early, to use the time for attempts.

        Any thread may call this method.
        """
        self.is_draining = True
        self._wake()

    def end_by(self, deadline: float) -> None:
        """Stop retrying at the deadline, and end pauses early.

        Any thread may call this method.

        Args:
            deadline: in seconds of ``time.monotonic``.
        """
        self._deadline = deadline
        self.begin_drain()

    def abandon(self) -> None:
        """Abandon the worker's thread and ignore its results.

        Called on another thread.
        """
        self.abandoned = True
        self.end_by(0.0)

    def make(self, constructor: Callable[[], Reporter], loop: asyncio.AbstractEventLoop) -> Reporter | None:
        """Create the reporter, with retries; return None if the deadline passes.

        The constructor runs in the worker's thread, so that it cannot block other reporters. As during startup, the
        constructor runs outside the event loop. An error raised by the constructor drops no events.

        Args:
            constructor: creates the reporter.
            loop: the worker's event loop; it runs only during the pauses.
        """
        try:
            return tenacity.Retrying(
                sleep=lambda seconds: loop.run_until_complete(self._pause(seconds)),
                wait=self._backoff,
                retry=tenacity.retry_if_exception_type(Exception),
                stop=lambda _: self.is_over,
                reraise=True,
            )(self._made, constructor)
        except Exception:
            if not self.is_over:
                raise
            return None

    def _made(self, constructor: Callable[[], Reporter]) -> Reporter:
        self.patience = max(_MAKING_SECONDS, self._config.timeout)
        self.busy_since = time.monotonic()
        try:
            return made(constructor)
        except Exception as error:
            self._note_failure("cannot create a replacement reporter", error)
            raise
        finally:
            self.busy_since = None
            self.patience = self._config.timeout

    async def call_with_retry(self, call: Call, verb: str, *, proves: bool) -> str | None:
        """Repeat a call until it succeeds, is rejected or the deadline passes.

        Args:
            call: calls the reporter's method.
            verb: the words with which the log describes a failure of this method.
            proves: whether success closes the breaker even if the previous attempt did not fail.

        Returns:
            None on success; otherwise ``rejected`` or ``shutdown``.
        """
        self.rejected = None
        if self._breaker.state is BreakerState.OPEN:
            await self._pause(self._breaker.pause())
        try:
            try:
                await self._try(call, verb)
            except PermanentError:
                raise
            except Exception as error:
                await self._retry(call, verb, error)
        except PermanentError as error:
            # The destination answered, so it is available; it rejects only these events.
            self._breaker.succeeded()
            self._note_answer()
            self.rejected = error.rejected if isinstance(error.rejected, int) else None
            _LOG.error("reporter %s: %s; dropping the rejected events: %s", self._name, verb, self._describe(error))
            self._on_failure()
            return "rejected"
        except Exception:
            if not self.is_over:
                raise
            # This failed attempt is already counted and logged.
            return SHUTDOWN
        if self._breaker.failures and (proves or self.in_failure) and not self._slow:
            self._breaker.succeeded()
        self._note_answer()
        if self.in_failure:
            self.in_failure = False
            _LOG.warning("reporter %s: works again", self._name)
        return None

    def _note_answer(self) -> None:
        self._unanswered = 0
        self.asks_for_pause = False
        self._failures_left = None

    async def _try(self, call: Call, verb: str) -> None:
        """Make one attempt; count and log a transient failure before raising its error."""
        if self._breaker.state is BreakerState.OPEN:
            self._breaker.attempt()
        try:
            await self.call_once(call)
        except PermanentError:
            raise
        except Exception as error:
            self.asks_for_pause = asked_pause(error) is not None
            self._unanswered = 0 if self.asks_for_pause else self._unanswered + 1
            if self._failures_left:
                self._failures_left -= 1
            self._breaker.failed(self._note_failure(verb, error))
            raise

    async def _retry(self, call: Call, verb: str, first: Exception) -> None:
        pending: list[Exception] = [first]

        async def again() -> None:
            if pending:
                raise pending.pop()
            await self._try(call, verb)

        await tenacity.AsyncRetrying(
            sleep=self._pause,
            wait=self._pause_after,
            retry=tenacity.retry_if_not_exception_type(PermanentError),
            stop=lambda _: self.is_over,
            reraise=True,
        )(again)

    async def call_once(self, call: Call) -> None:
        """Make one attempt without retries."""
        self.busy_since = time.monotonic()
        self._slow = False
        try:
            # A synchronous method has finished when it returns, so there is nothing to await or to cancel.
            if (rest := begin(call)) is not None:
                await asyncio.wait_for(end(rest), self._config.timeout)
        except asyncio.CancelledError as error:
            # The dispatcher never cancels a delivery, so this cancellation comes from the reporter.
            raise RuntimeError("cancelled by the reporter itself") from error
        finally:
            took = time.monotonic() - self.busy_since
            self.busy_since = None
        if took > self._config.timeout and not self.abandoned:
            # The call blocked the event loop, so the timeout could not cancel it. The call succeeded but counts as a
            # timeout.
            self._slow = True
            self._on_failure()
            self._breaker.failed(f"an attempt took {took:.1f} s, its timeout is {self._config.timeout:g} s")

    def _note_failure(self, verb: str, error: Exception) -> str:
        """Count a failure, and log the first of consecutive failures; return the reason."""
        why = self._describe(error)
        if not self.in_failure and not self.abandoned:
            self.in_failure = True
            _LOG.error("reporter %s: %s; holding its events and retrying: %s", self._name, verb, why)
        # Log the reason before counting the failure, so that the log explains every change of the counter.
        self._on_failure()
        return why

    def _pause_after(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = None if error is None else asked_pause(error)
        # A requested pause never shortens the backoff; a requested time in the past is ignored.
        return max(self._backoff(state), asked or 0.0, self._breaker.pause())

    def _backoff(self, state: tenacity.RetryCallState) -> float:
        return self._wait(state) + self._random.uniform(0, self._jitter)

    async def _pause(self, seconds: float) -> None:
        """Pause for this time, or until a drain begins."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            # Clear the signal before checking for a drain, so that a notification after the check ends the wait.
            self._work.clear()
            if self.is_draining:
                break
            await wait_for(self._work, left)
        if self.is_draining and seconds > 0:
            left = self._deadline - time.monotonic()
            await asyncio.sleep(max(0.0, min(seconds, self._config.retry_initial, _HURRIED_PAUSE, left)))
