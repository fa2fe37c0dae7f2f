"""Thread and event loop of one reporter; a slow reporter does not affect other reporters."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Sequence

from spark_events.dispatch.batch_stage import BatchStage
from spark_events.dispatch.breaker import Breaker
from spark_events.dispatch.breaker_stage import BreakerStage
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.drain import Drain
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.health import Health
from spark_events.dispatch.retry_stage import RetryStage
from spark_events.dispatch.timeout_stage import TimeoutStage
from spark_events.dispatch.turn import DELIVERED, Turn
from spark_events.loops import notify, unwind
from spark_events.reporters.reporter import Reporter

_LOG = logging.getLogger(__name__)


class ReporterThread:
    """Create and open a reporter, deliver events to it in order, and close it.

    This class connects the stages that run on the thread: batch, retry, breaker, timeout. The delivery abandons a
    thread that its reporter blocks, and starts another one.

    Args:
        name: the reporter's name in the configuration.
        make: creates the reporter; only this thread calls it and uses the result.
        config: batch sizes, timeouts and retry intervals.
        breaker: the circuit breaker, shared with a replacement of this thread.
        turn: the right to the events.
        drain: limits the attempts at the end.
        describe: returns an error as a string, with secrets hidden.
        clock: returns monotonic time in seconds.

    Attributes:
        health: what the attempts have shown about the destination.
        death: the error that ended the thread; None if no error ended it.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Reporter],
        config: DeliveryConfig,
        breaker: Breaker,
        turn: Turn,
        drain: Drain,
        describe: Callable[[BaseException], str],
        clock: Callable[[], float],
    ) -> None:
        self._name = name
        self._make = make
        self._describe = describe
        self._turn = turn
        self._abandoned = False
        self.death: str | None = None
        self.health = Health(name, breaker, turn, describe)
        self._loop = asyncio.new_event_loop()
        # The thread closes its event loop. If a thread never starts, as in `spark-events check`, the loop is closed at
        # exit. Otherwise the garbage collector would close the loop's sockets, and the loop would log an error.
        self._close_unstarted = weakref.finalize(self, self._loop.close)
        self._work = asyncio.Event()
        self._timeout = TimeoutStage(config.timeout, clock)
        breaker_stage = BreakerStage(breaker, self.health, turn, self._timeout)
        self._retry = RetryStage(config, drain, lambda: turn.is_over, self._work, clock, breaker_stage)
        self._batch = BatchStage(config, turn, drain, self._work, clock, self._retry)
        self._thread = threading.Thread(target=self._run, name=f"spark-events-{name}", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def overdue(self, now: float) -> tuple[float, float]:
        """Return the duration of the current call and its time limit; see :meth:`TimeoutStage.overdue`."""
        return self._timeout.overdue(now)

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

    def arrived(self, entries: Sequence[Entry], must_wake: bool) -> None:
        """Note new events in the store, and wake the thread if they are due; any thread may call this method."""
        if self._batch.arrived(entries) or must_wake:
            self.wake()

    def wake(self) -> None:
        """Wake the thread because events have arrived, or a drain or a stop was requested."""
        notify(self._loop, self._work)

    def abandon(self) -> None:
        """Revoke the turn of this thread, which releases the reporter's connections when its call returns."""
        self._abandoned = True
        self._turn.revoke()
        self.wake()

    def dismiss(self) -> None:
        """Revoke the turn of this thread, which closes the reporter."""
        self._turn.revoke()
        self.wake()

    def join(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for the thread to end."""
        self._thread.join(timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        death: str | None = None
        try:
            # The constructor runs in this thread, so that it cannot block other reporters.
            reporter = self._retry.make(self._made, self._loop)
            if reporter is not None:
                self._loop.run_until_complete(self._deliver(reporter))
        except BaseException as error:
            # For example, the reporter may have stopped its event loop. Its remaining tasks must deliver nothing more.
            self._abandoned = True
            self._turn.revoke()
            death = self._describe(error)
        unwind(self._loop)
        self._loop.close()
        # Set this attribute last, because the delivery starts another thread as soon as the attribute is set.
        self.death = death

    def _made(self) -> Reporter:
        try:
            return self._timeout.construct(self._make)
        except Exception as error:
            self.health.failed("cannot create a replacement reporter", error)
            raise

    async def _deliver(self, reporter: Reporter) -> None:
        is_over = False
        try:
            is_over = not self._abandoned and await self._batches(reporter)
        finally:
            # An abandoned reporter must not send what its replacement sends, such as deferred recoveries.
            end = reporter.close if is_over and not self._abandoned else reporter.release
            try:
                await self._timeout.send(end)
            except Exception as error:
                _LOG.warning("reporter %s: could not be closed: %s", self._name, self._describe(error))

    async def _batches(self, reporter: Reporter) -> bool:
        """Deliver all batches; return False if the reporter cannot be opened, and its events stay on disk."""
        # A successful open does not close the breaker, because a reporter that hangs in every batch still opens after
        # each replacement.
        opened = await self._retry.send(reporter.open, "cannot be opened", proves=False)
        if opened is not DELIVERED:
            if self._turn.is_durable:
                # The events stay on disk until the reporter can be opened again. A drain does not wait for them.
                self.health.in_failure = True
                return False
            # The error may state a number of rejected events; ignore it, because no event was sent.
            opened = opened._replace(rejected=None)
        await self._batch.run(reporter, opened)
        return True
