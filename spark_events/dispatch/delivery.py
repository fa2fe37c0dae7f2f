"""One reporter's delivery: its mailbox, its worker, its breaker and its books."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

from spark_events.dispatch.breaker import Breaker, BreakerConfig, BreakerState
from spark_events.dispatch.calls import describe, made
from spark_events.dispatch.config import DeliveryConfig
from spark_events.dispatch.counters import DeliveryCounters
from spark_events.dispatch.entries import Entries
from spark_events.dispatch.mailbox import Mailbox
from spark_events.dispatch.retry_loop import SHUTDOWN
from spark_events.dispatch.selection import Selection, SelectionConfig
from spark_events.dispatch.store import Store
from spark_events.dispatch.worker import Worker
from spark_events.event import Event, Severity
from spark_events.reporters.reporter import Reporter

__all__ = ["Delivery", "DeliveryConfig", "Hooks", "MakeStore"]

#: Makes the store, of what wakes the worker and what is told of progress.
MakeStore: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], Store]

#: Events of this severity, failures among them, do not wait for others.
_PRESSING = Severity.WARN
_LOG = logging.getLogger(__name__)
#: A reporter that takes a batch in this time keeps up; the dispatcher may wait that long for it.
_QUICK_SECONDS = 0.01
#: A cancelled attempt may take a moment to unwind; what is not back then blocks its thread.
_GRACE_SECONDS = 0.5
#: Threads that a reporter may block before it gets no other: one that spins slows all others down.
_MOST_HUNG = 4
#: How often a drain looks whether the destination is dead, in seconds.
_LOOK_SECONDS = 0.1
#: How long a dead destination is still tried at the end, in seconds.
_LAST_TRY_SECONDS = 2.0
#: At the end, what is kept for the disk, in seconds.
_CLOSE_SECONDS = 0.1


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
        make: makes the reporter; called again, in a new thread, when one has blocked its thread and is given up.
        config: sizes and times.
        capacity: how many events it holds in memory, fewer if they are large.
        hooks: whom to tell.
        selection: which events the reporter gets; all of them, without one.
        breaker: when the reporter is left alone.
        store: makes what holds the events; a mailbox, without one.
        hide: takes out of a text what nobody but the reporter may read.
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
        store: MakeStore | None = None,
        hide: Callable[[str], str] = lambda text: text,
    ) -> None:
        self.name = name
        self._hide = hide
        # Never all that the mailbox holds: a newcomer that is worth more must find something to displace.
        self._config = dataclasses.replace(config, batch_size=min(config.batch_size, max(1, capacity // 2)))
        self._make = make
        self._hooks = hooks or Hooks()
        self._selection = Selection(selection or SelectionConfig())
        self._breaker_state = BreakerState.CLOSED
        self._breaker = Breaker(breaker or BreakerConfig(), time.monotonic, self._breaker_changed)
        self._store = store(self._wake, self._hooks.on_progress) if store else Mailbox(capacity)
        self._lock = threading.RLock()
        self._failures = 0
        self._closed = False
        self._latency = 0.0
        self._quick = True
        self._unreplaced = False
        self._draining = False
        # Since the worker took events: how many came, and whether they are not to wait for others.
        self._untaken = 0
        self._is_pressing = False
        self._hung: list[Worker] = []
        self._deadline: float | None = None
        self._stop_by = float("inf")
        # When to give up a destination that was found dead at the end; of time.monotonic.
        self._give_up_at = float("inf")
        self.hung = 0
        self.timeouts = 0
        # Here, so that one that cannot be made at all is refused before anything starts.
        first = made(make)
        self._worker = self._successor(lambda: first)

    def start(self) -> None:
        """Starts the reporter's thread."""
        self._store.start()
        self._worker.start()

    def put(self, entries: Entries) -> None:
        """Take in the events that the reporter is to get, without waiting."""
        chosen = self._selection.of(entries)
        is_first = self._store.put(chosen)
        becomes_pressing = self._worker.can_linger and self._become_pressing(chosen)
        if is_first or becomes_pressing:
            self._worker.wake()

    def _become_pressing(self, chosen: Entries) -> bool:
        """Return whether events that wait for others are to wait no longer, because of those that have come."""
        self._untaken += len(chosen)
        is_full = self._untaken >= self._worker.batch_size
        if self._is_pressing or not (is_full or any(entry.event.severity >= _PRESSING for entry in chosen)):
            return False
        self._is_pressing = True
        return True

    def wait_for_room(self, weight: int) -> None:
        """A moment's patience with a reporter that is quick, so that a burst is not shed for nothing.

        A reporter that is slow, or fails, is not waited for: that would make the others as slow. One that has been
        waited for in vain is not waited for again before it has shown that it is quick.
        """
        if self._store.is_durable:
            self._store.wait_for_room(weight, _QUICK_SECONDS)
        elif self._quick and not self._worker.in_failure:
            self._quick = self._store.wait_for_room(weight, _QUICK_SECONDS)

    def may_get(self, scope: str | None, name: str | None, severity: Severity) -> bool:
        """Whether an event of that kind, as severe as it can be, would be for this reporter."""
        return self._selection.may_fit(scope, name, severity)

    @property
    def is_durable(self) -> bool:
        """Whether what it holds outlives the process."""
        return self._store.is_durable

    @property
    def guarantee(self) -> str:
        """What is promised for its events."""
        return self._config.guarantee

    @property
    def is_held_back(self) -> bool:
        """Whether its circuit breaker is not closed."""
        return self._breaker.state is not BreakerState.CLOSED

    def unanswered_for(self) -> float:
        """Seconds since the oldest event was accepted that would be lost with this process; 0.0 without one."""
        return self._store.unanswered_for()

    def wait_until_answered(self, timeout: float) -> bool:
        """Waits, at most ``timeout`` seconds, until no event is left that would be lost with this process."""
        return self._store.wait_until_answered(timeout)

    def wait_until_settled(self, timeout: float) -> bool:
        """Wait, at most ``timeout`` seconds, until everything put in is delivered or dropped.

        At the end, a dead destination is waited for until its last try is over. Events that are safe on disk are not
        waited for while the reporter fails.
        """
        deadline = time.monotonic() + timeout
        while not (self._store.is_durable and self._worker.in_failure):
            now = time.monotonic()
            if now >= self._give_up_at:
                self._drop_rest()
            if self._store.wait_until_empty(max(0.0, min(deadline - now, _LOOK_SECONDS))):
                return True
            if now >= deadline:
                return False
        return self._store.wait_until_answered(max(0.0, min(deadline, self._give_up_at) - time.monotonic()))

    def oldest_record(self) -> int | None:
        """The record of the oldest event that would be lost with this process; None when there is none."""
        return self._store.oldest_record()

    def counters(self) -> DeliveryCounters:
        """The account at this moment."""
        counts = self._store.counts()
        return DeliveryCounters(
            accepted=counts.accepted,
            delivered=counts.delivered,
            dropped=counts.dropped,
            held=counts.held,
            spooled=counts.spooled,
            failures=self._failures,
            hung=self.hung,
            timeouts=self.timeouts,
            latency=self._latency,
            oldest_age=counts.oldest_age,
            breaker=self._breaker.state.value,
        )

    def check(self, now: float) -> None:
        """Gives a reporter whose thread is of no use another one, and looks after its store; called now and then.

        Args:
            now: seconds, of ``time.monotonic``.
        """
        self._store.check()
        with self._lock:
            worker = self._worker
            trouble = None if self._deadline is not None else self._trouble(worker, now)
            # It may have come back before there was another one.
            self._unreplaced = self._unreplaced and trouble is not None
            alive = [hung for hung in self._hung if hung.is_alive]
            # With too many that hang, it had its chances; it gets the next one when a thread comes back.
            if trouble is None or len(alive) >= _MOST_HUNG or not self._replace(*trouble):
                return
            worker.abandon()
            self._hung = [*alive, worker]
            self.hung += worker.death is None
            self._failures += 1
            self._store.requeue()
            self._worker.wake()
        what, how = trouble
        _LOG.error(
            "reporter %s: %s (%s); another thread retries its events; set events.reporter.%s.isolation=process to have"
            " a process killed instead",
            self.name,
            what,
            how,
            self.name,
        )

    def _trouble(self, worker: Worker, now: float) -> tuple[str, str] | None:
        """What is wrong with its thread, and how, where it will deliver nothing more."""
        if worker.death is not None:
            return "ended its thread", worker.death
        busy, patience = worker.overdue(now)
        if busy < patience + _GRACE_SECONDS:
            return None
        return "blocks its thread, which is abandoned", f"for {busy:.1f} s"

    def _replace(self, what: str, how: str) -> bool:
        """Whether another worker has taken the place of one that is of no use."""
        if not self._unreplaced:
            # First, so that the successor finds the breaker as it is to be; and once, however often one is tried.
            self._breaker.failed(f"{what}: {how}")
        try:
            successor = self._successor(self._make)
            successor.start()
        except Exception as error:
            # No descriptors or threads left: perhaps the next time.
            if not self._unreplaced:
                self._unreplaced = True
                _LOG.error("reporter %s: %s, and cannot be made anew: %s", self.name, what, self.describe(error))
            return False
        self._unreplaced = False
        self._worker = successor
        return True

    def begin_drain(self) -> None:
        """Begin the end: cut pauses short, and give a dead destination one last attempt of at most 2 s."""
        with self._lock:
            if not self._draining:
                self._draining = True
                self._worker.begin_drain()
                if self._is_dead:
                    self._worker.end_with_next_failure()
                    self._limit()

    @property
    def _is_dead(self) -> bool:
        # Events that are safe on disk need no second failure.
        return self._worker.is_dead or (self._store.is_durable and self._worker.in_failure)

    def _limit(self) -> None:
        """Try a dead destination for 2 s at most; an answer lifts that limit."""
        if self._give_up_at == float("inf"):
            self._give_up_at = time.monotonic() + _LAST_TRY_SECONDS
            self._worker.end_by(self._ends_at)

    def _lift_limit(self) -> None:
        if self._give_up_at != float("inf"):
            self._give_up_at = float("inf")
            self._worker.end_by(self._ends_at)

    @property
    def _ends_at(self) -> float:
        return min(self._stop_by, self._give_up_at)

    def _drop_rest(self) -> None:
        """Drop what a dead destination has not taken; a spool keeps it."""
        if not self._store.is_durable:
            self._store.close(self._give_up_at)

    def request_stop(self, deadline: float) -> None:
        """Deliver what is held until ``deadline`` (of ``time.monotonic``), then stop."""
        with self._lock:
            self.begin_drain()
            self._deadline = self._stop_by = deadline
            if self._store.is_durable:
                self._stop_by -= min(_CLOSE_SECONDS, max(0.0, (deadline - time.monotonic()) / 2))
            self._worker.request_stop(self._ends_at)

    def join(self) -> None:
        """Wait for the thread until the deadline; drop what has not been delivered by then."""
        deadline = time.monotonic() if self._deadline is None else self._deadline
        self._worker.join(max(0.0, min(self._ends_at, deadline) - time.monotonic()))
        dropped = self._close(deadline)
        if lost := dropped.get(SHUTDOWN):
            _LOG.error("reporter %s: %d events were not delivered in time and are lost", self.name, lost)
        self._say_full(dropped)

    def dismiss(self) -> None:
        """It is to get nothing more, and nobody waits: what it is called with at the moment is its last.

        That is what somebody wants: no loss, and nothing for the log.
        """
        now = time.monotonic()
        self.request_stop(now)
        self._say_full(self._close(now))

    def _close(self, deadline: float) -> Mapping[str, int]:
        """Nothing more is taken; returns what was dropped, by reason."""
        with self._lock:
            self._closed = True
        self._store.close(deadline)
        self._worker.wake()
        return self._store.counts().dropped

    def _say_full(self, dropped: Mapping[str, int]) -> None:
        if full := dropped.get("mailbox-full"):
            _LOG.warning("reporter %s: %d events were dropped, its mailbox was full", self.name, full)

    def describe(self, error: BaseException) -> str:
        """For the worker: an error in words that anybody may read."""
        return describe(error, self._hide)

    def take(self, worker: Worker, most: int) -> list[Event]:
        """For the worker: the oldest events."""
        with self._lock:
            if worker is not self._worker or self._closed:
                return []
            self._untaken, self._is_pressing = 0, False
            return self._store.take(most)

    def is_pressing(self, worker: Worker) -> bool:
        """For the worker: whether a batch is full, or an event is not to wait for others."""
        return self._is_pressing or worker is not self._worker

    def is_exhausted(self, worker: Worker) -> bool:
        """For the worker: whether nothing is left for it."""
        return worker is not self._worker or self._closed or self._store.is_exhausted()

    def ack(self, worker: Worker, dropped: str | None, seconds: float, count: int | None = None) -> None:
        """For the worker: what was taken has come to its end."""
        with self._lock:
            if worker is not self._worker or worker.is_abandoned or self._closed:
                return
            self._latency = seconds
            self._quick = seconds < _QUICK_SECONDS
            if dropped == SHUTDOWN and self._store.is_durable:
                self._store.requeue()
            else:
                self._store.ack(dropped, count)
            if dropped == SHUTDOWN:
                self._drop_rest()
            else:
                self._lift_limit()
        self._hooks.on_progress()

    def note_failure(self, worker: Worker) -> None:
        """For the worker: an attempt has failed."""
        with self._lock:
            if worker is self._worker:
                self._failures += 1
                if self._draining and self._is_dead:
                    self._limit()

    def _successor(self, make: Callable[[], Reporter]) -> Worker:
        worker = Worker(self.name, make, self._config, self._breaker, self)
        if self._draining:
            worker.begin_drain()
            worker.end_by(self._ends_at)
        return worker

    def _wake(self) -> None:
        self._worker.wake()

    def _breaker_changed(self, state: BreakerState, why: str) -> None:
        old, self._breaker_state = self._breaker_state, state
        level = logging.WARNING if state is BreakerState.OPEN else logging.INFO
        _LOG.log(level, "reporter %s: its circuit breaker is %s: %s", self.name, state.value, why)
        self._hooks.on_breaker(self.name, old, state, why)
