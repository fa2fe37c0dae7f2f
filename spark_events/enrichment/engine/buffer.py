"""How much a run holds: rows that were taken in and have not gone out, with their answers."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["SAMPLE", "Buffer", "size_of"]

#: The size of one answer in so many is measured.
SAMPLE = 64
#: The mean forgets older answers at this rate.
_MEMORY = 256
#: Of what is nested in an answer, so deep and so many of each are looked at; the others weigh what these do.
_DEEP, _MANY = 6, 32
#: Room for less than this share of the rows allowed is none.
_SHARES = 8


class Buffer:
    """Rows and bytes held, against what the plan allows.

    The answers of rows that are not answered yet count as well, as large as the others were: a row that is taken in
    will have its answer, and then it is too late.

    Args:
        rows: allowed.
        size: bytes allowed.
        width: rows in flight at most.
        on_news: called when a chunk has all its answers, and when the first answer was measured.

    Attributes:
        measured: answers whose size was looked at.
        most_rows: the most that it held.
        most_bytes: the most, estimated.
    """

    def __init__(self, rows: int, size: int, width: int, on_news: Callable[[], None]) -> None:
        self.most_rows = self.most_bytes = 0
        self.measured = 0
        self.on_news = on_news
        self._width = width
        self._allowed_rows = rows
        self._allowed_bytes = size
        self._rows = self._bytes = 0
        # Chunks that are cut to so little room are not worth their way.
        self._least = max(1, rows // _SHARES)
        self._last = 1
        self._answer = 0.0

    @property
    def answer(self) -> float | None:
        """What an answer weighs, the mean of the latest; None: none was measured."""
        return self._answer if self.measured else None

    @property
    def room(self) -> int:
        """Rows that may come in."""
        return self._allowed_rows - self._rows

    @property
    def has_room(self) -> bool:
        """Whether another chunk may come in; an empty buffer takes any."""
        # While all calls are in flight and nobody knows how large an answer is, more would be a leap in the dark.
        return not self.is_full and (self.measured > 0 or self._rows < self._width)

    @property
    def is_full(self) -> bool:
        """Whether something must go out before anything comes in."""
        return self._rows > 0 and (self.room < min(self._last, self._least) or self._held() >= self._allowed_bytes)

    def take_in(self, rows: int, size: int) -> None:
        """A chunk comes in."""
        self._rows += rows
        self._bytes += size
        self._last = max(1, rows)
        self.most_rows = max(self.most_rows, self._rows)
        self.most_bytes = max(self.most_bytes, self._held())

    def let_out(self, rows: int, size: int) -> None:
        """A chunk goes out."""
        self.most_bytes = max(self.most_bytes, self._held())
        self._rows -= rows
        self._bytes -= size

    def measure(self, answer: Any) -> None:
        """An answer, to know their mean size."""
        size = size_of(answer)
        self._answer += (size - self._answer) / min(self.measured + 1, _MEMORY)
        # Behind it: another thread may look.
        self.measured += 1
        if self.measured == 1:
            self.on_news()

    def _held(self) -> int:
        return int(self._bytes + self._rows * self._answer)


def size_of(value: Any) -> float:
    """Bytes of a value with what is nested in it; keys of mappings are mostly the same objects in all answers."""
    try:
        return _size_of(value, _DEEP)
    except Exception:
        # It is of a class of somebody's own. Whether it is an answer is found out later, and is its row's affair.
        return float(object.__sizeof__(value))


def _size_of(value: Any, deep: int) -> float:
    size = float(sys.getsizeof(value))
    parts: Iterable[Any]
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    else:
        return size
    if deep and value:
        looked = [_size_of(part, deep - 1) for part in itertools.islice(parts, _MANY)]
        # A class of somebody's may have a length and nothing in it.
        size += sum(looked) / max(1, len(looked)) * len(value)
    return size
