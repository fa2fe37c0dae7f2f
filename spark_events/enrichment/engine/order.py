"""Order in which the engine returns answered rows: input order, or order of the answers' arrival."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeAlias

from spark_events.enrichment.engine.buffer import RowBuffer
from spark_events.enrichment.engine.calls import PENDING, Chunk, Part, RowBatch

__all__ = ["Answered", "OrderTuning", "Ordered", "Unordered"]

#: Answered rows with their answers.
Answered: TypeAlias = tuple[Chunk | Part, list[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class OrderTuning:
    """Sizes of the groups in which rows return to Spark if their order is free.

    Attributes:
        min_rows: minimum number of rows in a group, because each return has a cost; fewer if the buffer is small or
            full.
        parts: a group has at most this part of the buffer's rows, as a reciprocal.
    """

    min_rows: int = 1_000
    parts: int = 8


class Ordered:
    """Admitted batches, returned in input order; used by the caller's thread.

    A batch is returned when all its rows, and the rows of all earlier batches, are answered.

    Attributes:
        batches: the batches that are not returned yet, in order of admission.
    """

    def __init__(self, buffer: RowBuffer) -> None:
        self.batches: deque[RowBatch] = deque()
        self._buffer = buffer

    def pop(self) -> Answered | None:
        """Pop the next rows to return to Spark; None if there are none yet."""
        if not self.batches or self.batches[0].left:
            return None
        batch = self.batches.popleft()
        self._buffer.let_out(len(batch.rows), batch.chunk.size)
        return batch.chunk, batch.answers


class Unordered(Ordered):
    """Admitted batches whose rows are returned in the order in which their answers arrive.

    Rows are returned in groups: when 1,000 rows (or an eighth of the buffer, if that is smaller) are answered, or
    when a batch is complete. If the chunks contain keys, a row is returned only after all earlier rows with the same
    key.
    """

    def __init__(self, buffer: RowBuffer, tuning: OrderTuning | None = None) -> None:
        super().__init__(buffer)
        self._tuning = tuning or OrderTuning()
        self._walk: Iterator[Answered] | None = None
        self._seen = 0

    def pop(self) -> Answered | None:
        buffer = self._buffer
        while True:
            # Set this number before reading `settled`. In this order, either this thread sees an answer, or the loop's
            # thread wakes this thread.
            buffer.wanted = self._seen + self._group_rows()
            if self._walk is None:
                if buffer.settled < buffer.wanted and all(batch.left for batch in self.batches):
                    return None
                self._seen = buffer.settled
                self._walk = self._leaving()
            found = next(self._walk, None)
            if found is not None:
                return found
            self._walk = None
            if buffer.settled == self._seen:
                buffer.wanted = self._seen + self._group_rows()
                if buffer.settled == self._seen:
                    return None

    def _group_rows(self) -> int:
        """Return the number of answered rows to return together."""
        rows = min(self._tuning.min_rows, self._buffer.allowed_rows // self._tuning.parts)
        if self._buffer.is_full:
            rows = min(rows, self._buffer.rows // self._tuning.parts)
        return max(1, rows)

    def _leaving(self) -> Iterator[Answered]:
        # Remove answers from a batch only when the caller takes them, because `unfinished` reports them until then.
        blocked: set[Hashable] = set()
        for batch in tuple(self.batches):
            rows = _answered_rows(batch, blocked)
            is_over = not batch.open
            if is_over:
                self.batches.remove(batch)
            answers = [batch.answers[row] for row in rows]
            for row in rows:
                batch.answers[row] = PENDING
            self._buffer.let_out(len(rows), batch.chunk.size if is_over else 0)
            if rows:
                yield part_of(batch, rows), answers


def part_of(batch: RowBatch, rows: Sequence[int]) -> Chunk | Part:
    """Return the batch's chunk, or a part of the chunk if rows are missing."""
    return batch.chunk if len(rows) == len(batch.rows) else Part(batch.chunk, rows)


def _answered_rows(batch: RowBatch, blocked: set[Hashable]) -> Sequence[int]:
    """Remove and return those open rows of a batch that may be returned now.

    Args:
        batch: the batch.
        blocked: the keys of earlier rows that are not returned yet. The function adds the keys of this batch's
            remaining rows. Batches must be read in order, because the loop's thread may store answers at the same time.
    """
    answers, keys, given = batch.answers, batch.chunk.keys, batch.open
    if keys is None:
        if batch.left == len(given):
            return ()
        rows = [row for row in given if answers[row] is not PENDING]
    else:
        rows = []
        for row in given:
            if answers[row] is PENDING:
                blocked.add(keys[row])
            elif keys[row] not in blocked:
                rows.append(row)
    gone = set(rows)
    batch.open = [row for row in given if row not in gone]
    return rows
