"""Failures of attempts and rows: exceptions within the engine, plain data for the driver."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from typing import Final, Literal

from spark_events.enrichment.engine.frames import where_raised
from spark_events.enrichment.engine.verdicts import NotAcceptedError, Verdict

__all__ = [
    "ABANDONED", "AbandonedError", "AttemptError", "EndError", "Kind", "NoAnswerError", "RowFailure",
    "failure_of", "message_of", "type_of",
]  # fmt: skip


#: error: the function raised an exception; timeout: no answer in time; throttled: the destination rejected the call
#: because it receives too many calls (429, 503, 529, Retry-After); result: ``on_result`` accepted no result;
#: circuit-open: the destination is down;
#: resource: the resource cannot be opened; skipped: an earlier row of the same key failed.
Kind = Literal["error", "timeout", "throttled", "result", "circuit-open", "resource", "skipped"]

_LONGEST_MESSAGE = 500
# URLs may contain tokens in the query and credentials before the host, and failures are written to logs and tables.
# Database clients accept passwords that contain # and ?. A port and a query such as ":80?a=b@c" are not a password. The
# pattern limits the length of the scheme; otherwise the search would take quadratic time.
_SECRETS = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]{0,31}://)(?:(?:[^\s/?#:'\"]*:(?!\d+[?#])[^\s/'\"]*|[^\s/?#'\"]*)@)?"
    r"(?P<place>[^\s?#'\"]*)(?:[?#][^\s'\"]*)?",
    re.I,
)


@dataclasses.dataclass(frozen=True, slots=True)
class RowFailure:
    """The last failure of a row.

    Attributes:
        kind: the category of the failure.
        type: the exception's type, with its module unless that is ``builtins``.
        message: the exception's message, truncated, with credentials and queries removed from URLs.
        attempts: the number of attempts; 0 if the row was never called.
        elapsed: seconds from the start of the first attempt to the failure.
        retryable: whether the failure may be temporary.
        where: file, line and function of the user's code that raised the exception; "" if unknown.
    """

    kind: Kind
    type: str
    message: str
    attempts: int = 0
    elapsed: float = dataclasses.field(default=0.0, compare=False)
    retryable: bool = False
    where: str = ""

    def __post_init__(self) -> None:
        """Replace lone surrogates, which Arrow and JSON cannot encode but exceptions and file names may contain."""
        for name in ("type", "message", "where"):
            object.__setattr__(self, name, getattr(self, name).encode("utf-8", "replace").decode())


def type_of(error: BaseException) -> str:
    """Return the name of an exception's type, with its module unless that is ``builtins`` or ``__main__``."""
    kind = type(error)
    return (
        kind.__qualname__ if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}.{kind.__qualname__}"
    )


def message_of(error: BaseException) -> str:
    """Return an exception's message on one line, truncated, with user, query and fragment removed from URLs."""
    try:
        text = str(error)
    except BaseException as broken:
        # Catch SystemExit, which would end the caller's task.
        text = f"(its __str__ raised {type(broken).__name__})"
    line = _SECRETS.sub(r"\g<scheme>\g<place>", " ".join(text[: 4 * _LONGEST_MESSAGE].split()))
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}… (cut)"


#: Placeholder for the answer of an abandoned call; its row has already been settled.
ABANDONED: Final = object()

# A subclass of both timeout classes, because user code may expect either; since Python 3.11, both are the same class.
NoAnswerError: type[Exception] = type(
    "TimeoutError", tuple(dict.fromkeys((asyncio.TimeoutError, TimeoutError))), {"__module__": "builtins"}
)

_NAMES: dict[Kind, str] = {"circuit-open": "CircuitOpenError", "throttled": "ThrottledError", "timeout": "TimeoutError"}


class AttemptError(Exception):
    """A failed attempt with its verdict.

    Args:
        cause: the decisive exception.
        verdict: the verdict on this exception.
        is_partial: whether the destination answered other rows of the call in the same attempt.
    """

    def __init__(self, cause: BaseException, verdict: Verdict, *, is_partial: bool = False) -> None:
        self.cause = cause
        self.verdict = verdict
        self.is_partial = is_partial


class EndError(Exception):
    """Error that fails the call without another attempt."""

    def __init__(self, kind: Kind, why: str) -> None:
        super().__init__(why)
        self.kind: Kind = kind


class AbandonedError(Exception):
    """Error of a call for which the engine no longer waits."""


def failure_of(error: BaseException, attempts: int, elapsed: float) -> RowFailure:
    """Return the failure of a row.

    Args:
        error: the last :class:`AttemptError`, or an :class:`EndError`.
        attempts: the number of attempts.
        elapsed: seconds since the start of the first attempt.
    """
    if isinstance(error, AttemptError):
        cause, verdict = error.cause, error.verdict
        # Python raises a StopIteration of a coroutine again as a RuntimeError without a line of the coroutine.
        inner = None if cause.__cause__ is None else cause.__cause__.__traceback__
        return RowFailure(
            kind=_kind_of(cause, verdict),
            type=type_of(cause),
            message=message_of(cause),
            attempts=attempts,
            elapsed=elapsed,
            retryable=verdict.retryable,
            where=where_raised(cause.__traceback__) or where_raised(inner),
        )
    assert isinstance(error, EndError)
    return RowFailure(error.kind, _NAMES[error.kind], str(error), attempts=attempts, elapsed=elapsed, retryable=True)


def _kind_of(cause: BaseException, verdict: Verdict) -> Kind:
    if verdict.timeout:
        return "timeout"
    if verdict.throttled:
        return "throttled"
    return "result" if isinstance(cause, NotAcceptedError) else "error"
