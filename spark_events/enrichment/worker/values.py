"""Conversion of Arrow arrays to Python values."""

from __future__ import annotations

import contextlib
import datetime
import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import pyarrow as pa

#: Memoryview formats of the types that Arrow stores as plain numbers. For these types, to_pylist() would create a
#: scalar object per value.
_PLAIN: dict[pa.DataType, Any] = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.float32(): "f",
    pa.float64(): "d",
}
#: Errors raised by pyarrow for timestamps and dates that Python's calendar lacks, and for invalid strings.
_UNREADABLE = (OverflowError, ValueError)


def identities_of(batch: pa.RecordBatch, names: Iterable[str]) -> list[list[Any]]:
    """Return the values of columns by name, to distinguish rows.

    If Python cannot represent a value, its underlying number or bytes replace it.
    """
    return [or_each(array, lambda one, _row, _error: values_of(_bare(one))[0]) for array, _ in named(batch, names)]


def values_of(array: pa.Array) -> list[Any]:
    """Return the values of an array as Python values; structs and maps become dicts.

    A map whose keys are structs or lists becomes a list of pairs, because such keys are not hashable. Timestamps are in
    the array's time zone, or in UTC if Python does not know that zone.
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
    """Return a hashable form of a value; equal values in Spark have equal forms."""
    if isinstance(value, dict):
        return tuple((name, hashable(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(hashable, value))
    if isinstance(value, datetime.datetime) and (offset := value.utcoffset()) is not None:
        # Within one time zone, Python compares the clock time, which occurs twice at the end of daylight saving time.
        return value.replace(tzinfo=datetime.timezone(offset))
    if isinstance(value, float) and math.isnan(value):
        return math.nan  # found by identity: no other NaN object would be equal
    return value  # type: ignore[no-any-return]  # all other values from Arrow are hashable


def pairs_of(value: Any) -> Iterable[Any]:
    """Return the pairs of a value for a map: a mapping, or the pairs themselves."""
    return value.items() if isinstance(value, Mapping) else value


def named(batch: pa.RecordBatch, names: Iterable[str]) -> list[tuple[pa.Array, str]]:
    """Return columns by name; the driver has checked that names are unique."""
    fields = batch.schema.names
    return [(batch.column(fields.index(name)), name) for name in names]


def or_each(array: pa.Array, instead: Callable[[pa.Array, int, Exception], Any]) -> list[Any]:
    """Return all values; if the bulk conversion fails, convert the values one by one.

    ``instead`` is called for each value whose conversion raises an exception.
    """
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
    """Return the type with time zones that Python knows; the zone comes from Java, which knows more zones."""
    if not kind.num_fields and not pa.types.is_timestamp(kind):
        return kind  # skips the cache for the most frequent types
    return _found_known_zones(kind) or kind


@functools.lru_cache(maxsize=256)
def _found_known_zones(kind: pa.DataType) -> pa.DataType | None:
    changed = _mapped_type(kind, _with_known_zone)
    return None if changed == kind else changed


def _with_known_zone(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_timestamp(kind) or kind.tz is None or _is_known(kind.tz):
        return kind
    return pa.timestamp(kind.unit, "UTC")


def _is_known(zone: str) -> bool:
    try:
        pa.array([0], pa.timestamp("us", zone)).to_pylist()
    except Exception:
        # The type of the exception depends on pyarrow's time zone library.
        return False
    return True


def _bare(array: pa.Array) -> pa.Array:
    return array.cast(_mapped_type(array.type, _bare_type))


def _mapped_type(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the type with all its leaf types changed, at any depth."""
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
    """Replace timestamps with microseconds, dates with days since 1970, and strings with bytes."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_string(kind):
        return pa.binary()
    return pa.large_binary() if pa.types.is_large_string(kind) else kind


def _nested(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return a function that converts the maps in a value; None if the type has no maps.

    pyarrow returns a map as pairs.
    """
    if pa.types.is_map(kind):
        item = _nested(kind.item_type)
        if pa.types.is_nested(kind.key_type):
            # A map key contains no map.
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
