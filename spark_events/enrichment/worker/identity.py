"""Keys by which a destination recognises a repeated call, and the replay store an answer."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from spark_events.enrichment.worker.values import identities_of

__all__ = ["answer_keys", "idempotency_keys"]


_NUMBERS = frozenset({int, float})


def idempotency_keys(scope: str, columns: Sequence[str], batch: pa.RecordBatch) -> Callable[[int], str]:
    """Return a function that computes the idempotency key of a row from its index.

    The key is a digest of the scope (query and micro-batch) and of the row's content only, because a replay may
    distribute the same rows over other partitions and in another order. Rows that are equal in every column have the
    same key.

    Args:
        scope: identity of the batch, stable over restarts.
        columns: the columns whose values identify the row.
        batch: the rows.
    """
    fields = [batch.schema.names.index(name) for name in columns]
    part = pa.RecordBatch.from_arrays([batch.column(i) for i in fields], names=[str(i) for i in range(len(fields))])

    def key(row: int) -> str:
        values = identities_of(part.slice(row, 1), part.schema.names)
        return _digest(scope, (value[0] for value in values))

    return key


def answer_keys(columns: Sequence[str], batch: pa.RecordBatch) -> list[str]:
    """Return the keys by which the replay store finds the answers of all rows.

    Args:
        columns: the columns on which an answer depends and those that identify a row.
        batch: the rows.
    """
    values = identities_of(batch, columns)
    return [_digest("", (column[row] for column in values)) for row in range(batch.num_rows)]


def _digest(scope: str, values: Iterable[Any]) -> str:
    text = f"{scope}\x1e" + "\x1f".join(map(_canonical, values))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _canonical(value: Any) -> str:
    """Return text that is the same for equal values in every Python version and session time zone."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.timezone.utc).isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, dict):
        return "{" + ",".join(f"{_canonical(name)}:{_canonical(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list) and _NUMBERS.issuperset(map(type, value)):
        # Fast path with the same result, for lists of hundreds of numbers such as embeddings.
        return f"[{','.join(map(repr, value))}]"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, bytes):
        return f"b{value.hex()}"
    if isinstance(value, str):
        # Not repr(), which escapes characters that this Python version does not know yet.
        return f"'{value.encode('utf-8', 'surrogatepass').hex()}"
    return str(value)
