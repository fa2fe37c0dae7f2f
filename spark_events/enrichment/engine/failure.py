"""Why a row has no answer: how an attempt may end, and the failure as plain data for the driver."""

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


#: error: the function raised; timeout: no answer in time; throttled: the destination refuses, with 429 or Retry-After;
#: result: ``on_result`` never accepted what it returned; circuit-open: the destination is down; resource: it cannot be
#: opened; skipped: an earlier row of the same key failed.
Kind = Literal["error", "timeout", "throttled", "result", "circuit-open", "resource", "skipped"]

_LONGEST_MESSAGE = 500
# Tokens travel in query strings and in front of hosts; a failure ends up in logs and tables. A scheme without an end
# would be looked for anew behind each of its letters.
_SECRETS = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]{0,31}://)(?:[^\s/@'\"]*@)?(?P<place>[^\s?#'\"]*)(?:[?#][^\s'\"]*)?", re.I
)


@dataclasses.dataclass(frozen=True, slots=True)
class RowFailure:
    """A row's last failure.

    Attributes:
        kind: what became of it.
        type: the exception's type, with its module where that is not ``builtins``.
        message: what it said, cut, and without the query strings of addresses.
        attempts: how many were made; 0 when the row was never called.
        elapsed: seconds from the first attempt to the end.
        retryable: whether the failure is one that may pass.
        where: file, line and function of the user's code that raised; empty when unknown.
    """

    kind: Kind
    type: str
    message: str
    attempts: int = 0
    elapsed: float = 0.0
    retryable: bool = False
    where: str = ""

    def __post_init__(self) -> None:
        """Exceptions, and names of files, may hold lone surrogates; neither Arrow nor JSON can carry them."""
        for name in ("type", "message", "where"):
            object.__setattr__(self, name, getattr(self, name).encode("utf-8", "replace").decode())


def type_of(error: BaseException) -> str:
    """The name of an exception's type as a reader looks for it."""
    kind = type(error)
    return (
        kind.__qualname__ if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}.{kind.__qualname__}"
    )


def message_of(error: BaseException) -> str:
    """What an exception says, on one line, cut, and with addresses bare of user, query and fragment."""
    try:
        said = str(error)
    except BaseException as broken:
        # SystemExit would end whoever asks.
        said = f"(its __str__ raised {type(broken).__name__})"
    line = _SECRETS.sub(r"\g<scheme>\g<place>", " ".join(said[: 4 * _LONGEST_MESSAGE].split()))
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}… (cut)"


#: In place of an answer: somebody else has settled the call meanwhile.
ABANDONED: Final = object()

# One class with two names since Python 3.11; before, a user may expect either.
NoAnswerError: type[Exception] = type(
    "TimeoutError", tuple(dict.fromkeys((asyncio.TimeoutError, TimeoutError))), {"__module__": "builtins"}
)

_NAMES: dict[Kind, str] = {"circuit-open": "CircuitOpenError", "throttled": "ThrottledError", "timeout": "TimeoutError"}


class AttemptError(Exception):
    """An attempt failed, and this is what it means."""

    def __init__(self, cause: BaseException, verdict: Verdict) -> None:
        self.cause = cause
        self.verdict = verdict


class EndError(Exception):
    """There will be no other attempt."""

    def __init__(self, kind: Kind, why: str) -> None:
        super().__init__(why)
        self.kind: Kind = kind


class AbandonedError(Exception):
    """Nobody waits for this call any more."""


def failure_of(error: BaseException, attempts: int, elapsed: float) -> RowFailure:
    """What becomes of the row.

    Args:
        error: an :class:`AttemptError`, the last one, or an :class:`EndError`.
        attempts: how many were made.
        elapsed: seconds since the first began.
    """
    if isinstance(error, AttemptError):
        cause, verdict = error.cause, error.verdict
        return RowFailure(
            kind=_kind_of(cause, verdict),
            type=type_of(cause),
            message=message_of(cause),
            attempts=attempts,
            elapsed=elapsed,
            retryable=verdict.retryable,
            where=where_raised(cause.__traceback__),
        )
    assert isinstance(error, EndError)
    return RowFailure(error.kind, _NAMES[error.kind], str(error), attempts=attempts, elapsed=elapsed, retryable=True)


def _kind_of(cause: BaseException, verdict: Verdict) -> Kind:
    if verdict.timeout:
        return "timeout"
    if verdict.throttled:
        return "throttled"
    return "result" if isinstance(cause, NotAcceptedError) else "error"
