"""Validation of option values; each message contains the option, the value and the allowed values."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

from spark_events.config import Kind, number
from spark_events.errors import InvalidPlanError

__all__ = [
    "CONNECT_URL", "SECONDS", "SECONDS_OR_ZERO", "check", "columns_of", "instance", "message_first", "refuse",
]  # fmt: skip

E = TypeVar("E", bound=Exception)

SECONDS = number("seconds, above 0", above=0)
SECONDS_OR_ZERO = number("seconds, 0 or more", at_least=0)
#: Environment variable that the Connect server sets in the process that runs foreachBatch.
CONNECT_URL = "SPARK_CONNECT_LOCAL_URL"


def refuse(name: str, given: object, allowed: str) -> NoReturn:
    """Raise the error for an invalid value."""
    raise message_first(InvalidPlanError(f"{name} is {given!r}; allowed: {allowed}"))


def message_first(error: E) -> E:
    """Let the traceback of an error begin with its message, if ``foreachBatch`` runs this code.

    Python prints the cause before the traceback, so the exception of the query begins with the message.
    """
    if _is_streamed():
        error.__cause__ = type(error)(str(error))
    return error


def _is_streamed() -> bool:
    """Return whether ``foreachBatch`` runs this code, as far as Spark reports it in this thread."""
    if CONNECT_URL in os.environ:
        return True
    with contextlib.suppress(Exception):  # Spark is not installed, not running, or does not answer
        context = sys.modules["pyspark"].SparkContext._active_spark_context
        return context.getLocalProperty("streaming.sql.batchId") is not None
    return False


def check(name: str, given: object, kind: Kind[Any]) -> None:
    """Check that a value is of a kind."""
    if not kind.holds(given):
        refuse(name, given, kind.argument or kind.allowed)


def instance(name: str, given: object, kind: type, *, none: bool = True, such_as: str = "") -> None:
    """Check that an option is an instance of a class; ``such_as`` is the field that a plain value probably means."""
    if (given is not None or not none) and not isinstance(given, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        is_plain = isinstance(given, (int, float, str)) and not isinstance(given, bool)
        example = f", such as {kind.__name__}({such_as}={given!r})" if such_as and is_plain else ""
        refuse(name, given, f"{article} {kind.__name__}{example}" + (", or None" if none else ""))


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
