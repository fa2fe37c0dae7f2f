"""A reporter's mailbox: bounded, between the thread that translates and the reporter's own loop."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from spark_events.event import Event, Severity

__all__ = ["Entry", "Mailbox"]


class Entry(NamedTuple):
    """An event on its way, and the number of the record that it came from (0: from none)."""

    record: int
    event: Event


class Mailbox:
    """First in, first out; a full one sheds the least severe event, the oldest of those first.

    Args:
        capacity: how many events it holds at most, those that a delivery is working on included.
        wake: called from the putting thread when there is something to take after there was nothing.
    """

    def __init__(self, capacity: int, wake: Callable[[], None]) -> None:
        self._capacity = capacity
        self._wake = wake
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        self._waiting: deque[Entry] = deque()
        self._in_flight: tuple[Entry, ...] = ()
        self.accepted = 0
        self.dropped = 0

    def put(self, entries: Iterable[Entry]) -> None:
        """Takes entries in without ever waiting."""
        with self._lock:
            was_empty = not self._waiting
            for entry in entries:
                self.accepted += 1
                if len(self._waiting) + len(self._in_flight) >= self._capacity:
                    self._shed(entry)
                else:
                    self._waiting.append(entry)
            wake = was_empty and bool(self._waiting)
        if wake:
            self._wake()

    def _shed(self, newcomer: Entry) -> None:
        """Makes room for the newcomer, or leaves it out where it is the least of all."""
        self.dropped += 1
        least = min((entry.event.severity.number for entry in self._waiting), default=Severity.FATAL.number)
        if not self._waiting or newcomer.event.severity.number < least:
            return
        victim = next(i for i, entry in enumerate(self._waiting) if entry.event.severity.number == least)
        del self._waiting[victim]
        self._waiting.append(newcomer)

    def take(self, most: int) -> list[Event]:
        """The oldest events; they stay in the books until :meth:`settle` is called."""
        with self._lock:
            count = min(most, len(self._waiting))
            self._in_flight = tuple(self._waiting.popleft() for _ in range(count))
            return [entry.event for entry in self._in_flight]

    def settle(self) -> None:
        """What was taken has come to its end, delivered or given up."""
        with self._lock:
            self._in_flight = ()
            if not self._waiting:
                self._settled.notify_all()

    def clear(self) -> int:
        """Drops everything that is left; returns how many events that were."""
        with self._lock:
            left = len(self._waiting) + len(self._in_flight)
            self.dropped += left
            self._waiting.clear()
            self._in_flight = ()
            self._settled.notify_all()
            return left

    def oldest_record(self) -> int | None:
        """The record of the oldest event that is still here; None when nothing is."""
        with self._lock:
            if self._in_flight:
                return self._in_flight[0].record
            return self._waiting[0].record if self._waiting else None

    def wait_until_empty(self, timeout: float) -> bool:
        """Waits, at most ``timeout`` seconds, until everything put in has been settled."""
        with self._lock:
            return self._settled.wait_for(lambda: not self._waiting and not self._in_flight, timeout)
