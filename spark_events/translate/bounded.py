"""Dictionary of limited size, for state whose removal depends on records that may be lost."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

__all__ = ["Bounded"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Bounded(OrderedDict[_Key, _Value]):
    """Dictionary that forgets its oldest entry when it is full.

    Args:
        most: maximum number of entries.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _Key, value: _Value) -> None:
        super().__setitem__(key, value)
        if len(self) > self._most:
            self.popitem(last=False)
