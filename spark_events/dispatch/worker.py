"""Thread and event loop of one reporter; a slow reporter does not affect other reporters."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from spark_events.dispatch.breaker import Breaker
from spark_events.dispatch.calls import linger_of, most_of
from spark_events.dispatch.config import DeliveryConfig
from spark_events.dispatch.retry_loop import SHUTDOWN, RetryLoop
from spark_events.event import Event
from spark_events.loops import notify, unwind, wait_for
from spark_events.reporters.reporter import Reporter

_LOG = logging.getLogger(__name__)


class EventSource(Protocol):
    """Source of a worker's events, and receiver of the results."""

    is_durable: bool  # whether undelivered events survive the process

    def describe(self, error: BaseException) -> str:
        """Return the error as a string, with secrets hidden."""

    def take(self, worker: Worker, most: int) -> list[Event]:
        """Return the oldest events; an empty list if the worker has been replaced."""

    def is_due(self, worker: Worker) -> bool:
        """Return whether the worker must send the queued events without further linger."""

    def is_exhausted(self, worker: Worker) -> bool:
        """Return whether no event remains. If events remain, the source will wake the worker."""

    def ack(self, worker: Worker, dropped: str | None, seconds: float, count: int | None = None) -> None:
        """Settle the events in flight as delivered or dropped.

        Args:
            worker: the calling worker.
            dropped: the reason for dropping events; None if all were delivered.
            seconds: how long the delivery took, retries included.
            count: the number of dropped events; None for all.
        """

    def note_failure(self, worker: Worker) -> None:
        """Count a failed attempt."""


class Worker:
    """Create and open a reporter, deliver events to it in order, and close it.

    :class:`RetryLoop` performs the calls and the retries. The delivery abandons a worker whose reporter blocks the
    thread, and starts another worker.

    Args:
        name: the reporter's name in the configuration.
        make: creates the reporter; only this worker's thread calls it and uses the result.
        config: batch sizes, timeouts and retry intervals.
        breaker: the circuit breaker, shared with a replacement of this worker.
        source: provides the events and receives the results.

    Attributes:
        can_linger: whether events may wait to form a larger batch.
        batch_size: the maximum number of events of the next call.
        retry_loop: makes the attempts, and holds their results.
        death: the error that ended the thread; None if no error ended it.
    """

    def __init__(
        self, name: str, make: Callable[[], Reporter], config: DeliveryConfig, breaker: Breaker, source: EventSource
    ) -> None:
        self.name = name
        self.death: str | None = None
        self._make = make
        self._config = config
        self.batch_size = config.batch_size
        # Until the reporter exists, wait for a larger batch; afterwards, the reporter's class sets the linger time.
        self.can_linger = config.batch_linger != 0
        # End of the current linger time; None if no event waits, 0.0 if the waiting events exceed one batch.
        self._lingers_until: float | None = None
        self._source = source
        self._loop = asyncio.new_event_loop()
        # The thread closes its event loop. If a worker never starts, as in `spark-events check`, the loop is closed at
        # exit. Otherwise the garbage collector would close the loop's sockets, and the loop would log an error.
        self._close_unstarted = weakref.finalize(self, self._loop.close)
        self._work = asyncio.Event()
        self.retry_loop = RetryLoop(
            name, config, breaker, self._work, self.wake, source.describe, lambda: source.note_failure(self)
        )
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"spark-events-{name}", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def overdue(self, now: float) -> tuple[float, float]:
        """Return the duration of the current call and its time limit, in seconds.

        Args:
            now: the current time in seconds of ``time.monotonic``.
        """
        # Read the limit first: a constructor has a longer limit than the call that follows the constructor.
        patience = self.retry_loop.patience
        since = self.retry_loop.busy_since
        return (0.0 if since is None else now - since), patience

    def start(self) -> None:
        """Start the thread, which opens the reporter.

        Raises:
            RuntimeError: when the system cannot start another thread.
        """
        self._close_unstarted.detach()
        try:
            self._thread.start()
        except RuntimeError:
            # Close the loop here if no thread exists; a running thread closes the loop when it ends.
            self._loop.close()
            raise

    def wake(self) -> None:
        """Wake the thread because events have arrived or a stop was requested."""
        notify(self._loop, self._work)

    def request_stop(self, deadline: float) -> None:
        """Request a stop when no event remains, or at the deadline.

        Args:
            deadline: in seconds of ``time.monotonic``.
        """
        self._stopping = True
        self.retry_loop.end_by(deadline)

    def join(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for the thread to end."""
        self._thread.join(timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        death: str | None = None
        try:
            reporter = self.retry_loop.make(self._make, self._loop)
            if reporter is not None:
                self._loop.run_until_complete(self._deliver(reporter))
        except BaseException as error:
            # For example, the reporter may have stopped its event loop. Its remaining tasks must deliver nothing more.
            self.retry_loop.abandon()
            death = self._source.describe(error)
        unwind(self._loop)
        self._loop.close()
        # Set this attribute last, because the delivery starts another thread as soon as the attribute is set.
        self.death = death

    async def _deliver(self, reporter: Reporter) -> None:
        retry_loop = self.retry_loop
        # A successful open does not close the breaker, because a reporter that hangs in every batch still opens after
        # each replacement.
        opened = await retry_loop.call_with_retry(reporter.open, "cannot be opened", proves=False)
        if opened is not None and self._source.is_durable:
            # The events stay on disk until the reporter can be opened again. A drain does not wait for these events.
            retry_loop.in_failure = True
            return
        while not retry_loop.abandoned and (events := await self._next(reporter)):
            began = time.monotonic()
            # Drop the events of a reporter that cannot be opened, so that no caller waits for them.
            dropped = await self._report(reporter, events) if opened is None else opened
            # An error raised by `open` may state a number of rejected events; ignore it, because no event was sent.
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
        # Pass a copy of the list to each attempt, so that a reporter that modifies its list loses no events.
        return await self.retry_loop.call_with_retry(lambda: reporter.report([*events]), "failed", proves=True)

    async def _next(self, reporter: Reporter) -> list[Event]:
        waited = False
        while True:
            self._work.clear()
            self.batch_size = min(self._config.batch_size, most_of(reporter) or self._config.batch_size)
            if (left := self._linger_left(reporter)) > 0:
                await wait_for(self._work, left)
                waited = True
                continue
            if events := self._source.take(self, self.batch_size):
                # If more events wait than fit in one batch, send the next batch without a linger time.
                self._lingers_until = None if self._source.is_exhausted(self) else 0.0
                if not waited:
                    # Let the reporter's other tasks in this event loop run, even if events arrive without a pause.
                    await asyncio.sleep(0)
                return events
            if self.retry_loop.abandoned or (self._stopping and self._source.is_exhausted(self)):
                return []
            await self._work.wait()
            waited = True

    def _linger_left(self, reporter: Reporter) -> float:
        """Return the remaining linger time of the queued events, in seconds."""
        configured = self._config.batch_linger
        linger = linger_of(reporter) if configured is None else configured
        self.can_linger = linger > 0
        if not linger or self._stopping or self.retry_loop.is_draining or self._source.is_exhausted(self):
            return 0.0
        now = time.monotonic()
        if self._lingers_until is None:
            self._lingers_until = now + linger
        return 0.0 if self._source.is_due(self) else self._lingers_until - now
