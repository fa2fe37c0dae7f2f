"""Nulls below a column, where its type has none: Spark reads on regardless, and its task dies of them."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["has_required", "null_below"]


def has_required(kind: pa.DataType) -> bool:
    """Whether there is a field below that is not nullable, keys of maps apart: Arrow itself takes no null for these."""
    return any(not below.nullable or has_required(below.type) for _, below in _fields(kind))


def null_below(array: pa.Array, path: str) -> str | None:
    """The path of a field below that is not nullable and has a null; None when there is none.

    Args:
        array: fresh, not a part of another one.
        path: its own.
    """
    # Below what is null itself, nulls say nothing.
    there = array.filter(array.is_valid()) if array.null_count else array
    for part, (name, below) in zip(_parts(there), _fields(array.type), strict=True):
        if part.null_count and not below.nullable:
            return f"{path}.{name}"
        found = null_below(part, f"{path}.{name}")
        if found is not None:
            return found
    return None


def _fields(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """What is directly below, named as Spark names it in paths."""
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return [(field.name, field) for field in fields]
    if pa.types.is_map(kind):
        return [("key", pa.field("key", kind.key_type)), ("value", kind.item_field)]
    if pa.types.is_list(kind):
        return [("element", kind.value_field)]
    return []


def _parts(array: pa.Array) -> list[pa.Array]:
    """The same, of an array without nulls."""
    if pa.types.is_struct(array.type):
        return [array.field(place) for place in range(array.type.num_fields)]
    if pa.types.is_map(array.type):
        return [array.keys, array.items]
    return [array.flatten()] if pa.types.is_list(array.type) else []
