"""Delivery of one reporter: connects the stages from the filter to the reporter.

::

    dispatcher's thread      filter ─▶ queue (mailbox or spool)
    reporter's thread                    └▶ batch ─▶ retry ─▶ breaker ─▶ timeout ─▶ reporter

Each stage is a class in its own file, ``<name>_stage.py``, which knows only the next one. The idea is from the
OpenTelemetry Collector's ``exporterhelper``.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from spark_events.dispatch.breaker import Breaker, BreakerConfig, BreakerState
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.drain import Drain
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.filter_stage import FilterStage
from spark_events.dispatch.fullness import Fullness
from spark_events.dispatch.mailbox import Mailbox
from spark_events.dispatch.queue_stage import QueueStage
from spark_events.dispatch.reporter_calls import describe
from spark_events.dispatch.reporter_thread import ReporterThread
from spark_events.dispatch.reporter_threads import ReporterThreads
from spark_events.dispatch.selection import SelectionConfig
from spark_events.dispatch.tally import QUICK_SECONDS, Tally
from spark_events.dispatch.telemetry import DeliveryCounters
from spark_events.dispatch.turn import SHUTDOWN, Store, Turn
from spark_events.reporters.reporter import Reporter

#: Store factory. It receives two callbacks: the first wakes the thread, the second reports progress.
MakeStore: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], Store]

_LOG = logging.getLogger(__name__)
#: Interval at which a drain checks for a dead destination, in seconds.
_LOOK_SECONDS = 0.1
#: Time at the end of a stop that is reserved for writing the remaining events to disk, in seconds.
_CLOSE_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of a delivery; any thread may call them.

    Attributes:
        on_progress: called after events are settled or written to disk.
        on_breaker: called with the reporter's name, the old and the new breaker state, and the reason.
        on_fullness: called with the reporter's name, whether its queue has become nearly full or that is over, and the
            fraction of its capacity that is in use.
    """

    on_progress: Callable[[], None] = lambda: None
    on_breaker: Callable[[str, BreakerState, BreakerState, str], None] = lambda *_: None
    on_fullness: Callable[[str, bool, float], None] = lambda *_: None


