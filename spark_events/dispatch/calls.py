"""One call of a reporter's method, and what may come of code that is not ours."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from spark_events.errors import ThrottledError, is_seconds
from spark_events.event.text import said_of
from spark_events.reporters.reporter import Reporter

__all__ = [
    "Call",
    "Original",
    "asked_pause",
    "begin",
    "describe",
    "end",
    "linger_of",
    "made",
    "most_of",
]

#: More than any batch has.
_MOST = 1_000_000
#: Characters of an error. What quotes a whole answer is not to fill the log, nor the events of other reporters.
_MOST_TOLD = 2000

#: In seconds; whoever writes more has confused the unit.
_LONGEST_LINGER = 60.0
#: So long a destination may ask to be left alone, in seconds; one that asks for more is tried again all the same.
_LONGEST_PAUSE = 3600.0

Call: TypeAlias = Callable[[], Awaitable[None] | None]


class Original:
    """This process. A reporter may fork, and its child come back from the call: it would go on in this one's place."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def end_copies(self) -> None:
        """In such a child, ends it: nothing here is its own."""
        if os.getpid() != self._process:
            os._exit(0)


def made(make: Callable[[], Reporter]) -> Reporter:
    """What its constructor makes."""
    with _no_exit:
        return make()


def begin(call: Call) -> Awaitable[None] | None:
    """Calls; what is returned is to be awaited."""
    with _no_exit:
        result = call()
        return result if result is not None and inspect.isawaitable(result) else None


async def end(rest: Awaitable[None]) -> None:
    with _no_exit:
        await rest


class _NoExit:
    """A library that wants to end the process must not end the delivery for good."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, (Exception, asyncio.CancelledError, GeneratorExit)):
            return
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            raise RuntimeError(f"the reporter called for an exit: {describe(error)}") from error
        # Nor must one that raises what is no Exception: nobody up from here would catch it.
        raise RuntimeError(f"the reporter raised what is no Exception: {describe(error)}") from error


# One for all calls: it knows nothing of any of them.
_no_exit = _NoExit()


def most_of(reporter: Reporter) -> int | None:
    """How many events it takes in one call, where it says so."""
    try:
        most = reporter.max_batch_size
    except Exception:
        return None
    return min(most, _MOST) if type(most) is int and most > 0 else None


def linger_of(reporter: Reporter) -> float:
    """Return how many seconds an event may wait for others; 0 where the reporter has no usable number."""
    try:
        linger = reporter.linger
    except Exception:
        return 0.0
    return float(min(linger, _LONGEST_LINGER)) if is_seconds(linger) and linger > 0 else 0.0


def asked_pause(error: BaseException) -> float | None:
    """How long the destination asks to be left alone, in seconds; None where the error does not say so."""
    # A class of the user's own may have anything there, or nothing.
    asked = getattr(error, "retry_after", None) if isinstance(error, ThrottledError) else None
    # Compared as it is: a whole number may be more than any float.
    return float(min(max(asked, 0.0), _LONGEST_PAUSE)) if is_seconds(asked) else None


def _as_it_is(text: str) -> str:
    return text


def describe(error: BaseException, hide: Callable[[str], str] = _as_it_is) -> str:
    """What kind of error it is, and what it says, without what is to be hidden."""
    # Hidden before it is cut: of a secret, no half is told either.
    said = hide(said_of(error, 100 * _MOST_TOLD))[:_MOST_TOLD]
    if isinstance(error, asyncio.TimeoutError) and not said:
        return "no answer within its timeout"
    return f"{type(error).__name__}: {said}"
