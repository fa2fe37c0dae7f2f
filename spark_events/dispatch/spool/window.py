"""What the reporter gets next: events that are in memory, whether or not they are on disk as well."""

from __future__ import annotations

from typing import NamedTuple

from spark_events.event import Event

__all__ = ["Standing", "Waiting"]


class Standing(NamedTuple):
    """What of a file is in memory, for whoever makes another of it.

    Attributes:
        read_through: everything up to that place.
        next_id: places from there on are free.
        writing: places of what is being written, whether or not it has been.
    """

    read_through: int
    next_id: int
    writing: frozenset[int]


class Waiting(NamedTuple):
    """An event in memory.

    Attributes:
        id: its place among all events of the spool, and the key of its row.
        event: what the reporter gets.
        accepted: seconds since the epoch.
        record: of an event that is on no disk, the record that it came from.
        on_disk: whether there is a row of it.
    """

    id: int
    event: Event
    accepted: float
    record: int = 0
    on_disk: bool = False
