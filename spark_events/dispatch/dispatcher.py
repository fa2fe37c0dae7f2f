"""Fans events out to every reporter. The two types, and their names, are FLIP-545's."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from spark_events.config import choice, integer, option, positive_duration
from spark_events.dispatch.counters import DeliveryCounters
from spark_events.dispatch.delivery import Delivery
from spark_events.dispatch.entries import Entries, Entry
from spark_events.dispatch.sync_reporters import SyncReporters
from spark_events.event import Severity

__all__ = [
    "AsyncQueuedDispatcher",
    "DeliveryProgress",
    "DispatcherConfig",
    "EventDispatcher",
    "SyncDispatcher",
    "create",
]

_LOG = logging.getLogger(__name__)
#: How often it is looked whether a reporter blocks its thread.
_WATCH_SECONDS = 0.25
_SHORTEST_WATCH_SECONDS = 0.01


@dataclasses.dataclass(frozen=True, slots=True)
class DispatcherConfig:
    """``events.dispatcher.…``"""

    type: str = option(
        "type",
        choice("sync", "async-queued"),
        "async-queued",
        doc="sync: Spark's listener thread waits until every reporter has answered. async-queued: it waits only for"
        " those with delivery.guarantee=guaranteed.",
    )
    queue_size: int = option(
        "queue.size",
        integer(1, 1_000_000),
        2048,
        doc="How many records the driver holds until they are acknowledged, and events each reporter's mailbox.",
    )
    sync_timeout: float = option(
        "sync.timeout", positive_duration, 10.0, doc="How long the listener thread waits at most, where it waits."
    )


class DeliveryProgress(NamedTuple):
    """How far the reporters have got.

    Attributes:
        completed: the last record of which, and of all before, no event would be lost with this process.
        answered: the last record up to which every reporter has answered that the driver waits for; 0: it waits for
            none.
    """

    completed: int
    answered: int


class EventDispatcher(Protocol):
    """What becomes of events once they are made."""

    def start(self) -> None:
        """Starts every reporter's delivery."""

    def dispatch(self, entries: Sequence[Entry], through: int) -> None:
        """Gives events to the reporters.

        Args:
            entries: the events, in order, with the records they came from.
            through: the last record that has been translated, whether or not it made an event.
        """

    def attach(self, delivery: Delivery) -> None:
        """Adds a reporter, which gets what is dispatched from now on; nobody waits for its answers."""

    def detach(self, delivery: Delivery) -> None:
        """Takes a reporter out that was attached, also from its own thread; what waits for it is dropped."""

    def progress(self) -> DeliveryProgress:
        """How far the reporters have got at this moment."""

    def awaits(self, scope: str | None, name: str | None, severity: Severity) -> bool:
        """Whether the driver has to wait for the answers to events of that kind, as severe as they can be."""

    def counters(self) -> dict[str, DeliveryCounters]:
        """The account of every reporter at this moment, by name."""

    def begin_drain(self) -> None:
        """The end is near: reporters that are held back, or asked for a pause, are tried all the same."""

    def drain(self, deadline: float, among: Collection[str] | None = None) -> list[str]:
        """Waits, until ``deadline`` (``time.monotonic``) at most, for everything to come to its end.

        Args:
            deadline: of ``time.monotonic``.
            among: the reporters that are waited for, by name; None: all.

        Returns:
            The names of those that have nothing left.
        """

    def stop(self, deadline: float) -> None:
        """Delivers what is left, all reporters side by side, until ``deadline`` (``time.monotonic``)."""


