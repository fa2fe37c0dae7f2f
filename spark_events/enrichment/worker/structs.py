"""Conversion of struct values to dictionaries: one Arrow array accepts either tuples or dictionaries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

__all__ = ["by_name"]

_Turn: TypeAlias = Callable[[Any], Any]


@functools.lru_cache(maxsize=256)
def by_name(kind: pa.DataType) -> _Turn | None:
    """Return a function that converts tuples for structs to dictionaries; None if the type has no structs.

    The function may leave invalid values unchanged or raise, because Arrow has rejected them already.
    """
    if pa.types.is_struct(kind):
        return functools.partial(_struct, {field.name: by_name(field.type) for field in kind})
    if pa.types.is_map(kind):
        key, item = by_name(kind.key_type), by_name(kind.item_type)
        return None if key is None and item is None else functools.partial(_pairs, key, item)
    element = by_name(kind.value_type) if pa.types.is_list(kind) else None
    return None if element is None else functools.partial(_elements, element)


def _struct(fields: Mapping[str, _Turn | None], value: Any) -> Any:
    named = dict(zip(fields, value, strict=True)) if isinstance(value, tuple) else value
    if not isinstance(named, dict):
        return named
    return {name: _turned(fields.get(name), part) for name, part in named.items()}


def _pairs(key: _Turn | None, item: _Turn | None, value: Any) -> Any:
    # A list of pairs, because a dictionary cannot be a key of another one.
    pairs = value.items() if isinstance(value, Mapping) else value
    return [(_turned(key, name), _turned(item, part)) for name, part in pairs]


def _elements(element: _Turn, value: Any) -> Any:
    # Iterators stay unchanged: they can be consumed only once.
    if not isinstance(value, Collection) or isinstance(value, (str, bytes, Mapping)):
        return value
    return [_turned(element, one) for one in value]


def _turned(turn: _Turn | None, value: Any) -> Any:
    return value if turn is None or value is None else turn(value)