class Delivery:
    """Accept events without waiting, and deliver them in order with retries.

    Attributes:
        store: holds the events until they are settled.
        make: creates the reporter.
        selection: the settings that select the events of this reporter.
        tally: counts of the attempts.
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
        clock: returns monotonic time in seconds.
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.make = make
        self.selection = selection or SelectionConfig()
        # Send at most half of the mailbox at once, so that a new event of higher priority can still displace a waiting
        # event.
        self.config = dataclasses.replace(config, batch_size=min(config.batch_size, max(1, capacity // 2)))
        self._hooks = hooks or Hooks()
        self._clock = clock
        self.tally = Tally()
        lock = threading.RLock()
        self._breaker = Breaker(breaker or BreakerConfig(), clock, self._breaker_changed)
        self.store: Store = store(self._wake, self._hooks.on_progress) if store else Mailbox(capacity)
        self._drain = Drain(_CLOSE_SECONDS if self.store.is_durable else 0.0, clock)
        self._fullness = Fullness(lambda: self.store.fullness, self.tally, self._fullness_changed)
        describe_it = partial(describe, hide=hide)

        def employ(make: Callable[[], Reporter]) -> ReporterThread:
            turn = Turn(self.store, lock, self._drain, self.tally, self._hooks.on_progress)
            return ReporterThread(name, make, self.config, self._breaker, turn, self._drain, describe_it, clock)

        self._threads = ReporterThreads(name, make, employ, lock, self._breaker, self.tally, describe_it)
        self._first = FilterStage(self.selection, QueueStage(self.store, self._threads.arrived))

    def start(self) -> None:
        """Start the store and the reporter's thread.

        Raises:
            RuntimeError: when the system cannot start another thread.
        """
        self.store.start()
        self._threads.current.start()

    def put(self, entries: Sequence[Entry]) -> None:
        """Enqueue the events that the selection accepts, without waiting."""
        self._first.put(entries)

    def wait_for_room(self, weight: int) -> None:
        """Wait briefly for a fast reporter, to avoid shedding in a burst.

        A wait for a slow or failing reporter would delay the other reporters, so the dispatcher waits only for a fast
        reporter. If no space becomes free during a wait, the dispatcher waits again only after the reporter has
        accepted a batch quickly.
        """
        if self.is_durable:
            self.store.wait_for_room(weight, QUICK_SECONDS)
        elif self.tally.is_quick and not self._threads.current.health.in_failure:
            self.tally.is_quick = self.store.wait_for_room(weight, QUICK_SECONDS)

    @property
    def is_durable(self) -> bool:
        """Whether undelivered events survive the process."""
        return self.store.is_durable

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
        until = self._clock() + timeout
        while not (self.is_durable and self._threads.current.health.in_failure):
            left = until - self._clock()
            if self._drain.has_given_up and not self.is_durable:
                self.store.close(self._clock())
            if self.store.wait_until_empty(max(0.0, min(left, _LOOK_SECONDS))):
                return True
            if left <= 0:
                return False
        return self.store.wait_until_answered(max(0.0, min(until, self._drain.ends_at) - self._clock()))

    def counters(self) -> DeliveryCounters:
        """Return the current counters."""
        return DeliveryCounters(
            **dataclasses.asdict(self.store.counts()),
            failures=self.tally.failures,
            hung=self.tally.hung,
            timeouts=self.tally.timeouts,
            latency=self.tally.latency,
            latencies=self.tally.quantiles(),
            queue_usage=self.store.fullness,
            breaker=self._breaker.state.value,
        )

    def check(self, now: float) -> None:
        """Check the store, and replace a reporter's thread that is blocked or dead.

        The watch thread calls this several times a second.

        Args:
            now: the current time in seconds of ``time.monotonic``.
        """
        self.store.check()
        if not self._drain.is_active:
            self._fullness.check()
        if self._drain.until is None:
            self._threads.check(now, self.grace)

    def begin_drain(self) -> None:
        """Begin to drain: end pauses early, and call a dead destination one last time.

        This last attempt may take 2 s.
        """
        self._drain.begin(is_dead=self._threads.current.health.is_dead)
        self._threads.wake()

    def request_stop(self, until: float) -> None:
        """Begin to deliver the remaining events, and stop at that time.

        Args:
            until: in seconds of ``time.monotonic``.
        """
        self.begin_drain()
        self._drain.stop(until)
        self._threads.wake()

    def join(self) -> None:
        """Wait until the thread ends or the time is over, then drop all undelivered events."""
        self._threads.current.join(self._drain.time_left())
        # During the drain, a dead thread is not replaced, which would log its error.
        death = self._threads.current.death
        dropped = self._close()
        if lost := dropped.get(SHUTDOWN):
            why = "before the shutdown timeout" if death is None else f"because the reporter ended its thread ({death})"
            _LOG.error("reporter %s: %d events were not delivered %s and are lost", self.name, lost, why)

    def dismiss(self) -> None:
        """Stop the delivery immediately, without waiting for its thread.

        The call in progress is the last one. The user requested the removal, so the dropped events are not logged as an
        error.
        """
        self.request_stop(self._clock())
        self._close()

    def _close(self) -> Mapping[str, int]:
        """Stop delivering events; return the number of dropped events by reason."""
        self._threads.current.dismiss()
        until = self._drain.until
        self.store.close(self._clock() if until is None else until)
        dropped = self.store.counts().dropped
        if full := dropped.get("mailbox-full"):
            _LOG.warning("reporter %s: %d events were dropped because its mailbox was full", self.name, full)
        return dropped

    def _wake(self) -> None:
        self._threads.wake()

    def _breaker_changed(self, old: BreakerState, state: BreakerState, why: str) -> None:
        level = logging.WARNING if state is BreakerState.OPEN else logging.INFO
        _LOG.log(level, "reporter %s: its circuit breaker is %s: %s", self.name, state.value, why)
        self._hooks.on_breaker(self.name, old, state, why)

    def _fullness_changed(self, is_nearly_full: bool, fraction: float) -> None:
        self._hooks.on_fullness(self.name, is_nearly_full, fraction)
        if not is_nearly_full:
            return
        is_failing = self._threads.current.health.in_failure
        keys = f"spark.events.reporter.{self.name}"
        _LOG.warning(
            "reporter %s: its mailbox is %d %% full because %s; a full mailbox drops the least severe events first;"
            " %s, raise spark.events.dispatcher.queue.size%s",
            self.name,
            min(100, int(fraction * 100)),
            "its attempts fail" if is_failing else "events arrive faster than it delivers them",
            "repair its destination" if is_failing else f"narrow {keys}.filter.includes",
            "" if self.is_durable else f", or set {keys}.delivery.guarantee=at-least-once",
        )
