"""A reporter's mailbox: bounded, between the thread that translates and the reporter's own loop."""

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
    """First in, first out; a full one sheds the events of the lowest priority, oldest first.

    Args:
        capacity: the most weight it holds, events in flight included.
        lock: guards the counters; shared with an owner that this mailbox is a part of.
    """

    def __init__(self, capacity: int, lock: threading.RLock | None = None) -> None:
        self._capacity = capacity
        self._lock = lock or threading.RLock()
        self._settled = threading.Condition(self._lock)
        self._waiting: FifoQueue | PriorityQueue = FifoQueue()
        self._in_flight: list[Entry] = []
        # Of all of these.
        self._weight = 0
        self._last_record = 0
        # Entries whose record is older than that of an entry before them: what time makes of records that were
        # held back.
        self._early: list[Entry] = []
        self._accepted = 0
        self._delivered = 0
        self._dropped: Counter[str] = Counter()

    @property
    def is_durable(self) -> bool:
        """What is in memory is gone with the process."""
        return False

    def start(self) -> None:
        """Is always ready."""

    def check(self) -> None:
        """Depends on nothing."""

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
        """Append entries, and shed what exceeds the capacity."""
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
        """Return the oldest events, of at most so much weight but at least one; in flight until :meth:`ack`."""
        return [entry.event for entry in self.take_entries(most)]

    def take_entries(self, most: int) -> list[Entry]:
        """Return the same as entries."""
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
        """End what is in flight: delivered, or dropped for a reason, all of it or ``count`` events."""
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
        """Return what is in flight to the front of the queue."""
        with self._lock:
            self._waiting.requeue(self._in_flight)
            self._in_flight = []

    @property
    def _has_large(self) -> bool:
        """Whether some of what it holds takes more than one place; most of the time nobody need add them up."""
        return self._weight > len(self._waiting) + len(self._in_flight)

    @property
    def holds_any(self) -> bool:
        """Whether anything has not been settled."""
        return bool(self._waiting or self._in_flight)

    def is_exhausted(self) -> bool:
        """Whether nothing is left to be taken."""
        return not self._waiting

    def clear(self, reason: str) -> int:
        """Drops everything that is left; returns how many events that were."""
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
        """The account at this moment, all of it under one lock."""
        with self._lock:
            return Counts(
                self._accepted,
                self._delivered,
                {reason: count for reason, count in self._dropped.items() if count},
                len(self._waiting) + len(self._in_flight),
                self.unanswered_for(),
            )

    def unanswered_for(self) -> float:
        """The age of the oldest event; nothing in here outlives the process."""
        with self._lock:
            oldest = min((entry.at for entry in self._heads()), default=None)
            return 0.0 if oldest is None else (time.monotonic_ns() - oldest) / 1e9

    def oldest_record(self) -> int | None:
        """The oldest record of which an event is still here; None when there is none."""
        with self._lock:
            # A loop, for it is asked after every batch.
            oldest: int | None = None
            for entry in (*self._heads(), *self._early):
                if oldest is None or entry.record < oldest:
                    oldest = entry.record
            return oldest

    def _heads(self) -> list[Entry]:
        """Among them is the oldest that is still here."""
        return self._in_flight[:1] or self._waiting.heads()

    def wait_until_answered(self, timeout: float) -> bool:
        """The same as :meth:`wait_until_empty`: nothing in here outlives the process."""
        return self.wait_until_empty(timeout)

    def wait_until_empty(self, timeout: float) -> bool:
        """Waits, at most ``timeout`` seconds, until everything put in has been settled."""
        with self._lock:
            return self._settled.wait_for(lambda: not self.holds_any, timeout)

    def wait_for_room(self, weight: int, timeout: float) -> bool:
        """Wait, at most ``timeout`` seconds, until so much weight fits without shedding."""
        with self._lock:
            return self._fits(weight) or self._settled.wait_for(lambda: self._fits(weight), timeout)

    def _fits(self, weight: int) -> bool:
        return self._weight + weight <= self._capacity

    def close(self, deadline: float) -> None:
        """Drops what is left: there is no time for it any more."""
        self.clear("shutdown")


def _fitting(entries: Sequence[Entry], most: int) -> int:
    """Return how many of the first weigh at most so much together; at least one."""
    for count, weight in enumerate(accumulate(entry.weight for entry in entries)):
        if weight > most:
            return max(1, count)
    return len(entries)
