"""What is to be called: batches on their way through the engine, and calls for one row or for several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from spark_events.enrichment.engine.buffer import SAMPLE, Buffer
from spark_events.enrichment.engine.chunk import Chunk
from spark_events.enrichment.engine.failure import RowFailure

__all__ = ["PENDING", "Call", "GroupCall", "RowBatch"]

#: In place of an answer that is still to come.
PENDING: Final = object()


class RowBatch:
    """A chunk on its way: its answers, and how many are still to come.

    Written by the loop's thread; the caller's thread looks at ``left``.
    """

    __slots__ = ("_buffer", "admitted", "answers", "chunk", "left", "rows")

    def __init__(self, chunk: Chunk, admitted: float, buffer: Buffer) -> None:
        self.chunk = chunk
        self.rows = chunk.rows
        self.left = len(chunk.rows)
        self.answers: list[Any] = [PENDING] * self.left
        self.admitted = admitted
        self._buffer = buffer

    def settle(self, index: int, answer: Any) -> None:
        """The row has its answer."""
        self.answers[index] = answer
        self.left -= 1
        buffer = self._buffer
        if not index % SAMPLE or not buffer.measured:
            buffer.measure(answer)
        if not self.left:
            buffer.on_news()


class Call:
    """One row's call; ``attempt`` is the number of the latest one, from 1."""

    __slots__ = ("attempt", "batch", "index")

    def __init__(self, batch: RowBatch, index: int) -> None:
        self.batch = batch
        self.index = index
        self.attempt = 1

    def places(self) -> Iterable[tuple[RowBatch, int]]:
        """Its rows: the batch and the index there."""
        return ((self.batch, self.index),)

    def argument(self) -> Any:
        """What the function is called with."""
        return self.batch.rows[self.index]


class GroupCall(Call):
    """One call for several rows.

    A row's result may be an exception: it alone has failed. Where it may pass, the next attempt is for these rows only.
    """

    __slots__ = ("_failures", "_places", "answers")

    def __init__(self, places: Sequence[tuple[RowBatch, int]]) -> None:
        super().__init__(*places[0])
        self._places = list(places)
        self._failures: list[RowFailure] = []
        self.answers: list[tuple[RowBatch, int, Any]] = []

    def places(self) -> Iterable[tuple[RowBatch, int]]:
        return self._places

    def argument(self) -> Any:
        return [batch.rows[index] for batch, index in self._places]

    def narrow(self, left: list[tuple[RowBatch, int, RowFailure]]) -> None:
        """Only these rows have no answer yet, each for a reason of its own; the first one's is what the call raises."""
        self._places = [(batch, index) for batch, index, _ in left]
        self._failures = [failure for _, _, failure in left]

    def all_failed(self, failure: RowFailure) -> list[tuple[RowBatch, int, Any]]:
        """What is answered, and for the rest the failure; where that is the first row's, each its own."""
        own = self._failures
        if not own or _told(own[0]) != _told(failure):
            own = [failure] * len(self._places)
        rest = ((batch, index, one) for (batch, index), one in zip(self._places, own, strict=True))
        return [*self.answers, *rest]


def _told(failure: RowFailure) -> tuple[str, str, str, int]:
    """What tells one failure of a call from another."""
    return failure.kind, failure.type, failure.message, failure.attempts
