"""How much a run holds: rows that were taken in and have not gone out, with their answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["SAMPLE", "Buffer"]

#: The size of one answer in so many is measured.
SAMPLE = 64
#: The mean forgets older answers at this rate.
_MEMORY = 256


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
        self._answer = 0.0

    @property
    def has_room(self) -> bool:
        """Whether another chunk may come in; an empty buffer takes any."""
        # While all calls are in flight and nobody knows how large an answer is, more would be a leap in the dark.
        return not self.is_full and (self.measured > 0 or self._rows < self._width)

    @property
    def is_full(self) -> bool:
        """Whether something must go out before anything comes in."""
        return self._rows > 0 and (self._rows >= self._allowed_rows or self._held() >= self._allowed_bytes)

    def take_in(self, rows: int, size: int) -> None:
        """A chunk comes in."""
        self._rows += rows
        self._bytes += size
        self.most_rows = max(self.most_rows, self._rows)
        self.most_bytes = max(self.most_bytes, self._held())

    def let_out(self, rows: int, size: int) -> None:
        """A chunk goes out."""
        self.most_bytes = max(self.most_bytes, self._held())
        self._rows -= rows
        self._bytes -= size

    def measure(self, answer: Any) -> None:
        """An answer, to know their mean size: mappings and sequences one level deep."""
        size = sys.getsizeof(answer)
        if isinstance(answer, dict):
            size += sum(map(sys.getsizeof, answer.values()))
        elif isinstance(answer, (list, tuple)):
            size += sum(map(sys.getsizeof, answer))
        self.measured += 1
        self._answer += (size - self._answer) / min(self.measured, _MEMORY)
        if self.measured == 1:
            self.on_news()

    def _held(self) -> int:
        return int(self._bytes + self._rows * self._answer)
