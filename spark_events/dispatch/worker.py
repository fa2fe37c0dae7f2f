"""The thread and event loop in which one reporter lives, so that what stalls, stalls alone."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from spark_events.dispatch.breaker import Breaker
from spark_events.dispatch.calls import linger_of, most_of
from spark_events.dispatch.config import DeliveryConfig
from spark_events.dispatch.notifier import WorkerNotifier
from spark_events.dispatch.retry_loop import SHUTDOWN, RetryLoop
from spark_events.event import Event
from spark_events.loops import unwind
from spark_events.reporters.reporter import Reporter

__all__ = ["EventSource", "Worker"]

_LOG = logging.getLogger(__name__)


class EventSource(Protocol):
    """Where a worker gets events from, and where it says what became of them."""

    @property
    def is_durable(self) -> bool:
        """Whether what was not delivered is kept for a later time."""

    def describe(self, error: BaseException) -> str:
        """An error in words that anybody may read."""

    def take(self, worker: Worker, most: int) -> list[Event]:
        """The oldest events; none for a worker that was replaced."""

    def is_pressing(self, worker: Worker) -> bool:
        """Whether what is there is not to wait for more."""

    def is_exhausted(self, worker: Worker) -> bool:
        """Whether nothing is left; otherwise the worker is woken when there is more to take."""

    def ack(self, worker: Worker, dropped: str | None, seconds: float, count: int | None = None) -> None:
        """What was taken is delivered, or dropped for a reason, all of it or ``count`` events."""

    def note_failure(self, worker: Worker) -> None:
        """An attempt has failed."""


class Worker:
    """Makes and opens a reporter, hands it events in order, and closes it; how often it tries, says :class:`RetryLoop`.

    One whose reporter blocks the thread is abandoned, and another worker takes over.

    Args:
        name: the reporter's name in the configuration.
        make: makes the reporter; called, and what it makes opened, used and closed, in this thread alone.
        config: sizes and times.
        breaker: shared with the worker that takes over.
        source: where events come from.

    Attributes:
        can_linger: whether events may wait for others.
        batch_size: how many events the next call gets at most.
        death: why its thread has ended, where nobody had asked it to.
    """

    def __init__(
        self, name: str, make: Callable[[], Reporter], config: DeliveryConfig, breaker: Breaker, source: EventSource
    ) -> None:
        self.name = name
        self.death: str | None = None
        self._make = make
        self._config = config
        self.batch_size = config.batch_size
        # Until the reporter is there, it may.
        self.can_linger = config.batch_linger != 0
        # Set while events wait for others; in the past while more than one batch waits.
        self._lingers_until: float | None = None
        self._source = source
        self._loop = asyncio.new_event_loop()
        self._work = WorkerNotifier(self._loop)
        self._retry_loop = RetryLoop(
            name, config, breaker, self._work, source.describe, lambda: source.note_failure(self)
        )
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"spark-events-{name}", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether its thread is still there."""
        return self._thread.is_alive()

    @property
    def is_abandoned(self) -> bool:
        """Return whether its results no longer count."""
        return self._retry_loop.abandoned

    @property
    def in_failure(self) -> bool:
        """Whether the last attempt failed."""
        return self._retry_loop.in_failure

    @property
    def is_dead(self) -> bool:
        """Return whether the destination is known to be dead."""
        return self._retry_loop.is_dead

    def end_with_next_failure(self) -> None:
        """Allow one more failed attempt, which may be under way."""
        self._retry_loop.end_with_next_failure()

    def overdue(self, now: float) -> tuple[float, float]:
        """For how many seconds a call is under way, and how long it may take; at ``now`` of ``time.monotonic``."""
        # First, for what is made takes longer than what comes next.
        patience = self._retry_loop.patience
        since = self._retry_loop.busy_since
        return (0.0 if since is None else now - since), patience

    def start(self) -> None:
        """Starts the thread; the reporter is opened there.

        Raises:
            RuntimeError: there is none left.
        """
        try:
            self._thread.start()
        except RuntimeError:
            # Its descriptors are closed there otherwise.
            self._loop.close()
            raise

    def wake(self) -> None:
        """There is something to take, or to stop for."""
        self._work.notify()

    def begin_drain(self) -> None:
        """The end is near: pauses are cut short, for every moment until then is for trying."""
        self._retry_loop.begin_drain()

    def end_by(self, deadline: float) -> None:
        """Try nothing again once ``deadline`` (of ``time.monotonic``) has come, and cut pauses short."""
        self._retry_loop.end_by(deadline)

    def request_stop(self, deadline: float) -> None:
        """Go on until nothing is left to take or ``deadline`` (of ``time.monotonic``) has come."""
        self._stopping = True
        self._retry_loop.end_by(deadline)

    def abandon(self) -> None:
        """Give up a thread that its reporter blocks; it touches nothing any more, should it ever come back."""
        self._retry_loop.abandon()

    def join(self, timeout: float) -> None:
        """Waits for the thread."""
        self._thread.join(timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        death: str | None = None
        try:
            reporter = self._retry_loop.make(self._make, self._loop)
            if reporter is not None:
                self._loop.run_until_complete(self._deliver(reporter))
        except BaseException as error:
            # A reporter that stops its loop, say. What still runs in the loop must not go on with the delivery.
            self._retry_loop.abandon()
            death = self._source.describe(error)
        unwind(self._loop)
        self._loop.close()
        # Last: the delivery starts another thread when it sees this.
        self.death = death

    async def _deliver(self, reporter: Reporter) -> None:
        retry_loop = self._retry_loop
        # That it opens says nothing of one that hangs in each batch, which all of its successors find again.
        opened = await retry_loop.call_with_retry(reporter.open, "cannot be opened", proves=False)
        if opened is not None and self._source.is_durable:
            # What is on disk is kept for one that can be opened; nobody is to wait for this one.
            retry_loop.in_failure = True
            return
        if len(asyncio.all_tasks()) > 1:
            # Something has been set going in the loop: it is not to stand still between the calls.
            self._work.wait_in_loop()
        while not retry_loop.abandoned and (events := await self._next(reporter)):
            began = time.monotonic()
            # One that can never be opened gives up at once, so that nobody waits for it.
            dropped = await self._report(reporter, events) if opened is None else opened
            # Of one that cannot be opened, no event was delivered, whatever it says.
            rejected = retry_loop.rejected if opened is None else None
            self._source.ack(self, dropped, time.monotonic() - began, rejected)
            if dropped == SHUTDOWN:
                break
        if not retry_loop.abandoned:
            try:
                await retry_loop.call_once(reporter.close)
            except Exception as error:
                _LOG.warning("reporter %s: could not be closed: %s", self.name, self._source.describe(error))

    async def _report(self, reporter: Reporter, events: list[Event]) -> str | None:
        # A list for each attempt: what a reporter has taken out of one is not delivered when it fails.
        return await self._retry_loop.call_with_retry(lambda: reporter.report([*events]), "failed", proves=True)

    async def _next(self, reporter: Reporter) -> list[Event]:
        waited = False
        while True:
            self._work.clear()
            self.batch_size = min(self._config.batch_size, most_of(reporter) or self._config.batch_size)
            if (left := self._linger_left(reporter)) > 0:
                await self._work.wait(left)
                waited = True
                continue
            if events := self._source.take(self, self.batch_size):
                # More than one batch has waited already.
                self._lingers_until = None if self._source.is_exhausted(self) else 0.0
                if not waited:
                    # What else a reporter has set going in this loop has its turn, however many events there are.
                    await asyncio.sleep(0)
                return events
            if self._retry_loop.abandoned or (self._stopping and self._source.is_exhausted(self)):
                return []
            await self._work.wait()
            waited = True

    def _linger_left(self, reporter: Reporter) -> float:
        """Return for how many seconds the events that are there may still wait for others."""
        configured = self._config.batch_linger
        linger = linger_of(reporter) if configured is None else configured
        self.can_linger = linger > 0
        if not linger or self._stopping or self._retry_loop.is_draining or self._source.is_exhausted(self):
            return 0.0
        now = time.monotonic()
        if self._lingers_until is None:
            self._lingers_until = now + linger
        return 0.0 if self._source.is_pressing(self) else self._lingers_until - now
