"""Dictionaries of limited size, for state whose removal depends on records that may be lost."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

__all__ = ["put"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def put(known: OrderedDict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    """Store a value; if the dictionary then has more than ``most`` entries, remove the oldest entry."""
    known[key] = value
    if len(known) > most:
        known.popitem(last=False)
