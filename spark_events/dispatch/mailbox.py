"""A reporter's mailbox: bounded, between the thread that translates and the reporter's own loop."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable

from spark_events.dispatch.store import Counts, Entry, dropped_of
from spark_events.event import Event

__all__ = ["Mailbox", "worth_of"]

#: The last to go, whatever their severity: how things stand, what failed, and what was lost.
_LAST_TO_GO = frozenset({"JobStatusChangeEvent", "JobFailureEvent", "EventsDroppedEvent", "DispatcherReportEvent"})
_LIFECYCLE = 100


def worth_of(event: Event) -> int:
    """What is worth least is shed first."""
    return event.severity.number + (_LIFECYCLE if event.name in _LAST_TO_GO else 0)


class Mailbox:
    """First in, first out; a full one sheds what is worth least, the oldest of that first.

    Events wait in one line per worth, each with its moment of arrival (no two have the same), so that the
    oldest of all and the oldest of the least are both at the head of a line.

    Args:
        capacity: how many events it holds at most, those that a delivery is working on included.
        wake: called from the putting thread when there is something to take after there was nothing.
        lock: guards the account; another's, where this mailbox is a part of it.
    """

    def __init__(self, capacity: int, wake: Callable[[], None], lock: threading.RLock | None = None) -> None:
        self._capacity = capacity
        self._wake = wake
        self._lock = lock or threading.RLock()
        self._settled = threading.Condition(self._lock)
        self._lines: defaultdict[int, deque[tuple[int, Entry]]] = defaultdict(deque)
        self._waiting = 0
        self._arrivals = 0
        self._last_record = 0
        # Entries whose record is older than that of an entry before them, by their arrival: what time
        # makes of records that were held back.
        self._early: dict[int, int] = {}
        self._in_flight: tuple[tuple[int, Entry], ...] = ()
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

    def put(self, entries: Iterable[Entry]) -> None:
        """Takes entries in without ever waiting."""
        with self._lock:
            self._arrivals = max(self._arrivals, time.monotonic_ns())
            was_empty = not self._waiting
            for entry in entries:
                self._accepted += 1
                worth = worth_of(entry.event)
                if self._waiting + len(self._in_flight) >= self._capacity and not self._shed(worth):
                    continue
                self._arrivals += 1
                if entry.record < self._last_record:
                    self._early[self._arrivals] = entry.record
                else:
                    self._last_record = entry.record
                self._lines[worth].append((self._arrivals, entry))
                self._waiting += 1
            wake = was_empty and self._waiting > 0
        if wake:
            self._wake()

    def _shed(self, newcomer: int) -> bool:
        """Drops one event; whether there is room for a newcomer of that worth now."""
        self._dropped["mailbox-full"] += 1
        # A loop, not min(): beside a reporter that hangs, every event of a flood comes through here.
        least = None
        for worth, line in self._lines.items():
            if line and (least is None or worth < least):
                least = worth
        if least is None or newcomer < least:
            return False
        arrival, _ = self._lines[least].popleft()
        if self._early:
            self._early.pop(arrival, None)
        self._waiting -= 1
        return True

    def take(self, most: int) -> list[Event]:
        """The oldest events; they stay in the books until :meth:`settle` is called."""
        return [entry.event for entry in self.take_entries(most)]

    def take_entries(self, most: int) -> list[Entry]:
        """The same, with the records that the events came from."""
        with self._lock:
            count = min(most, self._waiting)
            lines = [line for line in self._lines.values() if line]
            if len(lines) == 1:
                # Nearly always: there is no need to ask for each which line is the oldest.
                self._in_flight = tuple([lines[0].popleft() for _ in range(count)])
            else:
                self._in_flight = tuple([self._oldest() for _ in range(count)])
            self._waiting -= count
            return [entry for _, entry in self._in_flight]

    def _oldest(self) -> tuple[int, Entry]:
        return min((line for line in self._lines.values() if line), key=lambda line: line[0][0]).popleft()

    def settle(self, dropped: str | None = None, count: int | None = None) -> None:
        """What was taken has come to its end: delivered, or dropped for a reason, all of it or ``count`` events."""
        with self._lock:
            lost = dropped_of(len(self._in_flight), dropped, count)
            self._delivered += len(self._in_flight) - lost
            if dropped is not None:
                self._dropped[dropped] += lost
            for arrival, _ in self._in_flight if self._early else ():
                self._early.pop(arrival, None)
            self._in_flight = ()
            self._settled.notify_all()

    def put_back(self) -> None:
        """What was taken is to be taken again, by another: it goes back to its place."""
        with self._lock:
            for arrival, entry in reversed(self._in_flight):
                self._lines[worth_of(entry.event)].appendleft((arrival, entry))
                self._waiting += 1
            self._in_flight = ()

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
            left = self._waiting + len(self._in_flight)
            self._dropped[reason] += left
            self._lines.clear()
            self._early.clear()
            self._waiting = 0
            self._in_flight = ()
            self._settled.notify_all()
            return left

    def counts(self) -> Counts:
        """The account at this moment, all of it under one lock."""
        with self._lock:
            heads = [line[0][0] for line in self._lines.values() if line]
            oldest = min([*heads, *(arrival for arrival, _ in self._in_flight[:1])], default=None)
            return Counts(
                self._accepted,
                self._delivered,
                {reason: count for reason, count in self._dropped.items() if count},
                self._waiting + len(self._in_flight),
                0.0 if oldest is None else (time.monotonic_ns() - oldest) / 1e9,
            )

    def oldest_record(self) -> int | None:
        """The oldest record of which an event is still here; None when there is none."""
        with self._lock:
            if not self._waiting and not self._in_flight:
                return None
            heads = [line[0][1].record for line in self._lines.values() if line]
            heads += [entry.record for _, entry in self._in_flight[:1]]
            return min([*heads, *self._early.values()], default=None)

    def wait_until_answered(self, timeout: float) -> bool:
        """The same as :meth:`wait_until_empty`: nothing in here outlives the process."""
        return self.wait_until_empty(timeout)

    def wait_until_empty(self, timeout: float) -> bool:
        """Waits, at most ``timeout`` seconds, until everything put in has been settled."""
        with self._lock:
            return self._settled.wait_for(lambda: not self.holds_any, timeout)

    def wait_for_room(self, events: int, timeout: float) -> bool:
        """Waits, at most ``timeout`` seconds, until so many events would fit without shedding."""
        with self._lock:
            return self._settled.wait_for(
                lambda: self._waiting + len(self._in_flight) + events <= self._capacity, timeout
            )

    def close(self, deadline: float) -> None:
        """Drops what is left: there is no time for it any more."""
        self.clear("shutdown")
