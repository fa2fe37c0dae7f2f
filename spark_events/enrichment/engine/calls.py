"""Rows on their way through the engine: chunks, calls for one row or for several, and the context of a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

from spark_events.enrichment.engine.buffer import SAMPLE, Buffer
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.errors import InvalidPlanError

__all__ = ["PENDING", "Call", "Chunk", "Context", "GroupCall", "RowBatch"]


@dataclasses.dataclass(slots=True, eq=False)
class Chunk:
    """Rows that come in and go out together: an Arrow batch, or a slice of one.

    The buffer is measured in whole chunks, so a huge Arrow batch is better cut (slices cost nothing).
    Columns instead of one object a row: an object with five fields a row costs more than the whole pool.

    Attributes:
        rows: what the function is called with, one each.
        idempotency_key: of the row at an index; asked only when the function asks.
        size: bytes that the rows take, estimated.
        keys: the ordering key of each row, hashable; None: rows are independent.
        requests: the request of each row, hashable, for coalescing and the cache; None: neither.
        known: answers that are known from an earlier run, by index; these rows are not called.
        failed: why rows cannot be called at all, by index; none of them is known.
        tag: the caller's own, untouched.
    """

    rows: Sequence[Any]
    idempotency_key: Callable[[int], str]
    size: int
    keys: Sequence[Hashable] | None = None
    requests: Sequence[Hashable] | None = None
    known: Mapping[int, Any] | None = None
    failed: Mapping[int, RowFailure] | None = None
    tag: Any = None


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


class Context:
    """``ctx``: one for each call, the same for all its attempts.

    Attributes:
        resource: what the plan's resource opened; None without one.
    """

    __slots__ = ("_call", "resource")

    def __init__(self, call: Call, resource: Any) -> None:
        self._call = call
        self.resource = resource

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._call.attempt

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt, in every attempt of the task, and when the batch is run again.

        Raises:
            InvalidPlanError: the call is for several rows. Which ones are together depends on what comes when, so they
                have no key that would be the same again.
        """
        if isinstance(self._call, GroupCall):
            raise InvalidPlanError(
                "ctx.idempotency_key is the key of one row: with batch_size, use ctx.idempotency_keys, one for each row"
            )
        return self._call.batch.chunk.idempotency_key(self._call.index)

    @property
    def idempotency_keys(self) -> tuple[str, ...]:
        """The key of each row of this call, in their order."""
        return tuple(batch.chunk.idempotency_key(index) for batch, index in self._call.places())
