"""Limit for the rows, with their answers, that a run has admitted and not yet returned."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class BufferTuning:
    """Constants of the buffer.

    Attributes:
        sample_rows: the buffer measures the size of one in this many answers.
        ewma_answers: number of recent answers that mainly determine the mean size; the weight of an answer (alpha) is
            the reciprocal.
        max_depth: maximum nesting depth in a size measurement.
        max_items: maximum number of items per container in a size measurement. Other items count with the mean size.
        parts: the buffer counts as full if less than this part of its rows, as a reciprocal, is free.
    """

    sample_rows: int = 64
    ewma_answers: int = 256
    max_depth: int = 6
    max_items: int = 32
    parts: int = 8


_TUNING = BufferTuning()


class RowBuffer:
    """Rows and bytes that a run holds, compared with the plan's limits.

    A row without an answer counts as an answer of mean size, because the buffer cannot reject the answer later.

    Args:
        rows: the allowed number of rows.
        size: the allowed number of bytes.
        width: the maximum number of rows in flight.
        on_news: called when a chunk has all its answers, when the first answer was measured, and for each answer once
            ``settled`` has reached ``wanted``.
        tuning: constants.

    Attributes:
        rows: the number of rows held.
        allowed_rows: the allowed number of rows.
        settled: the number of answers stored by :meth:`.RowBatch.settle`; only the loop's thread changes it.
        wanted: the value of ``settled`` at which to wake the caller; only the caller's thread changes it.
        measured: the number of answers whose size was measured.
        most_rows: the largest number of rows held.
        most_bytes: the largest estimated number of bytes held.
        tuning: constants.
    """

    def __init__(
        self, rows: int, size: int, width: int, on_news: Callable[[], None], tuning: BufferTuning = _TUNING
    ) -> None:
        self.tuning = tuning
        self.rows = self.most_rows = self.most_bytes = 0
        self.measured = self.settled = 0
        self.wanted = math.inf
        self.on_news = on_news
        self._width = width
        self.allowed_rows = rows
        self._allowed_bytes = size
        self._bytes = 0
        # Passing a smaller chunk between threads would cost more than the parallelism saves.
        self._least = max(1, rows // tuning.parts)
        self._last = 1
        self._answer = 0.0

    @property
    def answer(self) -> float | None:
        """Mean size in bytes of the latest answers; None before the first measurement."""
        return self._answer if self.measured else None

    @property
    def room(self) -> int:
        """Number of rows that the buffer can still admit."""
        return self.allowed_rows - self.rows

    @property
    def has_room(self) -> bool:
        """Whether the buffer can admit another chunk; an empty buffer admits any chunk."""
        # The size of an answer is unknown until the first one is measured, so admit only as many rows as can be in
        # flight.
        return not self.is_full and (self.measured > 0 or self.rows < self._width)

    @property
    def is_full(self) -> bool:
        """Whether a chunk must be returned before the next chunk can be admitted."""
        return self.rows > 0 and (self.room < min(self._last, self._least) or self._held() >= self._allowed_bytes)

    def take_in(self, rows: int, size: int) -> None:
        """Count an admitted chunk."""
        self.rows += rows
        self._bytes += size
        self._last = max(1, rows)
        self.most_rows = max(self.most_rows, self.rows)
        self.most_bytes = max(self.most_bytes, self._held())

    def let_out(self, rows: int, size: int) -> None:
        """Remove a returned chunk from the counts."""
        self.most_bytes = max(self.most_bytes, self._held())
        self.rows -= rows
        self._bytes -= size

    def measure(self, answer: Any) -> None:
        """Add an answer's size to the mean."""
        size = size_of(answer, self.tuning)
        self._answer += (size - self._answer) / min(self.measured + 1, self.tuning.ewma_answers)
        # Increment this number last, because another thread reads it before it reads the mean.
        self.measured += 1
        if self.measured == 1:
            self.on_news()

    def _held(self) -> int:
        return int(self._bytes + self.rows * self._answer)


def size_of(value: Any, tuning: BufferTuning = _TUNING) -> float:
    """Return the size in bytes of a value with its nested values; exclude mapping keys, which most answers share."""
    try:
        return _size_of(value, tuning.max_depth, tuning.max_items)
    except Exception:
        # A user-defined class raised an error. Whether the value is a valid answer is checked later.
        return float(object.__sizeof__(value))


def _size_of(value: Any, deep: int, many: int) -> float:
    size = float(sys.getsizeof(value))
    parts: Iterable[Any]
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    else:
        return size
    if deep and value:
        looked = [_size_of(part, deep - 1, many) for part in itertools.islice(parts, many)]
        # A user-defined class may have a length but no items.
        size += sum(looked) / max(1, len(looked)) * len(value)
    return size
