"""Rows in the engine: chunks, and calls for one or several rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

from spark_events.enrichment.engine.buffer import RowBuffer
from spark_events.enrichment.engine.failure import RowFailure

__all__ = ["PENDING", "Call", "Chunk", "GroupCall", "Part", "RowBatch"]


@dataclasses.dataclass(slots=True, eq=False)
class Chunk:
    """Rows that are admitted and returned together: an Arrow batch, or a slice of an Arrow batch.

    The buffer counts whole chunks, so large Arrow batches should be sliced; slices cost nothing. The rows are stored as
    columns, because one object with five fields per row would cost more than the whole pool.

    Attributes:
        rows: the function's argument for each row.
        idempotency_key: returns the key of the row at an index; called only if the function reads the key.
        size: estimated bytes of the rows.
        keys: the hashable ordering key of each row; None: rows are independent.
        requests: the hashable request of each row, for coalescing and the cache; None: neither is used.
        known: answers from an earlier run, by index; these rows need no call.
        failed: failures of rows that the function cannot receive, by index; disjoint from ``known``.
        tag: any object; the engine passes it back to the caller unchanged.
    """

    rows: Sequence[Any]
    idempotency_key: Callable[[int], str]
    size: int
    keys: Sequence[Hashable] | None = None
    requests: Sequence[Hashable] | None = None
    known: Mapping[int, Any] | None = None
    failed: Mapping[int, RowFailure] | None = None
    tag: Any = None


@dataclasses.dataclass(slots=True, eq=False)
class Part:
    """Rows that are returned before the other rows of their chunk.

    Attributes:
        chunk: the chunk.
        rows: the indices of the rows, ascending.
    """

    chunk: Chunk
    rows: Sequence[int]


#: Placeholder for a pending answer.
PENDING: Final = object()


class RowBatch:
    """Admitted chunk with its answers and the number of missing answers.

    The loop's thread changes this object; the caller's thread reads ``left``.

    Attributes:
        open: the indices of the rows that are not returned yet; used by the caller's thread only.
    """

    __slots__ = ("_buffer", "admitted", "answers", "chunk", "left", "open", "rows")

    def __init__(self, chunk: Chunk, admitted: float, buffer: RowBuffer) -> None:
        self.chunk = chunk
        self.rows = chunk.rows
        self.left = len(chunk.rows)
        self.answers: list[Any] = [PENDING] * self.left
        self.open: Sequence[int] = range(self.left)
        self.admitted = admitted
        self._buffer = buffer

    def settle(self, index: int, answer: Any) -> None:
        """Store the answer of a row."""
        self.answers[index] = answer
        self.left -= 1
        buffer = self._buffer
        if not index % buffer.tuning.sample_rows or not buffer.measured:
            buffer.measure(answer)
        buffer.settled += 1
        if not self.left or buffer.settled >= buffer.wanted:
            buffer.on_news()


class Call:
    """Call for one row; without ``row``, the call reads its row from the batch.

    Attributes:
        attempt: the number of the latest attempt, from 1.
        number: the number of the latest attempt in the reported quota; 0 if the function takes no context.
        is_served: whether the destination has answered some rows of the call, so that it is not down.
        is_singled_out: whether the destination has rejected the call repeatedly because of the rate, but has answered
            other calls meanwhile. The rejections then show nothing about the rate.
        vain: number of failed attempts since the destination last answered another call; if the call is singled out,
            such answers do not count.
    """

    __slots__ = ("_answers", "_row", "attempt", "batch", "index", "is_served", "is_singled_out", "number", "vain")

    def __init__(self, batch: RowBatch, index: int, row: Any = None) -> None:
        self.batch = batch
        self.index = index
        self._row = row
        self.attempt = 1
        self.number = self.vain = 0
        self.is_served = self.is_singled_out = False
        self._answers = 0

    def failed(self, answers: int, suspicious: int, *, exceeds_rate: bool) -> None:
        """Record a failed attempt.

        Args:
            answers: number of attempts of all calls that the destination has answered so far.
            suspicious: number of attempts after which a rejected call may itself be the reason for its rejections.
            exceeds_rate: whether the destination rejected the attempt because of the rate.
        """
        is_answering, self._answers = answers > self._answers, answers
        self.is_singled_out |= exceeds_rate and is_answering and self.attempt >= suspicious
        self.vain = 1 if is_answering and not self.is_singled_out else self.vain + 1

    def positions(self) -> Iterable[tuple[RowBatch, int]]:
        """Return the call's rows as pairs of batch and index."""
        return ((self.batch, self.index),)

    def argument(self) -> Any:
        """Return the function's argument."""
        return self.batch.rows[self.index] if self._row is None else self._row


class GroupCall(Call):
    """Call for several rows.

    The result of a row may be an exception, which fails only this row. If the failure is retryable, the next attempt
    contains only such rows.
    """

    __slots__ = ("_failures", "_positions", "answers")

    def __init__(self, positions: Sequence[tuple[RowBatch, int]]) -> None:
        super().__init__(*positions[0])
        self._positions = list(positions)
        self._failures: list[RowFailure] = []
        self.answers: list[tuple[RowBatch, int, Any]] = []

    def positions(self) -> Iterable[tuple[RowBatch, int]]:
        return self._positions

    def argument(self) -> Any:
        return [batch.rows[index] for batch, index in self._positions]

    def narrow(self, left: list[tuple[RowBatch, int, RowFailure]]) -> None:
        """Restrict the call to the rows that have no answer yet, and store their failures."""
        self._positions = [(batch, index) for batch, index, _ in left]
        self._failures = [failure for _, _, failure in left]

    def all_failed(self, failure: RowFailure) -> list[tuple[RowBatch, int, Any]]:
        """Return the answers, and failures for the remaining rows.

        If ``failure`` is the failure of the first row, each row keeps its own failure. Otherwise all rows get
        ``failure``.
        """
        own = self._failures
        if not own or own[0] != failure:
            own = [failure] * len(self._positions)
        rest = ((batch, index, one) for (batch, index), one in zip(self._positions, own, strict=True))
        return [*self.answers, *rest]
