"""Types of values: how each is read from text, and what is allowed, in words."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = [
    "Kind",
    "boolean",
    "choice",
    "duration",
    "integer",
    "is_name",
    "names",
    "path",
    "placed",
    "positive_duration",
    "size",
    "text",
]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of value: how it is read from text and written as text, and what is allowed, in words.

    A value that is ``confidential`` is in no message, not even in one that says what is wrong with it: what its
    ``parse`` raises must not quote it.
    """

    allowed: str
    parse: Callable[[str], T]
    format: Callable[[T], str] = str
    confidential: bool = False


def _integer(at_least: int, at_most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None
        if value is None or not at_least <= value <= at_most:
            raise ValueError
        return value

    return parse


def integer(at_least: int, at_most: int = 2**31 - 1) -> Kind[int]:
    """A whole number within limits, both included."""
    return Kind(f"a whole number from {at_least} to {at_most}", _integer(at_least, at_most))


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError from None


#: ``true`` or ``false``, in any case.
boolean: Kind[bool] = Kind("true or false", _boolean, lambda value: str(value).lower())

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
#: A hundred years, for those who mean for ever: no thread can wait for three hundred.
_LONGEST = 36_500 * _SECONDS["d"]
_WITH_UNIT = "with a unit (ms, s, min, h, d), say 10s, 36500d at most"


def _duration(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,9})\s*(ms|s|m|min|h|d)", text)
    if match is None:
        raise ValueError
    seconds = int(match[1]) * _SECONDS[match[2]]
    if seconds > _LONGEST:
        raise ValueError
    return seconds


def _format_duration(seconds: float) -> str:
    for unit in ("d", "h", "min", "s"):
        if seconds >= _SECONDS[unit] and (seconds / _SECONDS[unit]).is_integer():
            return f"{int(seconds / _SECONDS[unit])}{unit}"
    return f"{round(seconds * 1000)}ms"


#: A length of time, read into seconds: ``500ms``, ``10 s``, ``5min``.
duration: Kind[float] = Kind(f"a whole number {_WITH_UNIT}", _duration, _format_duration)


def _positive_duration(text: str) -> float:
    seconds = _duration(text)
    if seconds <= 0:
        raise ValueError
    return seconds


#: A length of time that is not nothing.
positive_duration: Kind[float] = Kind(
    f"a whole number above 0 {_WITH_UNIT}",
    _positive_duration,
    _format_duration,
)


def _text(value: str) -> str:
    if not value:
        raise ValueError("nothing")
    return value


def text(allowed: str = "a text that is not empty") -> Kind[str]:
    """Any text but the empty one; ``allowed`` says what it stands for."""
    return Kind(allowed, _text)


def path(allowed: str) -> Kind[str]:
    """The path of a file or folder; one that is relative, to where this process is when it is read.

    Somebody else's code may change the directory of the process later.
    """
    return Kind(allowed, lambda value: placed(_text(value)))


def placed(path: str) -> str:
    """Where a path leads from here."""
    try:
        # Nothing is made simpler: behind a link, ".." is another folder.
        return os.path.join(os.getcwd(), path)
    except OSError:
        return path  # the directory was removed


def choice(*allowed: str) -> Kind[str]:
    """One of a few words."""

    def parse(value: str) -> str:
        if value not in allowed:
            raise ValueError
        return value

    return Kind(f"one of {', '.join(allowed)}", parse)


def is_name(value: str) -> bool:
    """Whether a reporter may be called so: letters, digits, ``-`` and ``_``."""
    return re.fullmatch(r"[A-Za-z0-9_-]+", value) is not None


def _names(value: str) -> tuple[str, ...]:
    found = [name.strip() for name in value.split(",")]
    for name in found:
        if not is_name(name):
            raise ValueError(f"{name!r} is not a name")
    if len(set(found)) < len(found):
        raise ValueError("a name stands there twice")
    return tuple(found)


#: Names separated by commas.
names: Kind[tuple[str, ...]] = Kind("names of letters, digits, '-' and '_', separated by commas", _names, ", ".join)


_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _size(value: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})\s*([kmg])b?", value.lower())
    if match is None or int(match[1]) == 0:
        raise ValueError
    return int(match[1]) * _UNITS[match[2]]


def _format_size(value: int) -> str:
    unit = next((unit for unit in ("g", "m") if value % _UNITS[unit] == 0), "k")
    return f"{value // _UNITS[unit]}{unit}"


#: A number of bytes, in Spark's own form: ``64k``, ``256m``, ``1g``.
size: Kind[int] = Kind("a whole number above 0 with a unit (k, m, g), say 256m", _size, _format_size)
