"""Keys by which a destination recognises a call that is made again."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from spark_events.enrich.spark.values import identities_of

__all__ = ["idempotency_keys"]


def idempotency_keys(scope: str, columns: Sequence[str], batch: pa.RecordBatch) -> Callable[[int], str]:
    """The key of a row by its index, made only when it is asked for.

    It is a digest of the scope (query and micro-batch) and of the row's content, of nothing else: a replay may cut the
    same rows into other partitions and another order. Rows equal in every column therefore have the same key.

    Args:
        scope: what makes this batch this batch, over restarts.
        columns: whose values make the row.
        batch: the rows.
    """
    start = f"{scope}\x1e".encode()
    fields = [batch.schema.names.index(name) for name in columns]
    part = pa.RecordBatch.from_arrays([batch.column(i) for i in fields], names=[str(i) for i in range(len(fields))])

    def key(row: int) -> str:
        values = identities_of(part.slice(row, 1), part.schema.names)
        text = "\x1f".join(_canonical(value[0]) for value in values)
        return hashlib.blake2b(start + text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    return key


def _canonical(value: Any) -> str:
    """The same text for the same value, whatever the version of Python and the session's time zone."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.timezone.utc).isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, dict):
        return "{" + ",".join(f"{_canonical(name)}:{_canonical(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, bytes):
        return f"b{value.hex()}"
    if isinstance(value, str):
        return repr(value)
    return str(value)
