"""Events in transit to the reporters, with the metadata that mailboxes need."""

from __future__ import annotations

import time
from itertools import count

import msgspec

from spark_events.event import Event

#: Bytes per unit of weight. An event weighs 1, plus 1 for each full 32 KiB; a mailbox limits the total weight of its
#: events.
WEIGHT_BYTES = 32 * 1024
#: Names of events that a full mailbox drops last, whatever their severity: job status, job failures, reports of lost
#: events.
_LAST_TO_GO = frozenset({"JobStatusChangeEvent", "JobFailureEvent", "EventsDroppedEvent", "DispatcherReportEvent"})
_LIFECYCLE = 100
_NEXT = count(1).__next__


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An event in transit to the reporters.

    Attributes:
        seq: the number of the event's record, or of the last record before an event without one; 0 without a driver
            session.
        event: the event.
        weight: the units of a mailbox's capacity that the event uses; more than 1 for a large event.
        at: the creation time of the entry, in nanoseconds of ``time.monotonic_ns``.
        order: a sequence number that increases from entry to entry.
    """

    seq: int
    event: Event
    weight: int = 1
    at: int = msgspec.field(default_factory=time.monotonic_ns)
    order: int = msgspec.field(default_factory=_NEXT)


def priority_of(event: Event) -> int:
    """Return the priority of an event; a full mailbox sheds the lowest priority first."""
    return event.severity.number + (_LIFECYCLE if event.name in _LAST_TO_GO else 0)


def weight_for(size: int) -> int:
    """Return the weight of an event whose record is ``size`` bytes long."""
    return 1 + size // WEIGHT_BYTES
