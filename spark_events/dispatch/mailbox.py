"""Bounded queue between the translating thread and one reporter's thread."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence

from spark_events.dispatch.entries import Entry, priority_of
from spark_events.event import Event


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """Snapshot of a store's counters.

    ``accepted = delivered + sum(dropped) + spooled + held`` holds at every moment; a test checks this equation.

    Attributes:
        accepted: events that passed the reporter's filter, and the events that an earlier process left on disk.
        delivered: events that the reporter has acknowledged.
        dropped: dropped events by reason: ``mailbox-full``, ``rejected``, ``shutdown``, ``spool-full``,
            ``spool-corrupt``.
        held: waiting events and events in flight that exist only in memory, so a crash would lose them.
        oldest_age: seconds since the oldest unsettled event was accepted; 0 if there is none.
        spooled: waiting events and events in flight that are safe on disk.
    """

    accepted: int
    delivered: int
    dropped: Mapping[str, int]
    held: int
    oldest_age: float
    spooled: int = 0


def dropped_of(taken: int, dropped: str | None, count: int | None) -> int:
    """Return the number of events that a call to :meth:`Store.ack` drops.

    Args:
        taken: the number of events in flight.
        dropped: the reason; None if all were delivered.
        count: the number of dropped events; None for all.
    """
    if dropped is None:
        return 0
    return taken if count is None else max(0, min(count, taken))


class Mailbox:
    """Bounded FIFO mailbox of one reporter.

    A full mailbox sheds the events of the lowest priority, oldest first. Only then are the events sorted into one queue
    for each priority, so that shedding needs no search; until then, they wait in one queue. The oldest event of the
    mailbox is the oldest of the queues' first events. Record numbers never decrease from one entry to the next, so the
    oldest event also has the lowest record number.

    Args:
        capacity: the maximum total weight of the events, events in flight included.
        lock: guards the counters. A store that contains this mailbox passes its own lock.
    """

    is_durable = False

    def __init__(self, capacity: int, lock: threading.RLock | None = None) -> None:
        self._capacity = capacity
        self._lock = lock or threading.RLock()
        self._settled = threading.Condition(self._lock)
        # Events older than those of `_arrived`, by priority; empty unless the mailbox has been full since it was empty.
        self._queues: defaultdict[int, deque[Entry]] = defaultdict(deque)
        self._arrived: deque[Entry] = deque()
        self._waiting = 0
        self._in_flight: list[Entry] = []
        # The total weight of waiting events and events in flight.
        self._weight = 0
        self._accepted = 0
        self._delivered = 0
        self._dropped: Counter[str] = Counter()

    def start(self) -> None:
        """Prepare the store, on a separate thread if necessary; a mailbox needs no preparation."""

    def check(self) -> None:
        """Check the store's external resources; a mailbox has none. Called several times a second."""

    def put(self, entries: Sequence[Entry]) -> bool:
        """Append entries without waiting; return whether the caller must wake the thread.

        The thread must be woken if the mailbox was empty.
        """
        if not entries:
            return False
        with self._lock:
            was_empty = not self._waiting
            self._accepted += len(entries)
            self._waiting += len(entries)
            self._weight += sum([entry.weight for entry in entries])
            self._arrived.extend(entries)
            if self._weight > self._capacity:
                before = self._waiting
                self._sort()
                for priority in sorted(self._queues):
                    queue = self._queues[priority]
                    while queue and self._weight > self._capacity:
                        self._weight -= queue.popleft().weight
                        self._waiting -= 1
                self._dropped["mailbox-full"] += before - self._waiting
            return was_empty and self._waiting > 0

    def _sort(self) -> None:
        """Sort the events that have arrived by their priority."""
        for entry in self._arrived:
            self._queues[priority_of(entry.event)].append(entry)
        self._arrived.clear()

    def take(self, most: int) -> list[Event]:
        """Return the oldest events; they stay in flight until :meth:`ack`.

        Args:
            most: the maximum total weight; a single event may exceed it.
        """
        return [entry.event for entry in self.take_entries(most)]

    def take_entries(self, most: int) -> list[Entry]:
        """Return the oldest events as entries; see :meth:`take`."""
        with self._lock:
            taken: list[Entry] = []
            self._in_flight = taken
            if not self._queues:
                arrived = self._arrived
                if self._weight == len(arrived):
                    # No event is large, as nearly always, so their weights need not be added up.
                    taken += [arrived.popleft() for _ in range(min(max(1, most), len(arrived)))]
                else:
                    while arrived and (not taken or most >= arrived[0].weight):
                        most -= arrived[0].weight
                        taken.append(arrived.popleft())
                self._waiting -= len(taken)
                return taken
            self._sort()
            while heads := sorted((queue for queue in self._queues.values() if queue), key=lambda one: one[0].order):
                queue = heads[0]
                # Take events from this queue until its first event is newer than the first event of the next queue.
                until = heads[1][0].order if len(heads) > 1 else float("inf")
                while queue and queue[0].order < until:
                    most -= queue[0].weight
                    if taken and most < 0:
                        return taken
                    taken.append(queue.popleft())
                    self._waiting -= 1
            self._queues.clear()
            return taken

    def ack(self, dropped: str | None = None, count: int | None = None) -> None:
        """Settle the events in flight as delivered or dropped.

        Args:
            dropped: the reason for dropping events; None if all were delivered.
            count: the number of dropped events; None for all in flight.
        """
        with self._lock:
            lost = dropped_of(len(self._in_flight), dropped, count)
            self._delivered += len(self._in_flight) - lost
            if dropped is not None:
                self._dropped[dropped] += lost
            self._weight -= sum([entry.weight for entry in self._in_flight])
            self._in_flight = []
            self._settled.notify_all()

    def requeue(self) -> None:
        """Return the events in flight to the front of the queue."""
        with self._lock:
            if self._queues:
                for entry in reversed(self._in_flight):
                    self._queues[priority_of(entry.event)].appendleft(entry)
            else:
                self._arrived.extendleft(reversed(self._in_flight))
            self._waiting += len(self._in_flight)
            self._in_flight = []

    @property
    def fullness(self) -> float:
        """Fraction of the capacity that is in use, from 0 to 1; above 1 if a single event exceeds the capacity."""
        return self._weight / self._capacity

    @property
    def holds_any(self) -> bool:
        """Whether the mailbox holds any unsettled event."""
        return bool(self._waiting or self._in_flight)

    def is_exhausted(self) -> bool:
        """Return whether no event is waiting for delivery, in memory or on disk."""
        return not self._waiting

    def clear(self, reason: str) -> None:
        """Drop all events and count them under this reason."""
        with self._lock:
            self._dropped[reason] += self._waiting + len(self._in_flight)
            self._queues.clear()
            self._arrived.clear()
            self._in_flight = []
            self._waiting = self._weight = 0
            self._settled.notify_all()

    def counts(self) -> Counts:
        """Return a consistent snapshot of the counters."""
        with self._lock:
            return Counts(
                self._accepted,
                self._delivered,
                {reason: count for reason, count in self._dropped.items() if count},
                self._waiting + len(self._in_flight),
                self.unanswered_for(),
            )

    def unanswered_for(self) -> float:
        """Return the age in seconds of the oldest event that exists only in memory; 0.0 if there is none."""
        with self._lock:
            oldest = min((entry.at for entry in self._heads()), default=None)
            return 0.0 if oldest is None else (time.monotonic_ns() - oldest) / 1e9

    def oldest_seq(self) -> int | None:
        """Return the number of the oldest record with an event that exists only in memory; None if there is none."""
        with self._lock:
            return min((entry.seq for entry in self._heads()), default=None)

    def _heads(self) -> Sequence[Entry]:
        """Return a few entries, including the oldest unsettled entry."""
        return self._in_flight[:1] or [queue[0] for queue in (*self._queues.values(), self._arrived) if queue]

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait until all events are settled; return False after ``timeout`` seconds."""
        with self._lock:
            return self._settled.wait_for(lambda: not self.holds_any, timeout)

    #: Wait until no event exists only in memory; a mailbox has no other events.
    wait_until_answered = wait_until_empty

    def wait_for_room(self, weight: int, timeout: float) -> bool:
        """Wait until events of this weight fit without shedding; return False after ``timeout`` seconds."""
        with self._lock:
            return self._settled.wait_for(lambda: self._weight + weight <= self._capacity, timeout)

    def close(self, until: float) -> None:
        """Save as many events as possible until then; drop the other events with reason ``shutdown``.

        Args:
            until: in seconds of ``time.monotonic``.
        """
        self.clear("shutdown")
