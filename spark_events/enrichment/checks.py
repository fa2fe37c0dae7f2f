"""Validation of option values; each message contains the option, the value and the allowed values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

from spark_events.errors import InvalidPlanError

__all__ = ["columns_of", "flag", "instance", "one_of", "ratio", "refuse", "seconds", "text", "whole"]


def refuse(name: str, given: object, allowed: str) -> NoReturn:
    """Raise the error for an invalid value."""
    raise InvalidPlanError(f"{name} is {given!r}; allowed: {allowed}")


def whole(name: str, given: object, least: int, most: int | None = None, *, or_else: str = "") -> None:
    """Check a whole number between two limits; ``or_else`` names other allowed values."""
    allowed = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"
    if not isinstance(given, int) or isinstance(given, bool) or given < least or (most is not None and given > most):
        refuse(name, given, allowed + (or_else and f", {or_else}"))


def seconds(name: str, given: object, *, none: bool = False, zero: bool = False, what: str = "") -> None:
    """Check a finite number, usually of seconds; ``none`` allows None, and ``zero`` allows 0."""
    if none and given is None:
        return
    allowed = (what or f"seconds, {'0 or more' if zero else 'above 0'}") + (", or None" if none else "")
    number = isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given)
    if not number or given < 0 or (given == 0 and not zero):  # type: ignore[operator]
        refuse(name, given, allowed)


def flag(name: str, given: object) -> None:
    """Check a boolean."""
    if not isinstance(given, bool):
        refuse(name, given, "True or False")


def text(name: str, given: object, allowed: str) -> None:
    """Check that a value is a non-empty string."""
    if not isinstance(given, str) or not given:
        refuse(name, given, allowed)


def ratio(name: str, given: object) -> None:
    """Check a number from 0 to 1."""
    if not isinstance(given, (int, float)) or isinstance(given, bool) or not 0 <= given <= 1:
        refuse(name, given, "a ratio from 0 to 1, or None")


def one_of(name: str, given: object, allowed: Sequence[str]) -> None:
    """Check that a string is one of the allowed values."""
    if given not in allowed:
        refuse(name, given, ", ".join(map(repr, allowed)))


def instance(name: str, given: object, kind: type, *, none: bool = True, such_as: str = "") -> None:
    """Check that an option is an instance of a class; ``such_as`` is the field that a plain value probably means."""
    if (given is not None or not none) and not isinstance(given, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        example = f", such as {kind.__name__}({such_as}={given!r})" if isinstance(given, (int, float, str)) else ""
        refuse(name, given, f"{article} {kind.__name__}" + (such_as and example) + (", or None" if none else ""))


def columns_of(name: str, given: object) -> tuple[str, ...] | None:
    """Return one or several column names as a tuple; None stays None."""
    if given is None:
        return None
    columns = (given,) if isinstance(given, str) else given
    if not isinstance(columns, Sequence) or not columns or not all(isinstance(one, str) and one for one in columns):
        refuse(name, given, "one or more column names")
    if len(set(columns)) != len(columns):
        refuse(name, given, "each column once")
    return tuple(columns)
