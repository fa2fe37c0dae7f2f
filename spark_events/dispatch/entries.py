"""Events on their way to the reporters, with what all mailboxes on that way need to know of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import count
from operator import attrgetter

import msgspec

from spark_events.event import Event

__all__ = ["WEIGHT_BYTES", "Entries", "Entry", "priority_of", "weight_for", "weight_of"]

#: A mailbox is bounded by number and by size at once: an event weighs one, and one more for each so many bytes.
WEIGHT_BYTES = 32 * 1024
#: Shed last, whatever their severity: status, failures, and reports of loss.
_LAST_TO_GO = frozenset({"JobStatusChangeEvent", "JobFailureEvent", "EventsDroppedEvent", "DispatcherReportEvent"})
_LIFECYCLE = 100
_WEIGHT = attrgetter("weight")
_NEXT = count(1).__next__


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An event on its way to the reporters.

    Attributes:
        record: the number of the record that it came from; 0: from none.
        event: the event.
        weight: its share of a mailbox's capacity: more than one, if it is large.
        at: when it set out, in nanoseconds of ``time.monotonic_ns``.
        order: more than that of every entry before it.
    """

    record: int
    event: Event
    weight: int = 1
    at: int = msgspec.field(default_factory=time.monotonic_ns)
    order: int = msgspec.field(default_factory=_NEXT)


class Entries(tuple[Entry, ...]):
    """Entries that set out together.

    Of a flood every mailbox gets the same ones: what it asks of them is found out for the first that asks.
    """

    @cached_property
    def weight(self) -> int:
        """Total weight."""
        return weight_of(self)

    @cached_property
    def is_by_record(self) -> bool:
        """Whether none has a record that is older than that of one before it."""
        last = 0
        for entry in self:
            if entry.record < last:
                return False
            last = entry.record
        return True

    @cached_property
    def by_priority(self) -> Mapping[int, list[Entry]]:
        """Entries of each priority, in their order."""
        ranks: dict[int, list[Entry]] = {}
        for entry in self:
            ranks.setdefault(priority_of(entry.event), []).append(entry)
        return ranks


def priority_of(event: Event) -> int:
    """Return the priority of an event: the lowest is shed first."""
    return event.severity.number + (_LIFECYCLE if event.name in _LAST_TO_GO else 0)


def weight_for(size: int) -> int:
    """Return the weight of an event whose record has ``size`` bytes."""
    return 1 + size // WEIGHT_BYTES


def weight_of(entries: Iterable[Entry]) -> int:
    """Return the total weight of entries."""
    return sum(map(_WEIGHT, entries))