class AsyncQueuedDispatcher:
    """Offers to every reporter and returns; the driver waits for those that guarantee delivery, and for no others.

    Args:
        deliveries: one a reporter.
        timeout: how long the driver waits for a reporter, in seconds.
        on_watch: called several times a second, from a thread that does nothing else.
    """

    def __init__(
        self, deliveries: Sequence[Delivery], timeout: float, on_watch: Callable[[], None] = lambda: None
    ) -> None:
        self._deliveries = tuple(deliveries)
        self._awaited = SyncReporters([delivery for delivery in deliveries if self._awaits(delivery)], timeout)
        self._lock = threading.Lock()
        self._dispatched = 0
        self._on_watch = on_watch
        self._unwatched: set[str] = set()
        self._stopped = threading.Event()
        self._watch = threading.Thread(target=self._watch_over, name="spark-events-watch", daemon=True)

    @staticmethod
    def _awaits(delivery: Delivery) -> bool:
        """Whether the driver waits for its answers."""
        return delivery.guarantee == "guaranteed"

    def start(self) -> None:
        for delivery in self._deliveries:
            delivery.start()
        self._watch.start()

    def attach(self, delivery: Delivery) -> None:
        delivery.start()
        with self._lock:
            self._deliveries = (*self._deliveries, delivery)

    def detach(self, delivery: Delivery) -> None:
        with self._lock:
            self._deliveries = tuple(one for one in self._deliveries if one is not delivery)
        delivery.dismiss()

    def _watch_over(self) -> None:
        """Looks after reporters that block their threads: nobody else is free to notice."""
        pause = _WATCH_SECONDS
        while not self._stopped.wait(pause):
            pause = _WATCH_SECONDS
            for delivery in self._deliveries:
                with self._watching(f"reporter {delivery.name}"):
                    delivery.check(time.monotonic())
            with self._watching("the dispatcher"):
                # On time where somebody waits: the driver has a little patience beyond the timeout, and none to spare.
                pause = max(_SHORTEST_WATCH_SECONDS, min(_WATCH_SECONDS, self._awaited.look()))
                self._on_watch()

    @contextlib.contextmanager
    def _watching(self, whom: str) -> Iterator[None]:
        """What goes wrong with the watch over one is said once, and costs none of the others theirs."""
        try:
            yield
        except Exception:
            if whom not in self._unwatched:
                self._unwatched.add(whom)
                _LOG.exception("%s: cannot be watched; it is tried again", whom)

    def counters(self) -> dict[str, DeliveryCounters]:
        return {delivery.name: delivery.counters() for delivery in self._deliveries}

    def begin_drain(self) -> None:
        for delivery in self._deliveries:
            delivery.begin_drain()

    def drain(self, deadline: float, among: Collection[str] | None = None) -> list[str]:
        return [
            delivery.name
            for delivery in self._deliveries
            if (among is None or delivery.name in among)
            and delivery.wait_until_settled(max(0.0, deadline - time.monotonic()))
        ]

    def dispatch(self, entries: Sequence[Entry], through: int) -> None:
        together = Entries(entries)
        for delivery in self._deliveries if together else ():
            delivery.wait_for_room(together.weight)
        # Under the lock, so that progress() never sees records as dispatched whose events have not reached every
        # mailbox yet.
        with self._lock:
            for delivery in self._deliveries if together else ():
                delivery.put(together)
            self._dispatched = max(self._dispatched, through)

    def progress(self) -> DeliveryProgress:
        # One pass for both, for it is asked for after every batch.
        with self._lock:
            completed = answered = self._dispatched
            for delivery in self._deliveries:
                record = delivery.oldest_record()
                if record is not None:
                    completed = min(completed, record - 1)
                    if delivery in self._awaited:
                        answered = min(answered, record - 1)
            return DeliveryProgress(completed, answered if self._awaited else 0)

    def awaits(self, scope: str | None, name: str | None, severity: Severity) -> bool:
        return self._awaited.may_get(scope, name, severity)

    def stop(self, deadline: float) -> None:
        for delivery in self._deliveries:
            delivery.request_stop(deadline)
        # Those first that have something to do behind their last event, which is to write it down.
        for delivery in sorted(self._deliveries, key=lambda delivery: not delivery.is_durable):
            delivery.join()
        self._stopped.set()


class SyncDispatcher(AsyncQueuedDispatcher):
    """The same, and the driver waits for every reporter."""

    @staticmethod
    def _awaits(delivery: Delivery) -> bool:
        return True


def create(
    config: DispatcherConfig, deliveries: Sequence[Delivery], on_watch: Callable[[], None] = lambda: None
) -> EventDispatcher:
    """The dispatcher that the configuration asks for."""
    types = {"sync": SyncDispatcher, "async-queued": AsyncQueuedDispatcher}
    return types[config.type](deliveries, config.sync_timeout, on_watch)
