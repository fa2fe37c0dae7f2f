"""Types of values: each parses the text of a setting, checks an argument, and describes the allowed values."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """Type of a value: parser, formatter, and a description of the allowed values.

    Messages quote a value only if ``harmless`` matches all of it (see :mod:`spark_events.config.quoting`). A
    ``confidential`` value is also removed from every text of a library, however short it is.

    Attributes:
        holds: returns whether a Python object is an allowed value; kinds that only settings use accept none.
        argument: description of the allowed Python objects if it differs from ``allowed``.
    """

    allowed: str
    parse: Callable[[str], T]
    format: Callable[[T], str] = str
    confidential: bool = False
    harmless: re.Pattern[str] | None = None
    holds: Callable[[Any], bool] = lambda _: False
    argument: str = ""

    def or_else(self, other: str, is_other: Callable[[Any], bool]) -> Kind[T]:
        """Return the kind of arguments that are of this kind, or are other values."""
        return dataclasses.replace(
            self,
            holds=lambda value: is_other(value) or self.holds(value),
            argument=f"{self.argument or self.allowed}, {other}",
        )

    def or_none(self) -> Kind[T]:
        """Return the kind of arguments that are of this kind, or None."""
        return self.or_else("or None", lambda value: value is None)


class SafeReasonError(ValueError):
    """Reason why a value is invalid, which quotes no part of the value, or only words that are known."""


#: Numbers, with a unit or not, and short words without digits: values of numbers, durations, sizes and choices. A
#: secret that was pasted into such a key does not match.
WORDS = re.compile(r"[+-]?[0-9.,_]{1,12}\s*[A-Za-z]{0,7}|[A-Za-z][A-Za-z_/-]{0,19}|")
#: Paths: absolute, explicitly relative, or with the extension of a file.
PATHS = re.compile(r"(?:~|\.{0,2})/.*|[\w./-]+\.[A-Za-z]{1,7}")
#: Short words without digits, and classes as ``package.module:Class``, several separated by commas.
CLASSES = re.compile(r"(?:[A-Za-z][A-Za-z_-]{0,19}|[A-Za-z_][\w.]*:[A-Za-z_]\w*|[ ,])*")
#: Names: letters, digits, ``-`` and ``_``.
NAMES = re.compile(r"[\w, -]+")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def integer(at_least: int, at_most: int | None = 2**31 - 1) -> Kind[int]:
    """Integer within inclusive limits; None: no upper limit."""
    most = math.inf if at_most is None else at_most

    def holds(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and at_least <= value <= most

    def parse(text: str) -> int:
        value = int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None
        if value is None or not holds(value):
            raise ValueError
        return value

    limits = f"of at least {at_least}" if at_most is None else f"from {at_least} to {at_most}"
    return Kind(f"a whole number {limits}", parse, harmless=WORDS, holds=holds)


def number(
    allowed: str, *, above: float = -math.inf, at_least: float = -math.inf, at_most: float = math.inf
) -> Kind[float]:
    """Finite number within limits; ``allowed`` describes it."""

    def holds(value: object) -> bool:
        return _is_number(value) and above < value and at_least <= value <= at_most  # type: ignore[operator]

    def parse(text: str) -> float:
        value = float(text)
        if not holds(value):
            raise ValueError
        return value

    return Kind(allowed, parse, harmless=WORDS, holds=holds)


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError from None


#: ``true`` or ``false``, in upper or lower case.
boolean: Kind[bool] = Kind(
    "true or false",
    _boolean,
    lambda value: str(value).lower(),
    harmless=WORDS,
    holds=lambda value: isinstance(value, bool),
    argument="True or False",
)

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
#: Longest duration: a hundred years, in seconds. A wait of about three hundred years would raise an error.
_LONGEST = 36_500 * _SECONDS["d"]
_WITH_UNIT = "with a unit (ms, s, min, h, d), say 10s, 36500d at most"


def _duration(text: str, is_positive: bool = False) -> float:
    match = re.fullmatch(r"([0-9]{1,9})\s*(ms|s|m|min|h|d)", text)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else -1.0
    if not 0 <= seconds <= _LONGEST or (is_positive and not seconds):
        raise ValueError
    return seconds


def _format_duration(seconds: float) -> str:
    for unit in ("d", "h", "min", "s"):
        if seconds >= _SECONDS[unit] and (seconds / _SECONDS[unit]).is_integer():
            return f"{int(seconds / _SECONDS[unit])}{unit}"
    return f"{round(seconds * 1000)}ms"


#: Duration, parsed into seconds: ``500ms``, ``10 s``, ``5min``.
duration: Kind[float] = Kind(f"a whole number {_WITH_UNIT}", _duration, _format_duration, harmless=WORDS)


#: Duration greater than zero.
positive_duration: Kind[float] = Kind(
    f"a whole number above 0 {_WITH_UNIT}", partial(_duration, is_positive=True), _format_duration, harmless=WORDS
)


def _text(value: str) -> str:
    if not value:
        raise ValueError("nothing")
    return value


def text(allowed: str = "a non-empty string", harmless: re.Pattern[str] | None = None) -> Kind[str]:
    """Non-empty string; ``allowed`` describes it, and messages quote only values that ``harmless`` matches."""
    return Kind(allowed, _text, harmless=harmless, holds=lambda value: isinstance(value, str) and bool(value))


def path(allowed: str) -> Kind[str]:
    """Path of a file or directory.

    A relative path is resolved when the setting is read, because user code may change the working directory later.
    """
    return Kind(allowed, lambda value: placed(_text(value)), harmless=PATHS)


def placed(path: str) -> str:
    """Return the absolute form of a path."""
    try:
        # Do not normalise the path: behind a symbolic link, ".." may be a different directory.
        return os.path.join(os.getcwd(), path)
    except OSError:
        return path  # the working directory has been removed


def choice(*allowed: str) -> Kind[str]:
    """One of several words."""

    def parse(value: str) -> str:
        if value not in allowed:
            raise ValueError
        return value

    return Kind(
        f"one of {', '.join(allowed)}",
        parse,
        harmless=WORDS,
        holds=lambda value: isinstance(value, str) and value in allowed,
        argument=", ".join(map(repr, allowed)),
    )


def is_name(value: str) -> bool:
    """Return whether a reporter may have this name: letters, digits, ``-`` and ``_``."""
    return re.fullmatch(r"[A-Za-z0-9_-]+", value) is not None


def _names(value: str) -> tuple[str, ...]:
    found = [name.strip() for name in value.split(",")]
    for name in found:
        if not is_name(name):
            raise ValueError(f"{name!r} is not a valid name")
    if len(set(found)) < len(found):
        raise ValueError("a name occurs twice")
    return tuple(found)


#: Names separated by commas.
names: Kind[tuple[str, ...]] = Kind(
    "names of letters, digits, '-' and '_', separated by commas", _names, ", ".join, harmless=NAMES
)


_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _size(value: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})\s*([kmg])b?", value.lower())
    if match is None or int(match[1]) == 0:
        raise ValueError
    return int(match[1]) * _UNITS[match[2]]


def _format_size(value: int) -> str:
    unit = next((unit for unit in ("g", "m") if value % _UNITS[unit] == 0), "k")
    return f"{value // _UNITS[unit]}{unit}"


#: Size in bytes, in Spark's form: ``64k``, ``256m``, ``1g``.
size: Kind[int] = Kind("a whole number above 0 with a unit (k, m, g), say 256m", _size, _format_size, harmless=WORDS)
