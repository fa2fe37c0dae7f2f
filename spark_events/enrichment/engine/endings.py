"""How an attempt, and how a call, may end without an answer."""

from __future__ import annotations

import asyncio
from typing import Final

from spark_events.enrichment.engine.failure import Kind, RowFailure, message_of, type_of
from spark_events.enrichment.engine.frames import where_raised
from spark_events.enrichment.engine.verdicts import NotAcceptedError, Verdict

__all__ = ["ABANDONED", "AbandonedError", "AttemptError", "EndError", "NoAnswerError", "failure_of"]

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
