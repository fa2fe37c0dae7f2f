"""What the reporter gets next: events that are in memory, whether or not they are on disk as well."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from spark_events.dispatch.spool.database import BEFORE_ALL, Appended
from spark_events.event import Event

__all__ = ["Standing", "Waiting", "Window"]


class Standing(NamedTuple):
    """What of a file is in memory, for whoever makes another of it.

    Attributes:
        settled_through: nothing any more up to that place, and nothing of the file.
        read_through: everything up to that place.
        next_id: places from there on are free.
        writing: places of what is being written, whether or not it has been.
    """

    settled_through: int
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
        places: how many it takes of those that there are in memory.
    """

    id: int
    event: Event
    accepted: float
    record: int = 0
    on_disk: bool = False
    places: int = 1


class Window:
    """Events in memory, in order: first those that the reporter has, then those that wait for it.

    Not safe by itself: whoever has it has a lock.

    Attributes:
        read_through: the place of the last event that is, or was, in here.
        taken: what the reporter has.
        places: how many those take that wait for it.
        passing: how many of all these are on no disk.
    """

    def __init__(self) -> None:
        self.read_through = BEFORE_ALL
        self.taken: list[Waiting] = []
        self.places = self.passing = 0
        self._waiting: deque[Waiting] = deque()

    @property
    def stored(self) -> int:
        """How many of all are on disk as well."""
        return len(self.taken) + len(self._waiting) - self.passing

    @property
    def settled_through(self) -> int:
        """Up to that place everything has come to its end; what is on disk alone comes later."""
        return next((one.id - 1 for one in (*self.taken[:1], *self._waiting)), self.read_through)

    def oldest(self, otherwise: float) -> float:
        """When the first of all was accepted."""
        return next((one.accepted for one in (*self.taken[:1], *self._waiting)), otherwise)

    def extend(self, events: Iterable[Waiting]) -> None:
        """More events, behind all others."""
        for one in events:
            self._waiting.append(one)
            self.places += one.places
            self.passing += not one.on_disk
            self.read_through = one.id

    def take(self, most: int) -> list[Event]:
        """For the reporter: the oldest, of at most so many places, but one."""
        while self._waiting and (not self.taken or most >= self._waiting[0].places):
            one = self._waiting.popleft()
            self.taken.append(one)
            self.places -= one.places
            most -= one.places
        return [one.event for one in self.taken]

    def put_back(self) -> None:
        """The reporter has not taken them."""
        self._waiting.extendleft(reversed(self.taken))
        self.places += sum(one.places for one in self.taken)
        self.taken = []

    def settle(self) -> list[int]:
        """The reporter is done with what it has; returns the rows of it."""
        on_disk = [one.id for one in self.taken if one.on_disk]
        self.passing -= len(self.taken) - len(on_disk)
        self.taken = []
        return on_disk

    def unwritten(self) -> list[Waiting]:
        """Those that are on no disk."""
        return [one for one in (*self.taken, *self._waiting) if not one.on_disk] if self.passing else []

    def written(self, appended: Appended) -> tuple[frozenset[int], int]:
        """Notes what is on disk now; returns the rows that are not in here, and how many were there all the time."""
        if not self.passing:
            return appended.added, 0
        before = len(self._waiting)
        known = [one for one in self._waiting if one.on_disk or one.id not in appended.duplicates]
        here = frozenset(one.id for one in (*self.taken, *known))
        self._replace(
            [_written(one, appended.added) for one in self.taken], [_written(one, appended.added) for one in known]
        )
        return appended.added - here, before - len(known)

    def lose_rows(self) -> None:
        """The file is given up: what is in here has lost its row, not itself."""
        self._replace(
            [one._replace(on_disk=False) for one in self.taken], [one._replace(on_disk=False) for one in self._waiting]
        )

    def move_before(self, first: int) -> None:
        """Gives all of them places before that one."""
        first -= len(self.taken) + len(self._waiting)
        taken = [one._replace(id=place) for place, one in enumerate(self.taken, first)]
        first += len(taken)
        self._replace(taken, [one._replace(id=place) for place, one in enumerate(self._waiting, first)])
        self.read_through = first + len(self._waiting) - 1

    def drop_unwritten(self) -> int:
        """Keeps what is on disk; returns how many were not."""
        dropped = self.passing
        self._replace([one for one in self.taken if one.on_disk], [one for one in self._waiting if one.on_disk])
        return dropped

    def _replace(self, taken: list[Waiting], waiting: list[Waiting]) -> None:
        self.taken, self._waiting = taken, deque(waiting)
        self.places = sum(one.places for one in waiting)
        self.passing = sum(not one.on_disk for one in (*taken, *waiting))


def _written(one: Waiting, added: frozenset[int]) -> Waiting:
    return one._replace(on_disk=True) if one.id in added else one
