"""Calling one reporter's methods until they work, as often as there is time for."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

import tenacity

from spark_events.dispatch.breaker import Breaker, BreakerState
from spark_events.dispatch.calls import Call, Original, asked_pause, begin, end, made
from spark_events.dispatch.config import DeliveryConfig
from spark_events.dispatch.notifier import WorkerNotifier
from spark_events.errors import PermanentError
from spark_events.reporters.reporter import Reporter

__all__ = ["SHUTDOWN", "RetryLoop"]

_LOG = logging.getLogger(__name__)

#: Why events were given up: the time for trying was over.
SHUTDOWN = "shutdown"
#: How long a constructor may take; at the start, where all wait for it, there is no limit.
_MAKING_SECONDS = 30.0
#: So many attempts in a row without an answer: one alone may be a connection that was just lost.
_DEAD_AFTER = 2
#: Between two attempts of one that is to begin_drain, in seconds, at most.
_HURRIED_PAUSE = 1.0


class RetryLoop:
    """Makes the attempts of one worker, one after the other; for its thread, where nothing else is said.

    Retries are tenacity's, with jitter, and entered only after a first failure. The three verdicts: a
    permanent error gives up on these events, a throttled one says how long to wait, anything else is
    transient. An attempt that does not come back within its timeout is cancelled; one that blocks the
    thread cannot be, for that there is :meth:`abandon`.

    Args:
        name: the reporter's name in the configuration.
        config: sizes and times.
        breaker: of the reporter; other threads' attempts have told it, too.
        work: rung when there is something to do, or to stop for.
        describe: an error in words that anybody may read.
        on_failure: an attempt has failed.

    Attributes:
        busy_since: when the call began that is under way, in seconds of ``time.monotonic``; None: there is none.
        patience: how long that call may take, in seconds.
        in_failure: whether the last attempt failed.
        rejected: of how many events the last call said that it can take none of them; None: it said nothing.
        abandoned: whether nobody waits for them any more.
    """

    def __init__(
        self,
        name: str,
        config: DeliveryConfig,
        breaker: Breaker,
        work: WorkerNotifier,
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
        self._describe = describe
        self._on_failure = on_failure
        self._original = Original()
        self._deadline = float("inf")
        self._slow = False
        self._draining = False
        # Failed attempts in a row that the destination did not answer; an answer that asks for a pause is one.
        self._unanswered = 0
        self._asks_for_pause = False
        # How many more attempts may fail; None: any number.
        self._failures_left: int | None = None
        self._wait = tenacity.wait_exponential(multiplier=config.retry_initial, max=config.retry_max)
        self._jitter = min(config.retry_initial, config.retry_max)
        # Its own: the numbers of the program's generator are the program's.
        self._random = random.Random()

    @property
    def is_over(self) -> bool:
        """Return whether nothing is tried again."""
        return self.abandoned or self._failures_left == 0 or time.monotonic() >= self._deadline

    @property
    def is_dead(self) -> bool:
        """Return whether the destination is known to be dead: an open breaker, or several attempts without an answer.

        A destination that asks for a pause is alive.
        """
        is_held_back = self._breaker.state is not BreakerState.CLOSED and not self._asks_for_pause
        return is_held_back or self._unanswered >= _DEAD_AFTER

    def end_with_next_failure(self) -> None:
        """Allow one more failed attempt, which may be under way; for another thread."""
        self._failures_left = 1
        self._work.notify()

    @property
    def is_draining(self) -> bool:
        """Return whether the end is near."""
        return self._draining

    def begin_drain(self) -> None:
        """From whatever thread: pauses are cut short, for every moment until the end is for trying."""
        self._draining = True
        self._work.notify()

    def end_by(self, deadline: float) -> None:
        """From whatever thread: nothing is tried again once ``deadline`` (of ``time.monotonic``) has come."""
        self._deadline = deadline
        self.begin_drain()

    def abandon(self) -> None:
        """Stop waiting for this thread; for another thread."""
        self.abandoned = True
        self.end_by(0.0)

    def make(self, constructor: Callable[[], Reporter], loop: asyncio.AbstractEventLoop) -> Reporter | None:
        """Makes the reporter; tries again as long as there is time. None: there was not enough.

        In the worker's thread, where a constructor that blocks stalls nobody else, and in no running loop, as the first
        one was; ``loop`` runs for the pauses alone. What it raises is no verdict on events.
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
            self._note_failure("cannot be made anew", error)
            raise
        finally:
            self._original.end_copies()
            self.busy_since = None
            self.patience = self._config.timeout

    async def call_with_retry(self, call: Call, verb: str, *, proves: bool) -> str | None:
        """Calls until it works; otherwise why it never did: ``rejected``, or ``shutdown``.

        That it works ends a failing spell of this very call; where it ``proves`` something, any.
        """
        self.rejected = None
        if pause := self._breaker.pause():
            await self._pause(pause)
        try:
            try:
                await self._try(call, verb)
            except PermanentError:
                raise
            except Exception as error:
                await self._retry(call, verb, error)
        except PermanentError as error:
            # The destination has answered: it is the events that are wrong.
            self._breaker.succeeded()
            self._note_answer()
            self.rejected = error.rejected if isinstance(error.rejected, int) else None
            _LOG.error("reporter %s: %s, not tried again: %s", self._name, verb, self._describe(error))
            self._on_failure()
            return "rejected"
        except Exception:
            if not self.is_over:
                raise
            # Why it failed was counted and said when it did.
            return SHUTDOWN
        if (proves or self.in_failure) and not self._slow:
            self._breaker.succeeded()
        self._note_answer()
        if self.in_failure:
            self.in_failure = False
            _LOG.warning("reporter %s: works again", self._name)
        return None

    def _note_answer(self) -> None:
        self._unanswered = 0
        self._asks_for_pause = False
        self._failures_left = None

    async def _try(self, call: Call, verb: str) -> None:
        """One attempt; a failure that may pass is noted before it is raised."""
        self._breaker.attempt()
        try:
            await self.call_once(call)
        except PermanentError:
            raise
        except Exception as error:
            self._asks_for_pause = asked_pause(error) is not None
            self._unanswered = 0 if self._asks_for_pause else self._unanswered + 1
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
        """One attempt, whatever becomes of it."""
        self.busy_since = time.monotonic()
        self._slow = False
        try:
            # A plain method is over when it returns: there is nothing left to wait for, or to cancel.
            if (rest := begin(call)) is not None:
                # Its connections may live in the loop, also between the calls.
                self._work.wait_in_loop()
                await asyncio.wait_for(end(rest), self._config.timeout)
        except asyncio.CancelledError as error:
            # Nobody cancels a delivery: the reporter did it to itself.
            raise RuntimeError("cancelled by the reporter itself") from error
        finally:
            self._original.end_copies()
            took = time.monotonic() - self.busy_since
            self.busy_since = None
        if took > self._config.timeout and not self.abandoned:
            # It blocked its own loop, so nothing could cancel it; it did its work, but nobody should wait so long.
            self._slow = True
            self._on_failure()
            self._breaker.failed(f"an attempt took {took:.1f} s, its timeout is {self._config.timeout:g} s")

    def _note_failure(self, verb: str, error: Exception) -> str:
        """Says that it fails, once for each failing spell; returns why."""
        why = self._describe(error)
        if not self.in_failure and not self.abandoned:
            self.in_failure = True
            _LOG.error("reporter %s: %s, its events are held and tried again: %s", self._name, verb, why)
        # Said before it is counted: whoever sees the number finds the reason in the log.
        self._on_failure()
        return why

    def _pause_after(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = None if error is None else asked_pause(error)
        # None that is asked for makes it sooner: a date that the other clock has behind it already asks for nothing.
        return max(self._backoff(state), asked or 0.0, self._breaker.pause())

    def _backoff(self, state: tenacity.RetryCallState) -> float:
        return self._wait(state) + self._random.uniform(0, self._jitter)

    async def _pause(self, seconds: float) -> None:
        """A pause, cut short where it is to begin_drain."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            # Before it is looked whether to begin_drain: who says so afterwards is heard.
            self._work.clear()
            if self._draining:
                break
            await self._work.wait(left)
        if self._draining and seconds > 0:
            left = self._deadline - time.monotonic()
            await asyncio.sleep(max(0.0, min(seconds, self._config.retry_initial, _HURRIED_PAUSE, left)))
