"""Delivery of one reporter: its store, worker, circuit breaker and counters."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from spark_events.dispatch.breaker import Breaker, BreakerConfig, BreakerState
from spark_events.dispatch.calls import describe, made
from spark_events.dispatch.config import DeliveryConfig
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.mailbox import Mailbox
from spark_events.dispatch.retry_loop import SHUTDOWN
from spark_events.dispatch.selection import SelectionConfig, selector
from spark_events.dispatch.spool.spool import Spool
from spark_events.dispatch.telemetry import DeliveryCounters
from spark_events.dispatch.worker import Worker
from spark_events.event import Event, Severity
from spark_events.reporters.reporter import Reporter

Store: TypeAlias = Mailbox | Spool
#: Store factory. It receives two callbacks: the first wakes the worker, the second reports progress.
MakeStore: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], Store]

#: Minimum severity of events that end the linger time at once, such as failures.
_PRESSING = Severity.WARN
_LOG = logging.getLogger(__name__)
#: A reporter is fast if it accepts a batch within this time, in seconds. The dispatcher waits up to this long for space
#: in a fast reporter's mailbox.
_QUICK_SECONDS = 0.01
#: Maximum number of blocked threads per reporter. At this limit, the delivery no longer replaces a blocked thread,
#: because blocked threads may use CPU time and slow down other reporters.
_MOST_HUNG = 4
#: Fill level of a mailbox that causes a warning, and the lower level that allows the next warning.
_NEARLY_FULL, _HALF_FULL = 0.9, 0.5
#: Interval at which a drain checks for a dead destination, in seconds.
_LOOK_SECONDS = 0.1
#: How long a drain keeps trying to reach a dead destination, in seconds.
_LAST_TRY_SECONDS = 2.0
#: Time before the deadline that is reserved for writing the remaining events to disk, in seconds.
_CLOSE_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of a delivery; any thread may call them.

    Attributes:
        on_progress: called after events are settled or written to disk.
        on_breaker: called with the reporter's name, the old and the new breaker state, and the reason.
    """

    on_progress: Callable[[], None] = lambda: None
    on_breaker: Callable[[str, BreakerState, BreakerState, str], None] = lambda *_: None


