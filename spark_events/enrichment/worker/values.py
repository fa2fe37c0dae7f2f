"""Arrow arrays to Python values, whatever is in them."""

from __future__ import annotations

import contextlib
import datetime
import functools
import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import pyarrow as pa

__all__ = ["hashable", "identities_of", "named", "or_each", "values_of"]

#: Formats of memoryview for what Arrow holds as plain numbers; pyarrow's own way makes a scalar object of each.
_PLAIN: dict[pa.DataType, Any] = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.float32(): "f",
    pa.float64(): "d",
}
#: What pyarrow raises for a moment or a day beyond Python's calendar, and for text that is none.
_UNREADABLE = (OverflowError, ValueError)
#: How Java writes offsets, ``GMT+5`` and ``UTC+05:30`` among them; those with seconds are not matched.
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?")


def identities_of(batch: pa.RecordBatch, names: Iterable[str]) -> list[list[Any]]:
    """The values of columns, by name, to tell rows apart.

    A value that Python cannot hold is there as the numbers or bytes it is made of.
    """
    return [or_each(array, lambda one, _row, _error: values_of(_bare(one))[0]) for array, _ in named(batch, names)]


def values_of(array: pa.Array) -> list[Any]:
    """The values of an array as Python has them: a struct is a dict, and so is a map, but for one of structs or lists.

    These can be no keys of a dict: such a map is a list of pairs.
    Moments are in the array's time zone, or in UTC where Python does not know that.
    """
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
    known = _with_known_zones(array.type)
    if known is not array.type:
        array = array.cast(known)
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


def named(batch: pa.RecordBatch, names: Iterable[str]) -> list[tuple[pa.Array, str]]:
    """Columns by name; names are unique, which is checked before a task runs."""
    fields = batch.schema.names
    return [(batch.column(fields.index(name)), name) for name in names]


def or_each(array: pa.Array, instead: Callable[[pa.Array, int, Exception], Any]) -> list[Any]:
    """All values at once; only where that is impossible one by one, and others for those that raise."""
    with contextlib.suppress(*_UNREADABLE):
        return values_of(array)
    values: list[Any] = []
    for row in range(len(array)):
        one = array.slice(row, 1)
        try:
            values += values_of(one)
        except _UNREADABLE as error:
            values.append(instead(one, row, error))
    return values


def _with_known_zones(kind: pa.DataType) -> pa.DataType:
    """The type itself, or the same with zones that Python knows: Java, whose zone it is, knows more of them."""
    if not kind.num_fields and not pa.types.is_timestamp(kind):
        return kind  # without a look into the cache, for the most usual
    return _found_known_zones(kind) or kind


@functools.lru_cache(maxsize=256)
def _found_known_zones(kind: pa.DataType) -> pa.DataType | None:
    changed = _mapped_type(kind, _with_known_zone)
    return None if changed == kind else changed


def _with_known_zone(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_timestamp(kind) or kind.tz is None or _is_known(kind.tz):
        return kind
    offset = _OFFSET.fullmatch(kind.tz)
    zone = "UTC" if offset is None else f"{offset['sign']}{int(offset['hours']):02}:{offset['minutes'] or '00'}"
    return pa.timestamp(kind.unit, zone if _is_known(zone) else "UTC")


def _is_known(zone: str) -> bool:
    try:
        pa.array([0], pa.timestamp("us", zone)).to_pylist()
    except Exception:
        # What says so differs with the library that pyarrow asks.
        return False
    return True


def _bare(array: pa.Array) -> pa.Array:
    return array.cast(_mapped_type(array.type, _bare_type))


def _mapped_type(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The same with what is not nested changed, however deep it stands."""
    if pa.types.is_map(kind):
        return pa.map_(_mapped_type(kind.key_type, change), _mapped_type(kind.item_type, change))
    if pa.types.is_list(kind):
        return pa.list_(_mapped_type(kind.value_type, change))
    if pa.types.is_large_list(kind):
        return pa.large_list(_mapped_type(kind.value_type, change))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_mapped_type(field.type, change)) for field in kind])
    return change(kind)


def _bare_type(kind: pa.DataType) -> pa.DataType:
    """Without moments, days and text: microseconds and days since 1970, and bytes."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_string(kind):
        return pa.binary()
    return pa.large_binary() if pa.types.is_large_string(kind) else kind


def _nested(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """How a value is mended in which a map stands, which pyarrow gives as pairs; None where there is none."""
    if pa.types.is_map(kind):
        item = _nested(kind.item_type)
        if pa.types.is_nested(kind.key_type):
            # There is no map in a key.
            if item is None:
                return None
            return lambda pairs: [(key, None if value is None else item(value)) for key, value in pairs]
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
