"""Bounded queue between the translating thread and the worker of one reporter."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from spark_events.dispatch.entries import Entries, Entry, weight_of
from spark_events.dispatch.queues import FifoQueue, PriorityQueue
from spark_events.dispatch.store import Counts, dropped_of
from spark_events.event import Event

__all__ = ["Mailbox"]


class Mailbox:
    """Bounded FIFO mailbox of one reporter.

    A full mailbox sheds the events of the lowest priority, oldest first.

    Args:
        capacity: the maximum total weight of the events, events in flight included.
        lock: guards the counters; a store that contains this mailbox passes its own lock.
    """

    def __init__(self, capacity: int, lock: threading.RLock | None = None) -> None:
        self._capacity = capacity
        self._lock = lock or threading.RLock()
        self._settled = threading.Condition(self._lock)
        self._waiting: FifoQueue | PriorityQueue = FifoQueue()
        self._in_flight: list[Entry] = []
        # The total weight of waiting events and events in flight.
        self._weight = 0
        self._last_record = 0
        # Entries with an older record than an entry before them; records that were held back cause this.
        self._early: list[Entry] = []
        self._accepted = 0
        self._delivered = 0
        self._dropped: Counter[str] = Counter()

    @property
    def is_durable(self) -> bool:
        """Return False: events in memory do not survive the process."""
        return False

    def start(self) -> None:
        """Do nothing: a mailbox is always ready."""

    def check(self) -> None:
        """Do nothing: a mailbox has no external resources."""

    def put(self, entries: Entries) -> bool:
        """Append entries without waiting; return whether the mailbox was empty before."""
        if not entries:
            return False
        with self._lock:
            was_empty = not self._waiting
            self._accepted += len(entries)
            self._note_early(entries)
            self._weight += entries.weight
            if self._weight > self._capacity:
                self._squeeze(entries)
            else:
                self._waiting.extend(entries)
            return was_empty and len(self._waiting) > 0

    def _squeeze(self, entries: Entries) -> None:
        """Append entries, then shed the weight that exceeds the capacity."""
        queue = self._waiting = self._waiting.by_priority()
        queue.extend(entries)
        has_large = self._has_large
        shed = queue.shed(self._weight - self._capacity, has_large)
        self._weight -= weight_of(shed) if has_large else len(shed)
        self._dropped["mailbox-full"] += len(shed)
        if self._early:
            self._forget_early(shed)

    def _note_early(self, entries: Entries) -> None:
        last = self._last_record
        if entries.is_by_record and entries[0].record >= last:
            self._last_record = entries[-1].record
            return
        for entry in entries:
            if entry.record >= last:
                last = entry.record
            else:
                self._early.append(entry)
        self._last_record = last

    def _forget_early(self, gone: Sequence[Entry]) -> None:
        these = set(map(id, gone))
        self._early = [entry for entry in self._early if id(entry) not in these]

    def take(self, most: int) -> list[Event]:
        """Return the oldest events; they stay in flight until :meth:`ack`.

        Args:
            most: the maximum total weight; a single event may exceed it.
        """
        return [entry.event for entry in self.take_entries(most)]

    def take_entries(self, most: int) -> list[Entry]:
        """Return the oldest events as entries; see :meth:`take`."""
        with self._lock:
            has_large = self._has_large
            taken = self._waiting.take(min(most, len(self._waiting)))
            if has_large:
                fitting = _fitting(taken, most)
                self._waiting.requeue(taken[fitting:])
                taken = taken[:fitting]
            self._in_flight = taken
            if not self._waiting:
                self._waiting = self._waiting.emptied()
            return self._in_flight

    def ack(self, dropped: str | None = None, count: int | None = None) -> None:
        """Settle the events in flight as delivered or dropped.

        Args:
            dropped: the reason for dropping them; None if all were delivered.
            count: how many of them are dropped; None for all.
        """
        with self._lock:
            lost = dropped_of(len(self._in_flight), dropped, count)
            self._delivered += len(self._in_flight) - lost
            if dropped is not None:
                self._dropped[dropped] += lost
            if self._early:
                self._forget_early(self._in_flight)
            self._weight -= weight_of(self._in_flight) if self._has_large else len(self._in_flight)
            self._in_flight = []
            self._settled.notify_all()

    def requeue(self) -> None:
        """Return the events in flight to the front of the queue."""
        with self._lock:
            self._waiting.requeue(self._in_flight)
            self._in_flight = []

    @property
    def _has_large(self) -> bool:
        """Whether an event weighs more than 1; if none does, weights need no summing."""
        return self._weight > len(self._waiting) + len(self._in_flight)

    @property
    def holds_any(self) -> bool:
        """Whether the mailbox holds any unsettled event."""
        return bool(self._waiting or self._in_flight)

    def is_exhausted(self) -> bool:
        """Return whether no event is waiting."""
        return not self._waiting

    def clear(self, reason: str) -> int:
        """Drop all events for this reason; return how many were dropped."""
        with self._lock:
            left = len(self._waiting) + len(self._in_flight)
            self._dropped[reason] += left
            self._waiting = FifoQueue()
            self._early = []
            self._in_flight = []
            self._weight = 0
            self._settled.notify_all()
            return left

    def counts(self) -> Counts:
        """Return a consistent snapshot of the counters."""
        with self._lock:
            return Counts(
                self._accepted,
                self._delivered,
                {reason: count for reason, count in self._dropped.items() if count},
                len(self._waiting) + len(self._in_flight),
                self.unanswered_for(),
            )

    def unanswered_for(self) -> float:
        """Return the age of the oldest unsettled event in seconds; 0.0 without one."""
        with self._lock:
            oldest = min((entry.at for entry in self._heads()), default=None)
            return 0.0 if oldest is None else (time.monotonic_ns() - oldest) / 1e9

    def oldest_record(self) -> int | None:
        """Return the oldest record that has an unsettled event; None without one."""
        with self._lock:
            # A plain loop is faster than min(); the dispatcher calls this after every batch.
            oldest: int | None = None
            for entry in (*self._heads(), *self._early):
                if oldest is None or entry.record < oldest:
                    oldest = entry.record
            return oldest

    def _heads(self) -> list[Entry]:
        """Return entries that include the oldest unsettled entry."""
        return self._in_flight[:1] or self._waiting.heads()

    def wait_until_answered(self, timeout: float) -> bool:
        """Wait until the mailbox is empty; see :meth:`wait_until_empty`.

        The two are the same because no event of a mailbox survives the process.
        """
        return self.wait_until_empty(timeout)

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until all events are settled.

        Returns:
            Whether all events are settled.
        """
        with self._lock:
            return self._settled.wait_for(lambda: not self.holds_any, timeout)

    def wait_for_room(self, weight: int, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until this weight fits without shedding.

        Returns:
            Whether the weight fits.
        """
        with self._lock:
            return self._fits(weight) or self._settled.wait_for(lambda: self._fits(weight), timeout)

    def _fits(self, weight: int) -> bool:
        return self._weight + weight <= self._capacity

    def close(self, deadline: float) -> None:
        """Drop the remaining events as ``shutdown``."""
        self.clear("shutdown")


def _fitting(entries: Sequence[Entry], most: int) -> int:
    """Return how many leading entries weigh at most ``most`` together; at least 1."""
    for count, weight in enumerate(accumulate(entry.weight for entry in entries)):
        if weight > most:
            return max(1, count)
    return len(entries)
