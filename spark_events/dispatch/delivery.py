"""One reporter's delivery: a thread and an event loop of its own, so that what stalls, stalls alone."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable

from spark_events.config import integer, option, positive_duration
from spark_events.dispatch.mailbox import Entry, Mailbox
from spark_events.dispatch.selection import Selection, SelectionConfig
from spark_events.errors import PermanentError, ThrottledError
from spark_events.event import Event
from spark_events.reporters.reporter import Reporter

__all__ = ["Delivery", "DeliveryConfig"]

_LOG = logging.getLogger(__name__)
#: A reporter that takes a batch in this time keeps up; the dispatcher may wait that long for it.
_QUICK_SECONDS = 0.01


@dataclasses.dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """``events.reporter.<name>.…``: what every reporter has, whatever its type."""

    timeout: float = option(
        "timeout",
        positive_duration,
        10.0,
        doc="How long one attempt to open the reporter or to hand it events may take.",
    )
    batch_size: int = option(
        "batch.size", integer(1, 100_000), 512, doc="How many events the reporter is handed at once, at most."
    )
    retry_initial: float = option(
        "retry.initial",
        positive_duration,
        0.1,
        doc="The pause after a first failed attempt; it doubles with each further one.",
    )
    retry_max: float = option("retry.max", positive_duration, 5.0, doc="The longest pause between two attempts.")


class Delivery:
    """Takes events from a mailbox and sees them delivered, in order, however often it has to try.

    A transient failure holds the events and tries again, a permanent one gives up on these events, and
    both are counted and said in the log once a spell.

    Args:
        name: the reporter's name in the configuration.
        reporter: what is delivered to; opened and closed here, in its own loop.
        config: sizes and times.
        capacity: the size of the mailbox.
        on_progress: called from the reporter's thread whenever events have come to their end.
        selection: which events the reporter gets; all of them, without one.
    """

    def __init__(
        self,
        name: str,
        reporter: Reporter,
        config: DeliveryConfig,
        capacity: int,
        on_progress: Callable[[], None] = lambda: None,
        selection: Selection | None = None,
    ) -> None:
        self.name = name
        self.delivered = 0
        self.failures = 0
        self.given_up = 0
        self._reporter = reporter
        self._config = config
        self._on_progress = on_progress
        self._selection = selection or Selection(SelectionConfig())
        self._mailbox = Mailbox(capacity, self._wake)
        # Never all that the mailbox holds: a newcomer that is worth more must find something to displace.
        self._batch_size = min(config.batch_size, max(1, capacity // 2))
        self._loop = asyncio.new_event_loop()
        self._work = asyncio.Event()
        self._stopping = False
        self._deadline = float("inf")
        self._in_failure = False
        self._took = 0.0
        self._thread = threading.Thread(target=self._run, name=f"spark-events-{name}", daemon=True)

    def start(self) -> None:
        """Starts the thread; the reporter is opened there."""
        self._thread.start()

    def put(self, entries: Iterable[Entry]) -> None:
        """Takes those events in that the reporter is to get, without waiting."""
        self._mailbox.put(self._selection.of(entries))

    def wait_for_room(self, events: int) -> None:
        """A moment's patience with a reporter that is quick, so that a burst is not shed for nothing.

        A reporter that is slow, or fails, is not waited for: that would make the others as slow.
        """
        if self._took < _QUICK_SECONDS and not self._in_failure:
            self._mailbox.wait_for_room(events, _QUICK_SECONDS)

    def wait_until_settled(self, timeout: float) -> bool:
        """Waits, at most ``timeout`` seconds, until everything put in has come to its end."""
        return self._mailbox.wait_until_empty(timeout)

    def oldest_record(self) -> int | None:
        """The record of the oldest event that has not come to its end; None when all have."""
        return self._mailbox.oldest_record()

    def request_stop(self, deadline: float) -> None:
        """What is in the mailbox is still delivered, until ``deadline`` (of ``time.monotonic``)."""
        self._deadline = deadline
        self._stopping = True
        self._wake()

    def join(self) -> None:
        """Waits for the thread until the deadline; what has not been delivered by then is dropped."""
        self._thread.join(max(0.0, self._deadline - time.monotonic()))
        lost = self._mailbox.clear()
        if lost:
            _LOG.error("reporter %s: %d events were not delivered in time and are lost", self.name, lost)
        if self._mailbox.dropped > lost:
            _LOG.warning(
                "reporter %s: %d events were dropped, its mailbox was full",
                self.name,
                self._mailbox.dropped - lost,
            )

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._work.set)
        except RuntimeError:
            # The loop has ended: the mailbox is cleared, and counted, by join().
            _LOG.debug("reporter %s: events after its end", self.name)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._deliver())
        finally:
            self._loop.close()

    async def _deliver(self) -> None:
        if await self._persistently(self._reporter.open, "cannot be opened"):
            while (events := await self._next()) is not None:
                began = time.monotonic()
                if await self._persistently(lambda: self._reporter.report(events), "failed"):
                    self.delivered += self._mailbox.settle()
                else:
                    self.given_up += self._mailbox.settle()
                self._took = time.monotonic() - began
                self._on_progress()
        else:
            await self._discard_until_stop()
        try:
            await self._attempt(self._reporter.close)
        except Exception as error:
            _LOG.warning("reporter %s: could not be closed: %s", self.name, _describe(error))

    async def _next(self) -> list[Event] | None:
        while True:
            self._work.clear()
            if events := self._mailbox.take(self._batch_size):
                return events
            if self._stopping:
                return None
            await self._work.wait()

    async def _discard_until_stop(self) -> None:
        """The reporter can never be opened: what comes for it is given up, so that nobody waits for it."""
        while await self._next() is not None:
            self.given_up += self._mailbox.settle()
            self._on_progress()

    async def _persistently(self, call: Callable[[], Awaitable[None] | None], verb: str) -> bool:
        """Calls until it works; False when it never will, or when time is up."""
        pause = self._config.retry_initial
        while True:
            try:
                await self._attempt(call)
            except PermanentError as error:
                self.failures += 1
                _LOG.error("reporter %s: %s, not tried again: %s", self.name, verb, _describe(error))
                return False
            except Exception as error:
                self.failures += 1
                self._say_once(verb, error)
                wait = error.retry_after if isinstance(error, ThrottledError) else pause
                pause = min(pause * 2, self._config.retry_max)
                await self._pause(wait)
                if time.monotonic() >= self._deadline:
                    return False
            else:
                if self._in_failure:
                    self._in_failure = False
                    _LOG.warning("reporter %s: works again", self.name)
                return True

    async def _pause(self, seconds: float) -> None:
        """A pause that is cut short by a stop: then every moment until the deadline is for trying."""
        until = time.monotonic() + seconds
        while not self._stopping and (left := until - time.monotonic()) > 0:
            self._work.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._work.wait(), left)
        if self._stopping:
            left = self._deadline - time.monotonic()
            await asyncio.sleep(max(0.0, min(seconds, self._config.retry_initial, left)))

    async def _attempt(self, call: Callable[[], Awaitable[None] | None]) -> None:
        try:
            await asyncio.wait_for(_outcome(call), self._config.timeout)
        except asyncio.CancelledError as error:
            # Nobody cancels a delivery: the reporter did it to itself.
            raise RuntimeError("cancelled by the reporter itself") from error

    def _say_once(self, verb: str, error: Exception) -> None:
        if not self._in_failure:
            self._in_failure = True
            _LOG.error("reporter %s: %s, its events are held and tried again: %s", self.name, verb, _describe(error))


async def _outcome(call: Callable[[], Awaitable[None] | None]) -> None:
    try:
        result = call()
        if inspect.isawaitable(result):
            await result
    except (SystemExit, KeyboardInterrupt) as error:
        # A library that wants to end the process must not end the delivery for good.
        raise RuntimeError(f"the reporter called for an exit: {type(error).__name__}: {error}") from error


def _describe(error: BaseException) -> str:
    if isinstance(error, asyncio.TimeoutError) and not str(error):
        return "no answer within its timeout"
    return f"{type(error).__name__}: {error}"
