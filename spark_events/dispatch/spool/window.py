"""What the reporter gets next: events that have been read from the disk, or have passed it by."""

from __future__ import annotations

from typing import NamedTuple

from spark_events.dispatch.spool.database import Done
from spark_events.event import Event

__all__ = ["Waiting"]


class Waiting(NamedTuple):
    """An event that waits in memory.

    Attributes:
        event: what the reporter gets.
        accepted: seconds since the epoch.
        done: how its row is removed; None for an event that is on no disk.
        record: of an event that is on no disk, the record that it came from.
    """

    event: Event
    accepted: float
    done: Done | None = None
    record: int = 0
