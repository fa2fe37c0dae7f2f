"""Calls to a reporter's methods, with protection against faulty reporter code."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

from spark_events.errors import ThrottledError, is_seconds
from spark_events.event import Severity
from spark_events.event.text import text_of
from spark_events.reporters.reporter import LONGEST_LINGER, Reporter, Rest

#: Upper limit for the batch size that a reporter's class may set.
_MOST = 1_000_000
#: Maximum length of an error message, in characters. A quoted response must not fill the log or an event.
_MOST_TEXT = 2000

#: Upper limit for the pause that a destination requests, in seconds.
_LONGEST_PAUSE = 3600.0

_LOG = logging.getLogger(__name__)

Call: TypeAlias = Callable[[], Awaitable[None] | None]


def made(make: Callable[[], Reporter]) -> Reporter:
    """Construct and return the reporter."""
    with _no_exit():
        return make()


def begin(call: Call) -> Awaitable[None] | None:
    """Call the method; return its awaitable, or None if the method is synchronous."""
    with _no_exit():
        result = call()
        return result if result is not None and inspect.isawaitable(result) else None


async def end(rest: Awaitable[None]) -> None:
    with _no_exit():
        await rest


@contextlib.contextmanager
def _no_exit() -> Iterator[None]:
    """Convert attempts to exit the process into errors, so that the delivery continues."""
    try:
        yield
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"the reporter tried to end its process: {describe(error)}") from error
    except BaseException as error:
        # Callers catch only Exception, so convert any other BaseException too.
        raise RuntimeError(
            f"the reporter raised a BaseException that is not an Exception: {describe(error)}"
        ) from error


def most_of(reporter: Reporter) -> int | None:
    """Return the maximum batch size that the reporter sets; None if it is unset, or invalid, which is logged once."""
    most = _attribute(reporter, "max_batch_size")
    if type(most) is int and most > 0:
        return min(most, _MOST)
    if most is not None:
        _ignore(type(reporter), "max_batch_size", f"is {_shown(most)}; allowed: a whole number above 0")
    return None


def linger_of(reporter: Reporter) -> float:
    """Return the linger time that the reporter sets, in seconds; 0 if it is unset, or invalid, which is logged once."""
    linger = _attribute(reporter, "linger")
    if is_seconds(linger) and linger >= 0:
        # A larger value is probably meant in milliseconds.
        return float(min(linger, LONGEST_LINGER))
    if linger is not None:
        _ignore(type(reporter), "linger", f"is {_shown(linger)}; allowed: seconds, 0 or more")
    return 0.0


def lingers_through_of(reporter: Reporter) -> Severity:
    """Return the highest severity of events that linger; INFO if it is invalid, which is logged once."""
    through = _attribute(reporter, "lingers_through")
    if isinstance(through, Severity):
        return through
    if through is not None:
        _ignore(type(reporter), "lingers_through", f"is {_shown(through)}; allowed: a severity")
    return Severity.INFO


def rest_of(reporter: Reporter) -> Rest:
    """Return the rest that the reporter asks for; no rest if it is invalid, which is logged once."""
    rest = _attribute(reporter, "rest")
    if isinstance(rest, Rest) and is_seconds(rest.seconds) and rest.seconds >= 0 and isinstance(rest.through, Severity):
        return Rest(float(min(rest.seconds, LONGEST_LINGER)), rest.through)
    if rest is not None:
        _ignore(type(reporter), "rest", f"is {_shown(rest)}; allowed: a Rest with seconds, 0 or more, and a severity")
    return Rest()


def _attribute(reporter: Reporter, name: str) -> Any:
    try:
        return getattr(reporter, name)
    except Exception as error:
        # The text of the error may contain secrets.
        _ignore(type(reporter), name, f"raises {type(error).__name__} when it is read")
        return None


def _shown(value: Any) -> str:
    return repr(value) if type(value) in (int, float, bool) else f"of type {type(value).__name__}"


@functools.lru_cache(maxsize=100)
def _ignore(kind: type[Reporter], attribute: str, why: str) -> None:
    """Log a problem once, because the attributes are read for every batch."""
    _LOG.warning("reporter class %s: %s is ignored: it %s; correct the class", kind.__name__, attribute, why)


def asked_pause(error: BaseException) -> float | None:
    """Return the pause in seconds that the error requests; None if the error requests no pause."""
    # A user-defined error class may lack the attribute, or set it to any value.
    asked = getattr(error, "retry_after", None) if isinstance(error, ThrottledError) else None
    # Apply the limit before the conversion, because converting a very large integer to float would overflow.
    return float(min(max(asked, 0.0), _LONGEST_PAUSE)) if is_seconds(asked) else None


def _unchanged(text: str) -> str:
    return text


def describe(error: BaseException, hide: Callable[[str], str] = _unchanged) -> str:
    """Return an error's type and message, with secrets hidden."""
    # Hide secrets before shortening the message; shortening first could leave a part of a secret visible.
    text = hide(text_of(error, 100 * _MOST_TEXT))[:_MOST_TEXT]
    if isinstance(error, asyncio.TimeoutError) and not text:
        return "no answer within the timeout"
    return f"{type(error).__name__}: {text}"
