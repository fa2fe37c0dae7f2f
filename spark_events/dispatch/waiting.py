"""Events that wait for their reporter, in the order of their arrival: one line, or one for each worth.

As long as there is room, nobody asks what an event is worth: a :class:`Line` takes and gives whole batches. Where there
is none, :class:`Ranks` find what is worth least at once, however many there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from spark_events.dispatch.entries import Entries, Entry, worth_of

__all__ = ["Line", "Ranks"]


class Line:
    """First in, first out."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def extend(self, entries: Entries) -> None:
        """Takes in, behind all others."""
        self._entries.extend(entries)

    def take(self, count: int) -> list[Entry]:
        """The oldest ones; there are so many."""
        return _first(self._entries, count)

    def put_back(self, entries: Sequence[Entry]) -> None:
        """In front of all others."""
        self._entries.extendleft(reversed(entries))

    def heads(self) -> list[Entry]:
        """Among them is the oldest one."""
        return [self._entries[0]] if self._entries else []

    def ranked(self) -> Ranks:
        """The same ones, by their worth."""
        return Ranks(self._entries)

    def emptied(self) -> Line:
        """What is to follow, now that nothing is left."""
        return self


class Ranks:
    """A line for each worth; the oldest of all is at the head of one of them."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._lines: dict[int, deque[Entry]] = {}
        self._count = 0
        self.extend(Entries(entries))

    def __len__(self) -> int:
        return self._count

    def extend(self, entries: Entries) -> None:
        """Takes in, behind all others."""
        # Beside a reporter that hangs, every event of a flood comes through here.
        for worth, ranked in entries.by_worth.items():
            self._line(worth).extend(ranked)
        self._count += len(entries)

    def take(self, count: int) -> list[Entry]:
        """The oldest ones; there are so many."""
        self._count -= count
        lines = [line for line in self._lines.values() if line]
        if len(lines) == 1:
            return _first(lines[0], count)
        return [min([line for line in lines if line], key=lambda line: line[0].order).popleft() for _ in range(count)]

    def put_back(self, entries: Sequence[Entry]) -> None:
        """In front of all others."""
        for entry in reversed(entries):
            self._line(worth_of(entry.event)).appendleft(entry)
        self._count += len(entries)

    def heads(self) -> list[Entry]:
        """Among them is the oldest one."""
        return [line[0] for line in self._lines.values() if line]

    def ranked(self) -> Ranks:
        """These."""
        return self

    def emptied(self) -> Line:
        """What is to follow, now that nothing is left."""
        return Line()

    def shed(self, places: int, has_large: bool) -> list[Entry]:
        """Takes out what is worth least, the oldest of that first, until so many places are free.

        Args:
            places: how many.
            has_large: whether some of what is in here may take more than one; else they need not be looked at.
        """
        shed: list[Entry] = []
        for worth in sorted(self._lines):
            line = self._lines[worth]
            if has_large:
                while places > 0 and line:
                    shed.append(line.popleft())
                    places -= shed[-1].places
            else:
                shed += (some := _first(line, min(places, len(line))))
                places -= len(some)
        self._count -= len(shed)
        return shed

    def _line(self, worth: int) -> deque[Entry]:
        line = self._lines.get(worth)
        if line is None:
            line = self._lines[worth] = deque()
        return line


def _first(line: deque[Entry], count: int) -> list[Entry]:
    """Takes out so many."""
    first = line.popleft
    return [first() for _ in range(count)]
