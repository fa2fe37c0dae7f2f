"""Events on their way to the reporters, and what every mailbox on that way would otherwise find out anew."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import count
from operator import attrgetter

import msgspec

from spark_events.event import Event

__all__ = ["PLACE_BYTES", "Entries", "Entry", "places_for", "places_of", "worth_of"]

#: What is held is bounded by its number and by its size at once: it takes a place, and another one for each of so many
#: bytes. A thousand events that are large are not to take all the memory that there is.
PLACE_BYTES = 32 * 1024
#: The last to go, whatever their severity: how things stand, what failed, and what was lost.
_LAST_TO_GO = frozenset({"JobStatusChangeEvent", "JobFailureEvent", "EventsDroppedEvent", "DispatcherReportEvent"})
_LIFECYCLE = 100
_PLACES = attrgetter("places")
_NEXT = count(1).__next__


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An event on its way to the reporters.

    Attributes:
        record: the number of the record that it came from; 0: from none.
        event: the event.
        places: how many it takes of those that a mailbox has: more than one, if it is large.
        at: when it set out, in nanoseconds of ``time.monotonic_ns``.
        order: more than that of every entry before it.
    """

    record: int
    event: Event
    places: int = 1
    at: int = msgspec.field(default_factory=time.monotonic_ns)
    order: int = msgspec.field(default_factory=_NEXT)


class Entries(tuple[Entry, ...]):
    """Entries that set out together.

    Of a flood every mailbox gets the same ones: what it asks of them is found out for the first that asks.
    """

    @cached_property
    def places(self) -> int:
        """How many they take, all together."""
        return places_of(self)

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
    def by_worth(self) -> Mapping[int, list[Entry]]:
        """Those of each worth, in their order."""
        ranks: dict[int, list[Entry]] = {}
        for entry in self:
            ranks.setdefault(worth_of(entry.event), []).append(entry)
        return ranks


def worth_of(event: Event) -> int:
    """What is worth least is shed first."""
    return event.severity.number + (_LIFECYCLE if event.name in _LAST_TO_GO else 0)


def places_for(size: int) -> int:
    """How many places something takes that has so many bytes, encoded."""
    return 1 + size // PLACE_BYTES


def places_of(entries: Iterable[Entry]) -> int:
    """How many places they take, all together."""
    return sum(map(_PLACES, entries))
