"""Arrow batches to the rows that a function is called with."""

from __future__ import annotations

import collections
import datetime
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

__all__ = ["RowReader", "columns_of", "hashable", "values_of"]

#: Formats of memoryview for what Arrow holds as plain numbers; pyarrow's own way makes a scalar object of each.
_PLAIN: dict[pa.DataType, Any] = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.float32(): "f",
    pa.float64(): "d",
}


class RowReader:
    """Makes rows of columns: tuples whose values are also reached as ``row.name`` and ``row["name"]``.

    Args:
        names: of the columns that the function gets, in order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._type = _row_type(tuple(names))

    def read(self, batch: pa.RecordBatch) -> list[Any]:
        """One row each."""
        if not self._names:
            return [self._type()] * batch.num_rows
        # What a namedtuple's _make does, without its Python.
        values = zip(*columns_of(batch, self._names), strict=True)
        return list(map(tuple.__new__, itertools.repeat(self._type), values))


def columns_of(batch: pa.RecordBatch, names: Iterable[str]) -> list[list[Any]]:
    """The values of columns, by name; names are unique, which is checked before a task runs."""
    fields = batch.schema.names
    return [values_of(batch.column(fields.index(name))) for name in names]


def values_of(array: pa.Array) -> list[Any]:
    """The values of an array as Python has them: a map is a dict, a struct is a dict."""
    form = _PLAIN.get(array.type)
    if form is not None and array.null_count == 0:
        data = array.buffers()[1]
        if data is None:
            return []
        plain = memoryview(data).cast("B")
        width = array.type.bit_width // 8
        start = array.offset * width
        numbers: list[Any] = plain[start : start + len(array) * width].cast(form).tolist()
        return numbers
    convert = _nested(array.type)
    values: list[Any] = array.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def hashable(value: Any) -> Hashable:
    """The same for values that are equal to Spark, whatever they are made of."""
    if isinstance(value, dict):
        return tuple((name, hashable(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(hashable, value))
    if isinstance(value, datetime.datetime) and (offset := value.utcoffset()) is not None:
        # In one zone Python compares what the clock shows, which in autumn is the same twice.
        return value.replace(tzinfo=datetime.timezone(offset))
    if isinstance(value, float) and math.isnan(value):
        return math.nan  # this one object is found again, which no other NaN is
    return value  # type: ignore[no-any-return]  # what Arrow makes otherwise is hashable


def _nested(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """How a value is mended in which a map stands, which pyarrow gives as pairs; None where there is none."""
    if pa.types.is_map(kind):
        item = _nested(kind.item_type)
        if item is None:
            return dict
        return lambda pairs: {name: None if value is None else item(value) for name, value in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _nested(kind.value_type)
        if element is not None:
            return lambda values: [None if value is None else element(value) for value in values]
    if pa.types.is_struct(kind):
        parts = {kind.field(i).name: _nested(kind.field(i).type) for i in range(kind.num_fields)}
        mended = {name: convert for name, convert in parts.items() if convert is not None}
        if mended:
            return lambda value: _with_mended(value, mended)
    return None


def _with_mended(value: Mapping[str, Any], mended: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    return {name: mended[name](part) if name in mended and part is not None else part for name, part in value.items()}


def _row_type(names: tuple[str, ...]) -> Any:
    # rename: a column may be called `class` or `a b`; it is then reached by row["a b"] only.
    base = collections.namedtuple("Row", names, rename=True)  # type: ignore[misc]
    places = {name: place for place, name in enumerate(names)}

    def get(self: Any, which: Any) -> Any:
        if isinstance(which, str):
            try:
                return tuple.__getitem__(self, places[which])
            except KeyError:
                raise KeyError(f"no column {which!r} among those the function gets: {', '.join(names)}") from None
        return tuple.__getitem__(self, which)

    def as_dict(self: Any) -> dict[str, Any]:
        """As of ``pyspark.sql.Row``."""
        return dict(zip(names, self, strict=True))

    return type("Row", (base,), {"__slots__": (), "__getitem__": get, "asDict": as_dict})
