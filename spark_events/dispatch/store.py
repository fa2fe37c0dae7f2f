"""Interface of the stores that hold a reporter's events until they are settled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from spark_events.dispatch.entries import Entries
from spark_events.event import Event

__all__ = ["Counts", "Store", "dropped_of"]


class Counts(NamedTuple):
    """Snapshot of the counters of a store.

    ``accepted = delivered + sum(dropped) + spooled + held`` holds at every moment.

    Attributes:
        accepted: enqueued events, including those that a predecessor left on disk.
        delivered: events that the reporter has acknowledged.
        dropped: dropped events by reason.
        held: events that exist only in this process.
        spooled: waiting events that are safe on disk.
        oldest_age: seconds since the oldest held or spooled event was accepted.
    """

    accepted: int
    delivered: int
    dropped: Mapping[str, int]
    held: int
    oldest_age: float
    spooled: int = 0


class Store(Protocol):
    """Common interface of a mailbox and a spool.

    One thread enqueues events and another takes them. Taken events stay counted until they are settled or requeued.
    Only methods that say so wait.
    """

    @property
    def is_durable(self) -> bool:
        """Whether the stored events survive the process."""

    def start(self) -> None:
        """Prepare the store, on its own thread if necessary."""

    def check(self) -> None:
        """Check the store's external resources; called several times a second."""

    def put(self, entries: Entries) -> bool:
        """Enqueue entries; return whether to wake the worker now."""

    def take(self, most: int) -> list[Event]:
        """Return the oldest events; they stay in flight until :meth:`ack`.

        Args:
            most: the maximum total weight; a single event may exceed it.
        """

    def ack(self, dropped: str | None = None, count: int | None = None) -> None:
        """Settle the events in flight as delivered or dropped.

        Args:
            dropped: the reason for dropping them; None if all were delivered.
            count: how many of them are dropped; None for all.
        """

    def requeue(self) -> None:
        """Return the events in flight to the front of the queue."""

    def is_exhausted(self) -> bool:
        """Return whether no event is left to take, neither in memory nor on disk."""

    def counts(self) -> Counts:
        """Return a snapshot of the counters."""

    def oldest_record(self) -> int | None:
        """Return the oldest record with an event that exists only in memory, or None."""

    def unanswered_for(self) -> float:
        """Return the age in seconds of the oldest event that exists only in memory.

        Returns:
            0.0 when there is no such event.
        """

    def wait_until_answered(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until no event exists only in memory.

        Returns:
            Whether no such event is left.
        """

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until all events are settled.

        Returns:
            Whether all events are settled.
        """

    def wait_for_room(self, weight: int, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until this weight fits without shedding.

        Returns:
            Whether the weight fits.
        """

    def close(self, deadline: float) -> None:
        """Save what the store can by the deadline, and drop the rest as ``shutdown``.

        Args:
            deadline: in seconds of ``time.monotonic``.
        """


def dropped_of(taken: int, dropped: str | None, count: int | None) -> int:
    """Return how many events in flight a call of :meth:`Store.ack` drops.

    Args:
        taken: the number of events in flight.
        dropped: the reason; None if all were delivered.
        count: how many are dropped; None for all.
    """
    if dropped is None:
        return 0
    return taken if count is None else max(0, min(count, taken))
