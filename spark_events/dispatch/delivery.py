"""One reporter's delivery: its mailbox, its worker, its breaker and its books."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable

from spark_events.dispatch.books import Books
from spark_events.dispatch.breaker import Breaker, BreakerConfig, BreakerState
from spark_events.dispatch.config import DeliveryConfig
from spark_events.dispatch.mailbox import Entry, Mailbox
from spark_events.dispatch.selection import Selection, SelectionConfig
from spark_events.dispatch.worker import Worker
from spark_events.event import Event
from spark_events.reporters.reporter import Reporter

__all__ = ["Delivery", "DeliveryConfig", "Hooks"]

_LOG = logging.getLogger(__name__)
#: A reporter that takes a batch in this time keeps up; the dispatcher may wait that long for it.
_QUICK_SECONDS = 0.01
#: A cancelled attempt may take a moment to unwind; what is not back then blocks its thread.
_GRACE_SECONDS = 0.5
#: Threads that a reporter may block for ever before it is not given another one.
_MOST_HUNG = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Hooks:
    """What a delivery tells, from whatever thread.

    Attributes:
        on_progress: events have come to their end.
        on_breaker: the breaker of the named reporter has changed: old and new state, and why.
    """

    on_progress: Callable[[], None] = lambda: None
    on_breaker: Callable[[str, BreakerState, BreakerState, str], None] = lambda *_: None


class Delivery:
    """Takes events in without waiting, and sees them delivered in order, however often it has to try.

    Args:
        name: the reporter's name in the configuration.
        make: makes the reporter; called again when one has blocked its thread and is given up.
        config: sizes and times.
        capacity: the size of the mailbox.
        hooks: whom to tell.
        selection: which events the reporter gets; all of them, without one.
        breaker: when the reporter is left alone.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Reporter],
        config: DeliveryConfig,
        capacity: int,
        hooks: Hooks | None = None,
        selection: SelectionConfig | None = None,
        breaker: BreakerConfig | None = None,
    ) -> None:
        self.name = name
        # Never all that the mailbox holds: a newcomer that is worth more must find something to displace.
        self._config = dataclasses.replace(config, batch_size=min(config.batch_size, max(1, capacity // 2)))
        self._make = make
        self._hooks = hooks or Hooks()
        self._selection = Selection(selection or SelectionConfig())
        self._breaker_state = BreakerState.CLOSED
        self._breaker = Breaker(breaker or BreakerConfig(), time.monotonic, self._breaker_changed)
        self._mailbox = Mailbox(capacity, self._wake)
        self._lock = threading.RLock()
        self._failures = 0
        self._closed = False
        self._latency = 0.0
        self._quick = True
        self._unreplaced = False
        self._hung: list[Worker] = []
        self._deadline: float | None = None
        self.hung = 0
        self._worker = self._successor()

    def start(self) -> None:
        """Starts the reporter's thread."""
        self._worker.start()

    def put(self, entries: Iterable[Entry]) -> None:
        """Takes those events in that the reporter is to get, without waiting."""
        self._mailbox.put(self._selection.of(entries))

    def wait_for_room(self, events: int) -> None:
        """A moment's patience with a reporter that is quick, so that a burst is not shed for nothing.

        A reporter that is slow, or fails, is not waited for: that would make the others as slow. One that has been
        waited for in vain is not waited for again before it has shown that it is quick.
        """
        if self._quick and not self._worker.in_failure:
            self._quick = self._mailbox.wait_for_room(events, _QUICK_SECONDS)

    def wait_until_settled(self, timeout: float) -> bool:
        """Waits, at most ``timeout`` seconds, until everything put in has come to its end."""
        return self._mailbox.wait_until_empty(timeout)

    def oldest_record(self) -> int | None:
        """The record of the oldest event that has not come to its end; None when all have."""
        return self._mailbox.oldest_record()

    def books(self) -> Books:
        """The account at this moment."""
        counts = self._mailbox.counts()
        return Books(
            accepted=counts.accepted,
            delivered=counts.delivered,
            dropped=counts.dropped,
            held=counts.held,
            failures=self._failures,
            hung=self.hung,
            latency=self._latency,
            oldest_age=counts.oldest_age,
            breaker=self._breaker.state.value,
        )

    def check(self, now: float) -> None:
        """Gives a reporter that blocks its thread another one; called now and then by the dispatcher.

        Args:
            now: seconds, of ``time.monotonic``.
        """
        with self._lock:
            worker = self._worker
            since = worker.busy_since
            if since is None or now - since < self._config.timeout + _GRACE_SECONDS or self._deadline is not None:
                return
            alive = [hung for hung in self._hung if hung.is_alive]
            if len(alive) >= _MOST_HUNG:
                # It had its chances; it gets the next one when a thread comes back.
                return
            try:
                successor = self._successor()
                # First, so that the successor finds the breaker as it is to be.
                self._breaker.failed(f"it has blocked its thread for {now - since:.1f} s")
                successor.start()
            except Exception as error:
                # No descriptors or threads left, or a reporter that cannot be made twice: perhaps the next time.
                if not self._unreplaced:
                    self._unreplaced = True
                    _LOG.error("reporter %s: it blocks its thread, and cannot be made anew: %s", self.name, error)
                return
            self._unreplaced = False
            worker.abandon()
            self._hung = [*alive, worker]
            self.hung += 1
            self._failures += 1
            self._mailbox.put_back()
            self._worker = successor
            self._worker.wake()
        _LOG.error(
            "reporter %s: it blocks its thread; the thread is given up, its events are tried again"
            " (with events.reporter.%s.isolation=process it could be ended, too)",
            self.name,
            self.name,
        )

    def request_stop(self, deadline: float) -> None:
        """What is in the mailbox is still delivered, until ``deadline`` (of ``time.monotonic``)."""
        with self._lock:
            self._deadline = deadline
            self._worker.request_stop(deadline)

    def join(self) -> None:
        """Waits for the thread until the deadline; what has not been delivered by then is dropped."""
        deadline = time.monotonic() if self._deadline is None else self._deadline
        self._worker.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            self._closed = True
            self._mailbox.clear("shutdown")
        dropped = self._mailbox.counts().dropped
        if lost := dropped.get("shutdown"):
            _LOG.error("reporter %s: %d events were not delivered in time and are lost", self.name, lost)
        if full := dropped.get("mailbox-full"):
            _LOG.warning("reporter %s: %d events were dropped, its mailbox was full", self.name, full)

    def take(self, worker: Worker, most: int) -> list[Event]:
        """For the worker: the oldest events."""
        with self._lock:
            return self._mailbox.take(most) if worker is self._worker and not self._closed else []

    def settle(self, worker: Worker, dropped: str | None, seconds: float) -> None:
        """For the worker: what was taken has come to its end."""
        with self._lock:
            if worker is not self._worker or self._closed:
                return
            self._latency = seconds
            self._quick = seconds < _QUICK_SECONDS
            self._mailbox.settle(dropped)
        self._hooks.on_progress()

    def note_failure(self, worker: Worker) -> None:
        """For the worker: an attempt has failed."""
        with self._lock:
            if worker is self._worker:
                self._failures += 1

    def _successor(self) -> Worker:
        return Worker(self.name, self._make(), self._config, self._breaker, self)

    def _wake(self) -> None:
        self._worker.wake()

    def _breaker_changed(self, state: BreakerState, why: str) -> None:
        old, self._breaker_state = self._breaker_state, state
        level = logging.WARNING if state is BreakerState.OPEN else logging.INFO
        _LOG.log(level, "reporter %s: its circuit breaker is %s: %s", self.name, state.value, why)
        self._hooks.on_breaker(self.name, old, state, why)