class Delivery:
    """Accept events without waiting, and deliver them in order with retries.

    Attributes:
        store: holds the events until they are settled.
        is_durable: whether undelivered events survive the process.
        make: creates the reporter.
        selection: the settings that select the events of this reporter.
        grace: how long a call may exceed its time limit, in seconds. After that, it counts as blocking its thread.

    Args:
        name: the reporter's name in the configuration.
        make: creates the reporter; called again in a replacement thread if the reporter blocks or ends its thread.
        config: batch sizes, timeouts and retry intervals.
        capacity: the maximum total weight of the events in memory.
        hooks: callbacks for progress and breaker changes.
        selection: the settings that select the events of this reporter; None selects all.
        breaker: settings of the circuit breaker.
        store: creates the store; None for a mailbox.
        hide: removes the reporter's secrets from a string.
    """

    grace = 0.5

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
        # Send at most half of the mailbox at once, so that a new event of higher priority can still displace a waiting
        # event.
        self._config = dataclasses.replace(config, batch_size=min(config.batch_size, max(1, capacity // 2)))
        self.make = make
        self._hooks = hooks or Hooks()
        self.selection = selection or SelectionConfig()
        self._select = selector(self.selection)
        self._breaker_state = BreakerState.CLOSED
        self._breaker = Breaker(breaker or BreakerConfig(), time.monotonic, self._breaker_changed)
        self.store: Store = store(self._wake, self._hooks.on_progress) if store else Mailbox(capacity)
        self.is_durable = self.store.is_durable
        self._lock = threading.RLock()
        self._failures = 0
        self._closed = False
        self._latency = 0.0
        self._quick = True
        self._unreplaced = False
        self._warned_of_fullness = False
        self._draining = False
        # Number of events accepted since the worker last fetched a batch, and whether the worker must send them without
        # further linger.
        self._untaken = 0
        self._is_due = False
        self._hung: list[Worker] = []
        self._deadline: float | None = None
        self._stop_by = float("inf")
        # Time at which a drain stops trying to reach a dead destination, in seconds of time.monotonic.
        self._stop_trying_at = float("inf")
        self.hung = 0
        self.timeouts = 0
        # Create the first reporter here, so that the caller receives an error raised by the reporter's constructor.
        first = made(make)
        self._worker = self._successor(lambda: first)

    def start(self) -> None:
        """Start the store and the reporter's thread.

        Raises:
            RuntimeError: when the system cannot start another thread.
        """
        self.store.start()
        self._worker.start()

    def put(self, entries: Sequence[Entry]) -> None:
        """Enqueue the events that the selection accepts, without waiting."""
        chosen = self._select(entries)
        is_first = self.store.put(chosen)
        ends_linger = self._worker.can_linger and self._end_linger(chosen)
        if is_first or ends_linger:
            self._worker.wake()

    def _end_linger(self, chosen: Sequence[Entry]) -> bool:
        """Return whether the new events end the linger time, in which case the worker must send the queue now."""
        self._untaken += len(chosen)
        is_full = self._untaken >= self._worker.batch_size
        if self._is_due or not (is_full or any(entry.event.severity >= _PRESSING for entry in chosen)):
            return False
        self._is_due = True
        return True

    def wait_for_room(self, weight: int) -> None:
        """Wait briefly for a fast reporter, to avoid shedding in a burst.

        A wait for a slow or failing reporter would delay the other reporters, so the dispatcher waits only for a fast
        reporter. If no space becomes free during a wait, the dispatcher waits again only after the reporter has
        accepted a batch quickly.
        """
        if self.is_durable:
            self.store.wait_for_room(weight, _QUICK_SECONDS)
        elif self._quick and not self._worker.retry_loop.in_failure:
            self._quick = self.store.wait_for_room(weight, _QUICK_SECONDS)

    @property
    def guarantee(self) -> str:
        """The configured ``delivery.guarantee``."""
        return self._config.guarantee

    @property
    def is_paused(self) -> bool:
        """Whether the circuit breaker is open or half-open."""
        return self._breaker.state is not BreakerState.CLOSED

    def wait_until_settled(self, timeout: float) -> bool:
        """Wait until all events are settled, at most ``timeout`` seconds.

        If the destination is dead during a drain, the wait ends after the last attempt. If the reporter fails, events
        that are safe on disk count as settled.

        Returns:
            Whether all events are settled.
        """
        deadline = time.monotonic() + timeout
        while not (self.is_durable and self._worker.retry_loop.in_failure):
            now = time.monotonic()
            if now >= self._stop_trying_at:
                self._drop_rest()
            if self.store.wait_until_empty(max(0.0, min(deadline - now, _LOOK_SECONDS))):
                return True
            if now >= deadline:
                return False
        return self.store.wait_until_answered(max(0.0, min(deadline, self._stop_trying_at) - time.monotonic()))

    def counters(self) -> DeliveryCounters:
        """Return the current counters."""
        return DeliveryCounters(
            **dataclasses.asdict(self.store.counts()),
            failures=self._failures,
            hung=self.hung,
            timeouts=self.timeouts,
            latency=self._latency,
            breaker=self._breaker.state.value,
        )

    def check(self, now: float) -> None:
        """Check the store, and replace a worker whose thread is blocked or dead.

        The watch thread calls this several times a second.

        Args:
            now: the current time in seconds of ``time.monotonic``.
        """
        self.store.check()
        self._warn_if_nearly_full()
        with self._lock:
            worker = self._worker
            fault = None if self._deadline is not None else self._fault(worker, now)
            # The blocked thread has recovered, so it needs no replacement.
            self._unreplaced = self._unreplaced and fault is not None
            alive = [hung for hung in self._hung if hung.is_alive]
            # At the limit, start no replacement until one of the blocked threads has ended.
            if fault is None or len(alive) >= _MOST_HUNG or not self._replace(*fault):
                return
            worker.retry_loop.abandon()
            self._hung = [*alive, worker]
            self.hung += worker.death is None
            self._failures += 1
            self.store.requeue()
            self._worker.wake()
        what, how = fault
        _LOG.error(
            "reporter %s: %s (%s); another thread retries its events; set spark.events.reporter.%s.isolation=process"
            " to run it in a process, which can be killed",
            self.name,
            what,
            how,
            self.name,
        )

    def _warn_if_nearly_full(self) -> None:
        fullness = self.store.fullness
        if fullness < _NEARLY_FULL or self._draining:
            self._warned_of_fullness = self._warned_of_fullness and fullness >= _HALF_FULL
            return
        if self._warned_of_fullness:
            return
        self._warned_of_fullness = True
        is_failing = self._worker.retry_loop.in_failure
        keys = f"spark.events.reporter.{self.name}"
        _LOG.warning(
            "reporter %s: its mailbox is %d %% full because %s; a full mailbox drops the least severe events first;"
            " %s, raise spark.events.dispatcher.queue.size%s",
            self.name,
            min(100, int(fullness * 100)),
            "its attempts fail" if is_failing else "events arrive faster than it delivers them",
            "repair its destination" if is_failing else f"narrow {keys}.filter.includes",
            "" if self.is_durable else f", or set {keys}.delivery.guarantee=at-least-once",
        )

    def _fault(self, worker: Worker, now: float) -> tuple[str, str] | None:
        """Return what is wrong with the worker's thread, and details; None if the thread is healthy."""
        if worker.death is not None:
            return "ended its thread", worker.death
        busy, patience = worker.overdue(now)
        if busy < patience + self.grace:
            return None
        return "blocks its thread, which is abandoned", f"for {busy:.1f} s"

    def _replace(self, what: str, how: str) -> bool:
        """Replace the current worker; return whether the replacement has started."""
        if not self._unreplaced:
            # Count the failure only once, before the first attempt to start a replacement.
            self._breaker.failed(f"{what}: {how}")
        try:
            successor = self._successor(self.make)
            successor.start()
        except Exception as error:
            # The system may have no free file descriptors or threads; the next check tries again.
            if not self._unreplaced:
                self._unreplaced = True
                _LOG.error(
                    "reporter %s: %s; cannot start a replacement thread, retrying: %s",
                    self.name,
                    what,
                    self.describe(error),
                )
            return False
        self._unreplaced = False
        self._worker = successor
        return True

    def begin_drain(self) -> None:
        """Begin to drain: end pauses early, and call a dead destination one last time.

        This last attempt may take 2 s.
        """
        with self._lock:
            if not self._draining:
                self._draining = True
                self._worker.retry_loop.begin_drain()
                if self._is_dead:
                    self._worker.retry_loop.end_with_next_failure()
                    self._limit()

    @property
    def _is_dead(self) -> bool:
        loop = self._worker.retry_loop
        # If the events are safe on disk, a single failure is enough to treat the destination as dead.
        return loop.is_dead or (self.is_durable and loop.in_failure and not loop.asks_for_pause)

    def _limit(self) -> None:
        """Stop attempts at a dead destination after 2 s; an answer removes this limit."""
        if self._stop_trying_at == float("inf"):
            self._stop_trying_at = time.monotonic() + _LAST_TRY_SECONDS
            self._worker.retry_loop.end_by(self._ends_at)

    def _lift_limit(self) -> None:
        if self._stop_trying_at != float("inf"):
            self._stop_trying_at = float("inf")
            self._worker.retry_loop.end_by(self._ends_at)

    @property
    def _ends_at(self) -> float:
        return min(self._stop_by, self._stop_trying_at)

    def _drop_rest(self) -> None:
        """Drop the remaining events for a dead destination, except the events in a spool."""
        if not self.is_durable:
            self.store.close(self._stop_trying_at)

    def request_stop(self, deadline: float) -> None:
        """Begin to deliver the remaining events, and stop at the deadline.

        Args:
            deadline: in seconds of ``time.monotonic``.
        """
        with self._lock:
            self.begin_drain()
            self._deadline = self._stop_by = deadline
            if self.is_durable:
                self._stop_by -= min(_CLOSE_SECONDS, max(0.0, (deadline - time.monotonic()) / 2))
            self._worker.request_stop(self._ends_at)

    def join(self) -> None:
        """Wait until the worker ends or the deadline passes, then drop all undelivered events."""
        deadline = time.monotonic() if self._deadline is None else self._deadline
        self._worker.join(max(0.0, min(self._ends_at, deadline) - time.monotonic()))
        dropped = self._close(deadline)
        if lost := dropped.get(SHUTDOWN):
            _LOG.error(
                "reporter %s: %d events were not delivered before the shutdown timeout and are lost", self.name, lost
            )
        self._log_full(dropped)

    def dismiss(self) -> None:
        """Stop the delivery immediately, without waiting for its thread.

        The call in progress is the last one. The user requested the removal, so the dropped events are not logged as an
        error.
        """
        now = time.monotonic()
        self.request_stop(now)
        self._log_full(self._close(now))

    def _close(self, deadline: float) -> Mapping[str, int]:
        """Stop accepting and delivering events; return the number of dropped events by reason."""
        with self._lock:
            self._closed = True
        self.store.close(deadline)
        self._worker.wake()
        return self.store.counts().dropped

    def _log_full(self, dropped: Mapping[str, int]) -> None:
        if full := dropped.get("mailbox-full"):
            _LOG.warning("reporter %s: %d events were dropped because its mailbox was full", self.name, full)

    def describe(self, error: BaseException) -> str:
        """Return the error as a string, with secrets hidden; called by the worker."""
        return describe(error, self._hide)

    def take(self, worker: Worker, most: int) -> list[Event]:
        """Return the oldest events; an empty list if the worker has been replaced. Called by the worker."""
        with self._lock:
            if worker is not self._worker or self._closed:
                return []
            self._untaken, self._is_due = 0, False
            return self.store.take(most)

    def is_due(self, worker: Worker) -> bool:
        """Return whether the worker must send the queued events without further linger; called by the worker."""
        return self._is_due or worker is not self._worker

    def is_exhausted(self, worker: Worker) -> bool:
        """Return whether this worker has no more events to deliver; called by the worker.

        If events remain that cannot be taken yet, the store will wake the worker.
        """
        return worker is not self._worker or self._closed or self.store.is_exhausted()

    def ack(self, worker: Worker, dropped: str | None, seconds: float, count: int | None = None) -> None:
        """Settle the events in flight as delivered or dropped; called by the worker.

        Args:
            worker: the calling worker.
            dropped: the reason for dropping events; None if all were delivered.
            seconds: how long the delivery took, retries included.
            count: the number of dropped events; None for all.
        """
        with self._lock:
            if worker is not self._worker or worker.retry_loop.abandoned or self._closed:
                return
            self._latency = seconds
            self._quick = seconds < _QUICK_SECONDS
            if dropped == SHUTDOWN and self.is_durable:
                self.store.requeue()
            else:
                self.store.ack(dropped, count)
            if dropped == SHUTDOWN:
                self._drop_rest()
            else:
                self._lift_limit()
        self._hooks.on_progress()

    def note_failure(self, worker: Worker) -> None:
        """Count a failed attempt; called by the worker."""
        with self._lock:
            if worker is self._worker:
                self._failures += 1
                if self._draining and self._is_dead:
                    self._limit()

    def _successor(self, make: Callable[[], Reporter]) -> Worker:
        worker = Worker(self.name, make, self._config, self._breaker, self)
        if self._draining:
            worker.retry_loop.begin_drain()
            worker.retry_loop.end_by(self._ends_at)
        return worker

    def _wake(self) -> None:
        self._worker.wake()

    def _breaker_changed(self, state: BreakerState, why: str) -> None:
        old, self._breaker_state = self._breaker_state, state
        level = logging.WARNING if state is BreakerState.OPEN else logging.INFO
        _LOG.log(level, "reporter %s: its circuit breaker is %s: %s", self.name, state.value, why)
        self._hooks.on_breaker(self.name, old, state, why)
