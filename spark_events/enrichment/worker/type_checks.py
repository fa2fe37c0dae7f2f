"""Checks that values fit a type without a conversion by Arrow, and that NOT NULL fields have no nulls.

Arrow truncates a float for an integer column. Spark does not check nulls in NOT NULL fields; the task would fail later.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from spark_events.enrichment.worker.values import hashable, pairs_of

_NAMES_SHOWN = 5
_BYTES = (bytes, bytearray, memoryview)
#: Spark's names of types, by Arrow's.
_SPARK_NAMES = {
    "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "float": "float",
    "double": "double", "string": "string", "large_string": "string", "large_binary": "binary", "date32[day]": "date",
    "duration[us]": "interval day to second", "null": "void",
}  # fmt: skip
_NOTHING = type(None)


#: Check of a column or a nested field: returns the reason why one of the values does not fit, without the value itself,
#: or None. One call for many values is faster than a call for each. The function may raise the errors that Arrow raises
#: for values that do not fit.
Check: TypeAlias = Callable[[Sequence[Any]], str | None]


def check_of(kind: pa.DataType, path: str) -> Check | None:
    """Return the check for a type; None if Arrow itself rejects every value that does not fit.

    Args:
        kind: the type.
        path: the path of the column or field, for messages.
    """
    prefix = f"column {path!r} is {spark_name(kind)}, but the function returned"
    if pa.types.is_list(kind):
        return functools.partial(_list_problem, prefix, check_of(kind.value_type, f"{path}.element"))
    if pa.types.is_map(kind):
        key, item = check_of(kind.key_type, f"{path}.key"), check_of(kind.item_type, f"{path}.value")
        return functools.partial(_map_problem, prefix, key, item)
    if pa.types.is_struct(kind):
        checks = {field.name: check_of(field.type, f"{path}.{field.name}") for field in kind}
        return functools.partial(_struct_problem, prefix, checks)
    fit = _fit_of(kind)
    return None if fit is None else functools.partial(_plain_problem, prefix, fit)


def spark_name(kind: pa.DataType) -> str:
    """Return the name by which Spark and the user's ``output`` call a type."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{spark_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_name(kind.key_type)},{spark_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{spark_name(field.type)}' for field in kind)}>"
    return _SPARK_NAMES.get(str(kind), str(kind))


