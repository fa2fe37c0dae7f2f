"""Calls of a reporter's methods, guarded against misbehaving reporter code."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from spark_events.errors import ThrottledError, is_seconds
from spark_events.event.text import text_of
from spark_events.reporters.reporter import Reporter

#: Upper limit for a reporter's own batch size; no batch is larger.
_MOST = 1_000_000
#: Maximum length of an error text in characters; a quoted response must not fill the log or other reporters' events.
_MOST_TEXT = 2000

#: Upper limit for a reporter's own linger, in seconds; a larger value is probably in the wrong unit.
_LONGEST_LINGER = 60.0
#: The longest pause that a destination may request, in seconds; a longer request is shortened to it.
_LONGEST_PAUSE = 3600.0

Call: TypeAlias = Callable[[], Awaitable[None] | None]


def made(make: Callable[[], Reporter]) -> Reporter:
    """Call the constructor and return the reporter."""
    with _no_exit:
        return make()


def begin(call: Call) -> Awaitable[None] | None:
    """Call the method; return its awaitable, or None if it is already complete."""
    with _no_exit:
        result = call()
        return result if result is not None and inspect.isawaitable(result) else None


async def end(rest: Awaitable[None]) -> None:
    with _no_exit:
        await rest


class _NoExit:
    """Turn attempts to exit the process into errors, so that the delivery continues."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, (Exception, asyncio.CancelledError, GeneratorExit)):
            return
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            raise RuntimeError(f"the reporter tried to end its process: {describe(error)}") from error
        # Callers catch only Exception, so convert any other error too.
        raise RuntimeError(
            f"the reporter raised a BaseException that is not an Exception: {describe(error)}"
        ) from error


# All calls share one instance because it has no state.
_no_exit = _NoExit()


def most_of(reporter: Reporter) -> int | None:
    """Return the reporter's own maximum batch size; None without a valid one."""
    try:
        most = reporter.max_batch_size
    except Exception:
        return None
    return min(most, _MOST) if type(most) is int and most > 0 else None


def linger_of(reporter: Reporter) -> float:
    """Return the reporter's own linger in seconds; 0 without a valid one."""
    try:
        linger = reporter.linger
    except Exception:
        return 0.0
    return float(min(linger, _LONGEST_LINGER)) if is_seconds(linger) and linger > 0 else 0.0


def asked_pause(error: BaseException) -> float | None:
    """Return the pause in seconds that the error requests; None if it requests none."""
    # A user-defined subclass may lack the attribute or hold any value in it.
    asked = getattr(error, "retry_after", None) if isinstance(error, ThrottledError) else None
    # Limit the value before the conversion: a large integer would overflow a float.
    return float(min(max(asked, 0.0), _LONGEST_PAUSE)) if is_seconds(asked) else None


def _as_it_is(text: str) -> str:
    return text


def describe(error: BaseException, hide: Callable[[str], str] = _as_it_is) -> str:
    """Return the type and message of an error, with secrets hidden."""
    # Hide secrets before shortening the text, so that no part of a secret remains.
    text = hide(text_of(error, 100 * _MOST_TEXT))[:_MOST_TEXT]
    if isinstance(error, asyncio.TimeoutError) and not text:
        return "no answer within its timeout"
    return f"{type(error).__name__}: {text}"
