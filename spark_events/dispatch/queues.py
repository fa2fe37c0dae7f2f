"""Queues of a mailbox: one FIFO queue, or one queue for each priority.

Priorities do not matter while there is room, and a :class:`FifoQueue` moves whole batches. A full mailbox
continues with a :class:`PriorityQueue`, which finds the event to shed without a search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from spark_events.dispatch.entries import Entries, Entry, priority_of

__all__ = ["FifoQueue", "PriorityQueue"]


class FifoQueue:
    """First-in, first-out queue."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def extend(self, entries: Entries) -> None:
        """Append entries."""
        self._entries.extend(entries)

    def take(self, count: int) -> list[Entry]:
        """Remove and return the ``count`` oldest entries; the queue must hold that many."""
        return _popped(self._entries, count)

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Insert entries before all others."""
        self._entries.extendleft(reversed(entries))

    def heads(self) -> list[Entry]:
        """Return entries that include the oldest one."""
        return [self._entries[0]] if self._entries else []

    def by_priority(self) -> PriorityQueue:
        """Return a queue with the same entries that supports shedding."""
        return PriorityQueue(self._entries)

    def emptied(self) -> FifoQueue:
        """Return the queue to use once this one is empty."""
        return self


class PriorityQueue:
    """One queue for each priority; one of their heads is the oldest entry."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._queues: dict[int, deque[Entry]] = {}
        self._count = 0
        self.extend(Entries(entries))

    def __len__(self) -> int:
        return self._count

    def extend(self, entries: Entries) -> None:
        """Append entries."""
        # Hot path: while a reporter is stalled, every event of a burst passes here.
        for priority, same in entries.by_priority.items():
            self._queue(priority).extend(same)
        self._count += len(entries)

    def take(self, count: int) -> list[Entry]:
        """Remove and return the ``count`` oldest entries; the queue must hold that many."""
        self._count -= count
        queues = [queue for queue in self._queues.values() if queue]
        if len(queues) == 1:
            return _popped(queues[0], count)
        return [min([q for q in queues if q], key=lambda queue: queue[0].order).popleft() for _ in range(count)]

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Insert entries before all others."""
        for entry in reversed(entries):
            self._queue(priority_of(entry.event)).appendleft(entry)
        self._count += len(entries)

    def heads(self) -> list[Entry]:
        """Return entries that include the oldest one."""
        return [queue[0] for queue in self._queues.values() if queue]

    def by_priority(self) -> PriorityQueue:
        """Return this queue."""
        return self

    def emptied(self) -> FifoQueue:
        """Return the queue to use once this one is empty."""
        return FifoQueue()

    def shed(self, weight: int, has_large: bool) -> list[Entry]:
        """Remove entries of the lowest priority, oldest first, to free weight.

        Args:
            weight: the weight to free.
            has_large: whether an entry may weigh more than 1; if not, the weights are not read.
        """
        shed: list[Entry] = []
        for priority in sorted(self._queues):
            queue = self._queues[priority]
            if has_large:
                while weight > 0 and queue:
                    shed.append(queue.popleft())
                    weight -= shed[-1].weight
            else:
                shed += (some := _popped(queue, min(weight, len(queue))))
                weight -= len(some)
        self._count -= len(shed)
        return shed

    def _queue(self, priority: int) -> deque[Entry]:
        queue = self._queues.get(priority)
        if queue is None:
            queue = self._queues[priority] = deque()
        return queue


def _popped(queue: deque[Entry], count: int) -> list[Entry]:
    popleft = queue.popleft
    return [popleft() for _ in range(count)]