def surely_fits(kind: pa.DataType) -> Callable[[Any], bool]:
    """Return a function that checks a value by its Python type; it returns False if only Arrow can decide."""
    if pa.types.is_integer(kind):
        least, most = (-(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1)
        return lambda value: type(value) is int and least <= value <= most
    if pa.types.is_float64(kind):
        return lambda value: type(value) is float
    if pa.types.is_boolean(kind):
        return lambda value: type(value) is bool
    if pa.types.is_string(kind):
        return lambda value: type(value) is str and _is_text(value)
    if pa.types.is_binary(kind):
        return lambda value: type(value) is bytes
    if pa.types.is_list(kind) and not has_required(kind):
        element = surely_fits(kind.value_type)
        return lambda value: type(value) is list and all(one is None or element(one) for one in value)
    return lambda _: False


def described(value: Any) -> str:
    """Describe the type of a value, without the value itself."""
    kind = type(value).__name__
    if isinstance(value, datetime.datetime):
        return f"{kind} {'with' if value.tzinfo else 'without'} a time zone"
    if isinstance(value, int | float | decimal.Decimal):
        return f"{kind} that does not fit"
    if isinstance(value, str) and not _is_text(value):
        return f"{kind} with a lone surrogate, which UTF-8 cannot encode"
    return kind


def listed(names: Sequence[str]) -> str:
    """Return the first few names, quoted, and the number of further names."""
    shown = ", ".join(map(repr, names[:_NAMES_SHOWN]))
    return shown + (f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else "")


def _plain_problem(prefix: str, fit: Callable[[Sequence[Any]], bool], values: Sequence[Any]) -> str | None:
    if fit(values):
        return None
    return next((f"{prefix} {described(value)}" for value in values if not fit([value])), None)


def _list_problem(prefix: str, element: Check | None, values: Sequence[Any]) -> str | None:
    # Reject strings, which Arrow would treat as lists of characters.
    if not _none_is(values, (str, bytes)):
        return next(f"{prefix} {described(value)}" for value in values if isinstance(value, str | bytes))
    if element is None:
        return None
    problems = (element(list(value)) for value in values if value is not None)
    return next((problem for problem in problems if problem is not None), None)


def _map_problem(prefix: str, key: Check | None, item: Check | None, values: Sequence[Any]) -> str | None:
    if not all(kind in (dict, _NOTHING) for kind in set(map(type, values))):
        for value in values:
            if _has_twins(value):
                return f"{prefix} {described(value)} with a duplicate key"
    if key is None and item is None:
        return None
    pairs = [pair for value in values if value is not None for pair in pairs_of(value)]
    problem = None if key is None else key([name for name, _ in pairs])
    return problem if problem is not None or item is None else item([part for _, part in pairs])


def _struct_problem(prefix: str, checks: Mapping[str, Check | None], values: Sequence[Any]) -> str | None:
    names = checks.keys()
    structs = [_named(names, value) for value in values if value is not None]
    for one in structs:
        if not one.keys() <= names:
            extra = sorted(str(name) for name in one.keys() - names)
            return f"{prefix} a mapping with {listed(extra)}, which it does not have"
    for name, check in checks.items():
        problem = None if check is None else check([one.get(name) for one in structs])
        if problem is not None:
            return problem
    return None


def _named(names: Collection[str], value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, tuple):
        return dict(zip(names, value, strict=True))
    raise TypeError


def _has_twins(value: Any) -> bool:
    """Return whether pairs contain a duplicate key; Spark accepts such a map, but finds only one of the values."""
    if value is None or isinstance(value, Mapping):
        return False
    keys = [hashable(key) for key, _ in value]
    return len(set(keys)) < len(keys)


def _fit_of(kind: pa.DataType) -> Callable[[Sequence[Any]], bool] | None:
    if pa.types.is_integer(kind):
        return _are_whole
    if pa.types.is_float32(kind):
        return lambda values: _none_is(values, (bool,)) and _are_in_range(values)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return lambda values: _none_is(values, (bool,))
    if pa.types.is_string(kind):
        # Arrow would accept UTF-8 bytes as a string, and a string as bytes.
        return lambda values: _none_is(values, _BYTES)
    if pa.types.is_binary(kind):
        return lambda values: _none_is(values, (str,))
    if pa.types.is_date(kind):
        # A datetime would lose its time of day. Arrow would convert any object with __int__, even numpy objects, to
        # days since 1970.
        return lambda values: _none_is(values, (datetime.datetime,)) and _all_are(values, (datetime.date, pa.Scalar))
    if pa.types.is_duration(kind):
        return lambda values: _all_are(values, (datetime.timedelta, pa.Scalar))
    if pa.types.is_timestamp(kind):
        # Arrow would read a time without a time zone as UTC, which may be wrong.
        aware = kind.tz is not None
        return lambda values: all(
            value is None or (isinstance(value, datetime.datetime) and (value.tzinfo is not None) is aware)
            for value in values
        )
    return None


def _are_whole(values: Sequence[Any]) -> bool:
    """Return whether all values are None, or Python or numpy integers; Arrow would truncate floats and decimals."""
    # Check this first: pa.infer_type inspects containers, and a container that contains itself would crash the process.
    if not _none_is(values, (list, tuple, dict, set, frozenset)):
        return False
    kind = pa.infer_type(values)
    return bool(pa.types.is_integer(kind) or pa.types.is_null(kind))


def _are_in_range(values: Sequence[Any]) -> bool:
    """Return whether all values are None or fit 32-bit floats, including infinity and NaN.

    Arrow would convert other numbers to infinity.
    """
    there = [value for value in values if value is not None]
    try:
        # Use "<", because Python does not check the range in the native format.
        struct.pack(f"<{len(there)}f", *there)
    except (struct.error, OverflowError):
        return False
    return True


def _none_is(values: Sequence[Any], refused: tuple[type, ...]) -> bool:
    return not any(issubclass(kind, refused) for kind in set(map(type, values)))


def _all_are(values: Sequence[Any], allowed: tuple[type, ...]) -> bool:
    return all(kind is _NOTHING or issubclass(kind, allowed) for kind in set(map(type, values)))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def has_required(kind: pa.DataType) -> bool:
    """Return whether any nested field is NOT NULL; map keys do not count, because Arrow rejects null keys."""
    return any(not below.nullable or has_required(below.type) for _, below in _fields(kind))


def null_below(array: pa.Array, path: str) -> str | None:
    """Return the path of a nested NOT NULL field that contains a null; None if there is no such field.

    Args:
        array: a new array, not a slice of another one.
        path: the path of the array itself.
    """
    # Nulls within a null value do not count.
    there = array.filter(array.is_valid()) if array.null_count else array
    for part, (name, below) in zip(_parts(there), _fields(array.type), strict=True):
        if part.null_count and not below.nullable:
            return f"{path}.{name}"
        found = null_below(part, f"{path}.{name}")
        if found is not None:
            return found
    return None


def _fields(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """Return the direct child fields, with the names that Spark uses in paths."""
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return [(field.name, field) for field in fields]
    if pa.types.is_map(kind):
        return [("key", pa.field("key", kind.key_type)), ("value", kind.item_field)]
    if pa.types.is_list(kind):
        return [("element", kind.value_field)]
    return []


def _parts(array: pa.Array) -> list[pa.Array]:
    """Return the arrays of the direct children of an array without nulls."""
    if pa.types.is_struct(array.type):
        return [array.field(index) for index in range(array.type.num_fields)]
    if pa.types.is_map(array.type):
        return [array.keys, array.items]
    return [array.flatten()] if pa.types.is_list(array.type) else []
