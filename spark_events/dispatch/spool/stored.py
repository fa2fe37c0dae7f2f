"""Events that have a row in one of the spool's files: the files in reading order, and what is read ahead.

This module does no I/O and takes no lock; its caller holds the spool's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from spark_events.dispatch.spool.ownership import SpoolFolder
from spark_events.dispatch.spool.spool_database import SpoolDatabase
from spark_events.event import Event

#: Maximum and minimum number of events that are read ahead for the reporter, and the number of bytes of spool size that
#: allow one more. Events that were read ahead cannot be shed.
_MOST_AHEAD, _LEAST_AHEAD, _BYTES_AHEAD = 2_048, 64, 8_192
#: Size of a file that allows the maximum number of events to be read ahead, in bytes.
LARGE_FILE = _MOST_AHEAD * _BYTES_AHEAD


@dataclass(slots=True, eq=False)
class SpoolFile:
    """One file of the spool."""

    folder: SpoolFolder
    database: SpoolDatabase | None = None  # the open database, which only the spool writer's thread uses
    last_id: int = -1  # id of the last row when the file was closed; -1 before the first open
    read_through: int = 0  # id of the last row that was read into memory
    deleted_through: int = 0  # id of the last row that was deleted
    unread: int = -1  # number of rows that are only on disk; -1 before the first count


class StoredEvent(NamedTuple):
    """Event in memory that also has a row in a file; ``accepted`` is in seconds since the epoch."""

    file: SpoolFile
    id: int
    event: Event
    accepted: float
    weight: int


class StoredEvents:
    """Files of the spool, and their events that are in memory.

    Args:
        max_bytes: maximum size of a file.

    Attributes:
        files: the files in reading order, the own file last; only the spool writer changes this list.
        ready: events that the thread may take.
        taken: events in flight.
    """

    def __init__(self, max_bytes: int) -> None:
        self.files: list[SpoolFile] = []
        self.ready: deque[StoredEvent] = deque()
        self.taken: list[StoredEvent] = []
        self._most_ahead = min(_MOST_AHEAD, max(_LEAST_AHEAD, max_bytes // _BYTES_AHEAD))

    @property
    def unread(self) -> int:
        """Number of rows that are only on disk."""
        return sum(file.unread for file in self.files)

    @property
    def total(self) -> int:
        """Number of unsettled events on disk."""
        return self.unread + len(self.taken) + len(self.ready)

    @property
    def oldest(self) -> float | None:
        """When the oldest event in memory was accepted, in seconds since the epoch; None if there is none."""
        return next((one.accepted for one in chain(self.taken, self.ready)), None)

    def take(self, most: int) -> list[Event]:
        """Return the oldest events in memory, with at most this total weight, but at least one."""
        while self.ready and (not self.taken or most >= self.ready[0].weight):
            most -= self.ready[0].weight
            self.taken.append(self.ready.popleft())
        return [one.event for one in self.taken]

    def requeue(self) -> None:
        """Return the events in flight to the front."""
        self.ready.extendleft(reversed(self.taken))
        self.taken = []

    def keep(self, file: SpoolFile, stored: list[StoredEvent]) -> list[StoredEvent]:
        """Add events that were just written, or leave them on disk if older rows are unread or memory is used up.

        Returns:
            The events that were added.
        """
        ahead = sum(one.weight for one in self.ready)
        if self.unread or self.files[0] is not file or ahead >= self._most_ahead:
            file.unread += len(stored)
            return []
        self.ready.extend(stored)
        return stored

    def read(self, file: SpoolFile, found: Iterable[StoredEvent], rows: int, through: int) -> None:
        """Add the events of rows that were read; ``through`` is the id of the last row."""
        self.ready.extend(found)
        file.unread -= rows
        file.read_through = through

    def to_read(self) -> tuple[SpoolFile, int] | None:
        """Return the file to read next and the number of rows to read; None if there are none, or no space for them."""
        file = self.files[0] if self.files else None
        if file is None or not file.unread or file.database is None:
            return None
        room = self._most_ahead - sum(one.weight for one in self.ready)
        return (file, room) if room > self._most_ahead // 2 else None

    def settled_through(self, file: SpoolFile) -> int:
        """Return the highest id up to which all rows of a file are settled."""
        in_memory = (one.id - 1 for one in chain(self.taken, self.ready) if one.file is file)
        return next(in_memory, file.read_through)

    def is_settled(self, file: SpoolFile) -> bool:
        """Return whether all rows of a file are settled."""
        return file.unread == 0 and self.settled_through(file) == file.read_through

    def has_to_delete(self) -> bool:
        """Return whether a file has rows that are settled and not deleted."""
        return any(self.settled_through(file) > file.deleted_through for file in self.files)

    def discard(self, file: SpoolFile) -> int | None:
        """Drop a corrupt file; return the number of its undelivered events, or None if it is unknown."""
        if file not in self.files:
            return None
        lost = file.unread + sum(one.file is file for one in self.ready)
        self.ready = deque(one for one in self.ready if one.file is not file)
        self.files = [one for one in self.files if one is not file]
        return lost
