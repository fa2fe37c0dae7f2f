"""What goes into the engine: rows by the chunk, and what belongs to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from spark_events.enrichment.engine.failure import RowFailure

__all__ = ["Chunk"]


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
