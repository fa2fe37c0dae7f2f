"""Deliver events to all reporters.

The names of the two dispatcher types follow FLIP-545.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from spark_events.config import choice, integer, option, positive_duration
from spark_events.dispatch.delivery import Delivery
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.selection import may_fit
from spark_events.dispatch.telemetry import DeliveryCounters
from spark_events.event import Severity

_LOG = logging.getLogger(__name__)
#: Interval of the watch thread's checks for blocked reporter threads, in seconds.
_WATCH_SECONDS = 0.25
_SHORTEST_WATCH_SECONDS = 0.01


@dataclasses.dataclass(frozen=True, slots=True)
class DispatcherConfig:
    """Settings under ``events.dispatcher.``."""

    type: str = option(
        "type",
        choice("sync", "async-queued"),
        "async-queued",
        doc="sync: Spark's listener thread waits for the answers of all reporters. async-queued: it waits only for "
        "reporters with delivery.guarantee=guaranteed.",
    )
    queue_size: int = option(
        "queue.size",
        integer(1, 1_000_000),
        2048,
        doc="Capacity of the driver's record queue and of each reporter's mailbox.",
    )
    sync_timeout: float = option(
        "sync.timeout", positive_duration, 10.0, doc="Longest time the listener thread waits for reporters."
    )


class DeliveryProgress(NamedTuple):
    """Progress of the reporters.

    Attributes:
        settled_seq: the last record up to which all events are settled or on disk, so that no event would be lost if
            this process died now.
        answered_seq: the last record up to which all reporters that the driver waits for have answered; 0 if the driver
            waits for no reporter.
    """

    settled_seq: int
    answered_seq: int


class Dispatcher:
    """Enqueue events for every reporter; the only waits are those of :meth:`Delivery.wait_for_room`.

    The driver stops waiting for a late reporter until the reporter has caught up. Nor does the driver wait while the
    reporter's circuit breaker is open or half-open. Therefore an unreachable destination delays the driver by one
    timeout in total, not by one timeout per record.

    Args:
        deliveries: one delivery per reporter.
        timeout: how long the driver waits for a reporter, in seconds.
        on_watch: called several times a second from the watch thread.
        sync: whether the driver waits for every reporter; otherwise only for reporters with guaranteed delivery.
    """

    def __init__(
        self,
        deliveries: Sequence[Delivery],
        timeout: float,
        on_watch: Callable[[], None] = lambda: None,
        *,
        sync: bool = False,
    ) -> None:
        self._deliveries = tuple(deliveries)
        self._awaited = tuple(one for one in deliveries if sync or one.config.guarantee == "guaranteed")
        self._timeout = timeout
        # Names of the awaited reporters that are late; the driver waits for them again after they have caught up.
        self._late: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        # The last translated record.
        self._seq = 0
        self._on_watch = on_watch
        self._unwatched: set[str] = set()
        self._stopped = threading.Event()
        self._watch = threading.Thread(target=self._run_watch, name="spark-events-watch", daemon=True)

    def start(self) -> None:
        """Start the delivery of every reporter."""
        for delivery in self._deliveries:
            delivery.start()
        self._watch.start()

    def attach(self, delivery: Delivery) -> None:
        """Add a reporter that receives all later events; the driver does not wait for it."""
        delivery.start()
        with self._lock:
            self._deliveries = (*self._deliveries, delivery)

    def detach(self, delivery: Delivery) -> None:
        """Remove an attached reporter and drop its queued events.

        The reporter's own thread may call this method.
        """
        with self._lock:
            self._deliveries = tuple(one for one in self._deliveries if one is not delivery)
        delivery.dismiss()

    def _run_watch(self) -> None:
        """Detect blocked reporter threads, and call ``on_watch``, several times a second.

        These checks run in their own thread because every other thread may be blocked or busy.
        """
        pause = _WATCH_SECONDS
        while not self._stopped.wait(pause):
            pause = _WATCH_SECONDS
            for delivery in self._deliveries:
                with self._watching(f"reporter {delivery.name}"):
                    delivery.check(time.monotonic())
            with self._watching("the dispatcher"):
                # The driver waits only slightly longer than the timeout, so check again as soon as a reporter can be
                # late.
                pause = max(_SHORTEST_WATCH_SECONDS, min(_WATCH_SECONDS, self.note_late()))
                self._on_watch()

    @contextlib.contextmanager
    def _watching(self, subject: str) -> Iterator[None]:
        """Suppress the errors that a check raises, so that the other checks still run.

        Of errors without a success between them, only the first is logged.
        """
        try:
            yield
            self._unwatched.discard(subject)
        except Exception:
            if subject not in self._unwatched:
                self._unwatched.add(subject)
                _LOG.exception("%s: the check for blocked threads failed; the check is repeated", subject)

    def counters(self) -> dict[str, DeliveryCounters]:
        """Return the current counters of every reporter, by name."""
        return {delivery.name: delivery.counters() for delivery in self._deliveries}

    def begin_drain(self) -> None:
        """Begin to drain: end retry pauses, throttling and the waits of open circuit breakers early."""
        for delivery in self._deliveries:
            delivery.begin_drain()

    def drain(self, until: float, among: Collection[str] | None = None) -> list[str]:
        """Wait until the reporters have settled all their events or the time has come.

        Args:
            until: in seconds of ``time.monotonic``.
            among: the names of the reporters to wait for; None for all.

        Returns:
            The names of the reporters whose events are all settled, or safe on disk.
        """
        return [
            delivery.name
            for delivery in self._deliveries
            if (among is None or delivery.name in among)
            and delivery.wait_until_settled(max(0.0, until - time.monotonic()))
        ]

    def dispatch(self, entries: Sequence[Entry], seq: int, among: Collection[str] | None = None) -> None:
        """Enqueue events for the reporters.

        Args:
            entries: the events in order, each with the number of its record.
            seq: the last translated record, even if it produced no event.
            among: the names of the reporters that receive the events; None for all.
        """
        weight = sum([entry.weight for entry in entries])
        for delivery in self._chosen(among) if entries else ():
            delivery.wait_for_room(weight)
        # progress() takes the same lock, so it counts a record only after the record's events are in every mailbox.
        with self._lock:
            for delivery in self._chosen(among) if entries else ():
                delivery.put(entries)
            self._seq = max(self._seq, seq)

    def _chosen(self, among: Collection[str] | None) -> Sequence[Delivery]:
        return self._deliveries if among is None else [one for one in self._deliveries if one.name in among]

    def progress(self) -> DeliveryProgress:
        """Return the current progress of the reporters."""
        # Compute both numbers in one pass, because the sidecar calls this method after every batch.
        with self._lock:
            settled = answered = self._seq
            for delivery in self._deliveries:
                seq = delivery.store.oldest_seq()
                if seq is not None:
                    settled = min(settled, seq - 1)
                    if self.waits_for(delivery):
                        answered = min(answered, seq - 1)
            return DeliveryProgress(settled, answered if self._awaited else 0)

    def may_await(self, scope: str | None, name: str | None, severity: Severity) -> bool:
        """Return whether the driver may wait for a reporter of such events; see :func:`may_fit`."""
        return any(may_fit(delivery.selection, scope, name, severity) for delivery in self._awaited)

    def waits_for(self, delivery: Delivery) -> bool:
        """Return whether the driver currently waits for this reporter."""
        return delivery in self._awaited and delivery.name not in self._late and not delivery.is_paused

    def note_late(self) -> float:
        """Update the set of late reporters.

        Returns:
            The seconds until the next reporter may become late.
        """
        left = {delivery: self._timeout - delivery.store.unanswered_for() for delivery in self._awaited}
        late = frozenset(delivery.name for delivery in self._awaited if left[delivery] < 0)
        for delivery in self._awaited:
            # The driver does not wait while the breaker is open or half-open, so this is not a timeout.
            if delivery.name in late - self._late and not delivery.is_paused:
                delivery.tally.timeouts += 1
                if delivery.tally.timeouts == 1:
                    _LOG.warning(
                        "reporter %s: did not answer within spark.events.dispatcher.sync.timeout (%g s); Spark does not"
                        " wait for it until it has caught up; check its destination, or raise the timeout",
                        delivery.name,
                        self._timeout,
                    )
        self._late = late
        return min((seconds for seconds in left.values() if seconds >= 0), default=self._timeout)

    def stop(self, until: float) -> None:
        """Deliver the remaining events of all reporters in parallel, then stop.

        Args:
            until: in seconds of ``time.monotonic``.
        """
        for delivery in self._deliveries:
            delivery.request_stop(until)
        # Join deliveries with a spool first, because they must write their remaining events to disk in time.
        for delivery in sorted(self._deliveries, key=lambda delivery: not delivery.is_durable):
            delivery.join()
        self._stopped.set()
