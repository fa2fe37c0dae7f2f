"""Conversion of Arrow batches to the rows that the user's function receives, and to the keys of these rows."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from spark_events.enrichment.engine.failure import RowFailure, type_of
from spark_events.enrichment.worker.type_checks import spark_name
from spark_events.enrichment.worker.values import identities_of, named, or_each

_NUMBERS = frozenset({int, float})


def idempotency_keys(scope: str, columns: Sequence[str], batch: pa.RecordBatch) -> Callable[[int], str]:
    """Return a function that computes the idempotency key of a row from its index.

    The key is a digest of the scope and of the row's values in some columns. The partition and the order are not part
    of it, because they may be different in a replay. Rows that are equal in these columns have the same key.

    Args:
        scope: identity of the query, the batch and the enrichment, stable across restarts.
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
    text = f"{scope}\x1e" + "\x1f".join(map(canonical, values))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def canonical(value: Any) -> str:
    """Return a string that is the same for equal values in every Python version and session time zone."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.timezone.utc).isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, dict):
        return "{" + ",".join(f"{canonical(name)}:{canonical(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list) and _NUMBERS.issuperset(map(type, value)):
        # Fast path with the same result, for lists of hundreds of numbers such as embeddings.
        return f"[{','.join(map(repr, value))}]"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, bytes):
        return f"b{value.hex()}"
    if isinstance(value, str):
        # Do not use repr(), which escapes characters that this version of Python does not know yet.
        return f"'{value.encode('utf-8', 'surrogatepass').hex()}"
    return str(value)


@dataclasses.dataclass(frozen=True, slots=True)
class BatchSlice:
    """Rows of one chunk, as Spark sent them; the chunk's tag refers to this object.

    Attributes:
        batch: the rows with all columns.
        start: the index of the first row in its partition.
        answer_keys: the rows' keys in the replay store; empty without a replay store.
        stored: the indices of the rows whose answers the replay store has received.
    """

    batch: pa.RecordBatch
    start: int
    answer_keys: Sequence[str] = ()
    stored: set[int] = dataclasses.field(default_factory=set)


class Rows(Sequence[Any]):
    """Sequence that creates each row on access.

    The garbage collector would scan stored rows. Two accesses to a row return different objects that are equal.
    """

    def __init__(self, row: Any, columns: Sequence[Sequence[Any]]) -> None:
        self._row = row
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, index: Any) -> Any:
        return tuple.__new__(self._row, [column[index] for column in self._columns])

    def __iter__(self) -> Iterator[Any]:
        # Equivalent to a namedtuple's _make, but without Python code.
        return map(tuple.__new__, itertools.repeat(self._row), zip(*self._columns, strict=True))


class RowReader:
    """Converter from columns to rows: tuples with access by ``row.name`` and ``row["name"]``.

    Args:
        names: the columns that the function receives, in order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._type = _row_type(tuple(names))

    def read(self, batch: pa.RecordBatch) -> tuple[Sequence[Any], dict[int, RowFailure]]:
        """Return the rows, and failures by index; a row with a value that Python cannot represent fails."""
        failures: dict[int, RowFailure] = {}
        if not self._names:
            return [self._type()] * batch.num_rows, failures
        columns = [_values_or_failures(array, name, failures) for array, name in named(batch, self._names)]
        return Rows(self._type, columns), failures


def _values_or_failures(array: pa.Array, name: str, failures: dict[int, RowFailure]) -> list[Any]:
    def failed(one: pa.Array, row: int, error: Exception) -> None:
        # Omit the error's message, because it may contain the value.
        years = "timestamps and dates of the years 1 to 9999, in UTC and in their time zone"
        allowed = "text in UTF-8" if isinstance(error, UnicodeError) else years
        message = (
            f"column {name!r} ({spark_name(one.type)}) has a value that Python cannot represent; allowed: {allowed}"
        )
        failures.setdefault(row, RowFailure("error", type_of(error), message))

    return or_each(array, failed)


def _row_type(names: tuple[str, ...]) -> Any:
    # Because of `rename`, columns may be called `class` or `a b`. A function can access `a b` only as row["a b"].
    make: Any = collections.namedtuple
    base = make("Row", names, rename=True)
    indexes = {name: index for index, name in enumerate(names)}
    renamed = [(index, name) for index, name in enumerate(names) if base._fields[index] != name]
    for index, _ in renamed:
        # Spark itself names columns _1, _2. Such a name must not refer to another column.
        delattr(base, f"_{index}")
    taken = set(dir(base))
    # Python reserves names that begin with two underscores.
    hidden = {
        name: _at(index)
        for index, name in renamed
        if name.isidentifier() and not name.startswith("__") and name not in taken
    }

    def get(self: Any, which: Any) -> Any:
        if isinstance(which, str):
            try:
                return tuple.__getitem__(self, indexes[which])
            except KeyError:
                raise KeyError(f"no column {which!r}; the function receives: {', '.join(names)}") from None
        return tuple.__getitem__(self, which)

    def missing(self: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        hint = "; a row is a tuple, and row.asDict() is a dict" if hasattr(dict, name) else ""
        raise AttributeError(f"no column {name!r}; the function receives: {', '.join(names)}{hint}")

    def as_dict(self: Any) -> dict[str, Any]:
        """Return the row as a dictionary, like ``pyspark.sql.Row.asDict``."""
        return dict(zip(names, self, strict=True))

    return type(
        "Row", (base,), {**hidden, "__slots__": (), "__getitem__": get, "__getattr__": missing, "asDict": as_dict}
    )


def _at(index: int) -> property:
    return property(lambda row: tuple.__getitem__(row, index))
