"""The thread and event loop in which one reporter lives, so that what stalls, stalls alone."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

import tenacity

from spark_events.dispatch.bell import Bell
from spark_events.dispatch.breaker import Breaker
from spark_events.dispatch.calls import Call, Original, asked_pause, begin, end, made, most_of
from spark_events.dispatch.config import DeliveryConfig
from spark_events.dispatch.interruption import Interrupted, Interruptible, let_go_of_logging
from spark_events.errors import PermanentError
from spark_events.event import Event
from spark_events.reporters.reporter import Reporter

__all__ = ["SHUTDOWN", "Source", "Worker"]

_LOG = logging.getLogger(__name__)

#: Why events were given up: the time for trying was over.
SHUTDOWN = "shutdown"
#: How long a constructor may take; at the start, where all wait for it, there is no limit.
_MAKING_SECONDS = 30.0
#: Between two attempts of one that is to hurry, in seconds, at most.
_HURRIED_PAUSE = 1.0


class Source(Protocol):
    """Where a worker gets events from, and where it says what became of them."""

    @property
    def is_durable(self) -> bool:
        """Whether what was not delivered is kept for a later time."""

    def describe(self, error: BaseException) -> str:
        """An error in words that anybody may read."""

    def take(self, worker: Worker, most: int) -> list[Event]:
        """The oldest events; none for a worker that was replaced."""

    def is_exhausted(self, worker: Worker) -> bool:
        """Whether nothing is left; otherwise the worker is woken when there is more to take."""

    def settle(self, worker: Worker, dropped: str | None, seconds: float, count: int | None = None) -> None:
        """What was taken is delivered, or dropped for a reason, all of it or ``count`` events."""

    def note_failure(self, worker: Worker) -> None:
        """An attempt has failed."""


class Worker:
    """Opens a reporter, hands it events in order, and closes it; tries again as often as it takes.

    Retries are tenacity's, with jitter, and entered only after a first failure. The three verdicts: a
    permanent error gives up on these events, a throttled one says how long to wait, anything else is
    transient. An attempt that does not come back within its timeout is cancelled; one that blocks the
    thread cannot be, then :meth:`abandon` is called and another worker takes over.

    Args:
        name: the reporter's name in the configuration.
        make: makes the reporter; called, and what it makes opened, used and closed, in this thread alone.
        config: sizes and times.
        breaker: shared with the worker that takes over.
        source: where events come from.

    Attributes:
        busy_since: when the call began that is under way, in seconds of ``time.monotonic``; None: there is none.
        patience: how long that call may take, in seconds.
        death: why its thread has ended, where nobody had asked it to.
    """

    def __init__(
        self, name: str, make: Callable[[], Reporter], config: DeliveryConfig, breaker: Breaker, source: Source
    ) -> None:
        self.name = name
        self.busy_since: float | None = None
        self.patience = config.timeout
        self.death: str | None = None
        self._make = make
        self._reporter: Reporter
        self._config = config
        self._breaker = breaker
        self._source = source
        self._loop = asyncio.new_event_loop()
        self._work = Bell(self._loop)
        self._call = Interruptible()
        self._original = Original()
        self._stopping = False
        self._abandoned = False
        self._deadline = float("inf")
        self._in_failure = False
        self._slow = False
        self._hurried = False
        self._rejected: int | None = None
        self._wait = tenacity.wait_exponential(multiplier=config.retry_initial, max=config.retry_max)
        # Its own: the numbers of the program's generator are the program's.
        self._random = random.Random()
        self._thread = threading.Thread(target=self._run, name=f"spark-events-{name}", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether its thread is still there."""
        return self._thread.is_alive()

    @property
    def in_failure(self) -> bool:
        """Whether the last attempt failed."""
        return self._in_failure

    def start(self) -> None:
        """Starts the thread; the reporter is opened there."""
        self._thread.start()

    def wake(self) -> None:
        """There is something to take, or to stop for."""
        self._work.ring()

    def hurry(self) -> None:
        """The end is near: pauses are cut short, for every moment until then is for trying."""
        self._hurried = True
        self.wake()

    def request_stop(self, deadline: float) -> None:
        """Goes on until nothing is left to take or ``deadline`` (of ``time.monotonic``) has come."""
        self._deadline = deadline
        self._stopping = True
        self.hurry()

    def abandon(self) -> None:
        """Its reporter blocks the thread: should it ever come back, it must touch nothing any more."""
        self._abandoned = True
        self.request_stop(0.0)
        if self.death is None:
            # One that waits is no trouble, one that spins takes the interpreter from everybody else. The number of a
            # thread that has ended may be another's by now.
            self._call.interrupt()

    def join(self, timeout: float) -> None:
        """Waits for the thread."""
        self._thread.join(timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            try:
                if self._has_made_it():
                    self._loop.run_until_complete(self._deliver())
            finally:
                self._loop.close()
        except Interrupted:
            let_go_of_logging()
        except BaseException as error:
            # A reporter that stops its loop, say: nobody up from here would know, and the delivery must go on.
            self.death = self._source.describe(error)

    async def _deliver(self) -> None:
        # That it opens says nothing of one that hangs in each batch, which all of its successors find again.
        opened = await self._persistently(self._reporter.open, "cannot be opened", proves=False)
        if opened is not None and self._source.is_durable:
            # What is on disk is kept for one that can be opened; nobody is to wait for this one.
            self._in_failure = True
            return
        if len(asyncio.all_tasks()) > 1:
            # Something has been set going in the loop: it is not to stand still between the calls.
            self._work.wait_in_loop()
        while not self._abandoned and (events := await self._next()):
            began = time.monotonic()
            # One that can never be opened gives up at once, so that nobody waits for it.
            dropped = await self._report(events) if opened is None else opened
            # Of one that cannot be opened, no event was delivered, whatever it says.
            rejected = self._rejected if opened is None else None
            self._source.settle(self, dropped, time.monotonic() - began, rejected)
            if dropped == SHUTDOWN:
                break
        if not self._abandoned:
            try:
                await self._attempt(self._reporter.close)
            except Exception as error:
                _LOG.warning("reporter %s: could not be closed: %s", self.name, self._source.describe(error))

    def _has_made_it(self) -> bool:
        """Makes the reporter; tries again as long as there is time.

        In this thread, where a constructor that blocks stalls nobody else, and in no running loop, as the first one
        was. What it raises is no verdict on events.
        """
        try:
            self._reporter = tenacity.Retrying(
                sleep=lambda seconds: self._loop.run_until_complete(self._pause(seconds)),
                wait=self._backoff,
                retry=tenacity.retry_if_exception_type(Exception),
                stop=lambda _: self._is_over(),
                reraise=True,
            )(self._made)
        except Exception:
            if not self._is_over():
                raise
            return False
        return True

    def _made(self) -> Reporter:
        self.patience = max(_MAKING_SECONDS, self._config.timeout)
        self.busy_since = time.monotonic()
        try:
            with self._call:
                return made(self._make)
        except Exception as error:
            self._note_failure("cannot be made anew", error)
            raise
        finally:
            self._original.end_copies()
            self.busy_since = None
            self.patience = self._config.timeout

    async def _report(self, events: list[Event]) -> str | None:
        # A list for each attempt: what a reporter has taken out of one is not delivered when it fails.
        return await self._persistently(lambda: self._reporter.report([*events]), "failed", proves=True)

    async def _next(self) -> list[Event]:
        waited = False
        while True:
            self._work.silence()
            size = self._config.batch_size
            if events := self._source.take(self, min(size, most_of(self._reporter) or size)):
                if not waited:
                    # What else a reporter has set going in this loop has its turn, however many events there are.
                    await asyncio.sleep(0)
                return events
            if self._stopping and self._source.is_exhausted(self):
                return []
            await self._work.wait()
            waited = True

    async def _persistently(self, call: Call, verb: str, *, proves: bool) -> str | None:
        """Calls until it works; otherwise why it never did: ``rejected``, or ``shutdown``.

        That it works ends a failing spell of this very call; where it ``proves`` something, any.
        """
        self._rejected = None
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
            self._rejected = error.rejected if isinstance(error.rejected, int) else None
            _LOG.error("reporter %s: %s, not tried again: %s", self.name, verb, self._source.describe(error))
            self._source.note_failure(self)
            return "rejected"
        except Exception:
            if not self._is_over():
                raise
            # Why it failed was counted and said when it did.
            return SHUTDOWN
        if (proves or self._in_failure) and not self._slow:
            self._breaker.succeeded()
        if self._in_failure:
            self._in_failure = False
            _LOG.warning("reporter %s: works again", self.name)
        return None

    async def _try(self, call: Call, verb: str) -> None:
        """One attempt; a failure that may pass is noted before it is raised."""
        self._breaker.attempt()
        try:
            await self._attempt(call)
        except PermanentError:
            raise
        except Exception as error:
            self._failed(verb, error)
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
            stop=lambda _: self._is_over(),
            reraise=True,
        )(again)

    def _is_over(self) -> bool:
        """Whether the time for trying is."""
        return self._abandoned or time.monotonic() >= self._deadline

    def _pause_after(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = None if error is None else asked_pause(error)
        return max(self._backoff(state) if asked is None else asked, self._breaker.pause())

    def _backoff(self, state: tenacity.RetryCallState) -> float:
        return self._wait(state) + self._random.uniform(0, self._config.retry_initial)

    async def _pause(self, seconds: float) -> None:
        """A pause, cut short where the worker is to hurry."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            # Before it is looked whether to hurry: who says so afterwards is heard.
            self._work.silence()
            if self._hurried:
                break
            await self._work.wait(left)
        if self._hurried and seconds > 0:
            left = self._deadline - time.monotonic()
            await asyncio.sleep(max(0.0, min(seconds, self._config.retry_initial, _HURRIED_PAUSE, left)))

    async def _attempt(self, call: Call) -> None:
        self.busy_since = time.monotonic()
        self._slow = False
        try:
            with self._call:
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
        if took > self._config.timeout:
            # It blocked its own loop, so nothing could cancel it; it did its work, but nobody should wait so long.
            self._slow = True
            self._source.note_failure(self)
            self._breaker.failed(f"an attempt took {took:.1f} s, its timeout is {self._config.timeout:g} s")

    def _failed(self, verb: str, error: Exception) -> None:
        self._breaker.failed(self._note_failure(verb, error))

    def _note_failure(self, verb: str, error: Exception) -> str:
        """Says that it fails, once for each failing spell; returns why."""
        why = self._source.describe(error)
        if not self._in_failure and not self._abandoned:
            self._in_failure = True
            _LOG.error("reporter %s: %s, its events are held and tried again: %s", self.name, verb, why)
        # Said before it is counted: whoever sees the number finds the reason in the log.
        self._source.note_failure(self)
        return why
