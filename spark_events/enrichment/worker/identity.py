"""Keys by which a destination recognises a call that is made again."""

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
    """The key of a row by its index, made only when it is asked for.

    It is a digest of the scope (query and micro-batch) and of the row's content, of nothing else: a replay may cut the
    same rows into other partitions and another order. Rows equal in every column therefore have the same key.

    Args:
        scope: what makes this batch this batch, over restarts.
        columns: whose values make the row.
        batch: the rows.
    """
    fields = [batch.schema.names.index(name) for name in columns]
    part = pa.RecordBatch.from_arrays([batch.column(i) for i in fields], names=[str(i) for i in range(len(fields))])

    def key(row: int) -> str:
        values = identities_of(part.slice(row, 1), part.schema.names)
        return _digest(scope, (value[0] for value in values))

    return key


def answer_keys(columns: Sequence[str], batch: pa.RecordBatch) -> list[str]:
    """The keys of all rows, by which their answers are found when the batch is run again.

    Args:
        columns: on whose values an answer depends, and which tell one row from another.
        batch: the rows.
    """
    values = identities_of(batch, columns)
    return [_digest("", (column[row] for column in values)) for row in range(batch.num_rows)]


def _digest(scope: str, values: Iterable[Any]) -> str:
    text = f"{scope}\x1e" + "\x1f".join(map(_canonical, values))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _canonical(value: Any) -> str:
    """The same text for the same value, whatever the version of Python and the session's time zone."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.timezone.utc).isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, dict):
        return "{" + ",".join(f"{_canonical(name)}:{_canonical(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list) and _NUMBERS.issuperset(map(type, value)):
        # The same in fewer steps: an embedding has hundreds.
        return f"[{','.join(map(repr, value))}]"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, bytes):
        return f"b{value.hex()}"
    if isinstance(value, str):
        # Not its repr: that escapes the characters that this version of Python does not know yet.
        return f"'{value.encode('utf-8', 'surrogatepass').hex()}"
    return str(value)
