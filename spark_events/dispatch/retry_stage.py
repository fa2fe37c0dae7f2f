"""Stage that repeats a call until it succeeds, is rejected or no time is left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import tenacity

from spark_events.dispatch.breaker_stage import BreakerStage
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.drain import Drain
from spark_events.dispatch.reporter_calls import Call, asked_pause
from spark_events.dispatch.turn import DELIVERED, SHUTDOWN, Settlement
from spark_events.errors import PermanentError
from spark_events.loops import wait_for
from spark_events.reporters.reporter import Reporter

#: The longest pause between two attempts during a drain, in seconds.
_HURRIED_PAUSE = 1.0


class RetryStage:
    """Make the attempts of one reporter's thread, sequentially; only that thread may use this object.

    After a first failure, the tenacity library retries with jitter. A permanent error drops the events, a throttled
    error requests a pause, and any other error is transient.

    Args:
        config: retry intervals.
        drain: a drain ends pauses early.
        is_over: returns whether no further attempts are made.
        work: the event that wakes the thread for new events and for a drain.
        clock: returns monotonic time in seconds.
        following: the next stage.
    """

    def __init__(
        self,
        config: DeliveryConfig,
        drain: Drain,
        is_over: Callable[[], bool],
        work: asyncio.Event,
        clock: Callable[[], float],
        following: BreakerStage,
    ) -> None:
        self._config = config
        self._drain = drain
        self._is_over = is_over
        self._work = work
        self._clock = clock
        self._following = following
        self._wait = tenacity.wait_exponential(multiplier=config.retry_initial, max=config.retry_max)
        self._jitter = min(config.retry_initial, config.retry_max)
        # Use a separate random generator, so that the random numbers of the user's program stay reproducible.
        self._random = random.Random()

    async def send(self, call: Call, verb: str, *, proves: bool) -> Settlement:
        """Repeat a call until it succeeds, is rejected or no time is left; see :meth:`BreakerStage.send`."""
        if pause := self._following.pause():
            await self._pause(pause)
        try:
            try:
                await self._following.send(call, verb, proves=proves)
            except PermanentError:
                raise
            except Exception as error:
                await self._again(call, verb, proves, error)
        except PermanentError as error:
            return Settlement("rejected", error.rejected if isinstance(error.rejected, int) else None)
        except Exception:
            if not self._is_over():
                raise
            # This failed attempt is already counted and logged.
            return Settlement(SHUTDOWN)
        return DELIVERED

    async def _again(self, call: Call, verb: str, proves: bool, first: Exception) -> None:
        pending: list[Exception] = [first]

        async def attempt() -> None:
            if pending:
                raise pending.pop()
            await self._following.send(call, verb, proves=proves)

        await tenacity.AsyncRetrying(
            sleep=self._pause,
            wait=self._pause_after,
            retry=tenacity.retry_if_not_exception_type(PermanentError),
            stop=lambda _: self._is_over(),
            reraise=True,
        )(attempt)

    def make(self, constructor: Callable[[], Reporter], loop: asyncio.AbstractEventLoop) -> Reporter | None:
        """Create the reporter, with retries; return None if no time is left.

        As during startup, the constructor runs outside the event loop. An error raised by it drops no events.

        Args:
            constructor: creates the reporter.
            loop: the thread's event loop; it runs only during the pauses.
        """
        try:
            return tenacity.Retrying(
                sleep=lambda seconds: loop.run_until_complete(self._pause(seconds)),
                wait=self._backoff,
                retry=tenacity.retry_if_exception_type(Exception),
                stop=lambda _: self._is_over(),
                reraise=True,
            )(constructor)
        except Exception:
            if not self._is_over():
                raise
            # The constructor of the thread has counted and logged each failed attempt.
            return None

    def _pause_after(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = None if error is None else asked_pause(error)
        # A requested pause never shortens the backoff; a requested time in the past is ignored.
        return max(self._backoff(state), asked or 0.0, self._following.pause())

    def _backoff(self, state: tenacity.RetryCallState) -> float:
        return self._wait(state) + self._random.uniform(0, self._jitter)

    async def _pause(self, seconds: float) -> None:
        """Pause for this time, or until a drain begins or the turn is revoked."""
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0:
            # Clear the signal before checking for a drain, so that a notification after the check ends the wait.
            self._work.clear()
            if self._drain.is_active or self._is_over():
                break
            await wait_for(self._work, left)
        if self._drain.is_active and seconds > 0 and not self._is_over():
            await asyncio.sleep(min(seconds, self._config.retry_initial, _HURRIED_PAUSE, self._drain.time_left()))
