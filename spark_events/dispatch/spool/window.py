"""What the reporter gets next: events that are in memory, whether or not they are on disk as well."""

from __future__ import annotations

from typing import NamedTuple

from spark_events.dispatch.spool.database import Done
from spark_events.event import Event

__all__ = ["Waiting"]


class Waiting(NamedTuple):
    """An event in memory.

    Attributes:
        id: its place among all events of the spool, and the key of its row.
        event: what the reporter gets.
        accepted: seconds since the epoch.
        record: of an event that is on no disk, the record that it came from.
        done: how its row is removed; None for an event that is on no disk.
    """

    id: int
    event: Event
    accepted: float
    record: int = 0
    done: Done | None = None
