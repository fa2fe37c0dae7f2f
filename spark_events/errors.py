"""Everything this project raises, as one shallow tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

__all__ = [
    "ConfigError",
    "EnrichmentError",
    "InvalidChoiceError",
    "InvalidEventError",
    "InvalidPlanError",
    "MissingExtraError",
    "PermanentError",
    "ProtocolError",
    "ReporterProcessError",
    "SessionError",
    "SparkEventsError",
    "StreamStoppedError",
    "ThrottledError",
    "TransientError",
    "WaitTimeoutError",
    "is_seconds",
]


def is_seconds(value: object) -> TypeGuard[float]:
    """Whether it is a time at all; the text of a header is none."""
    # NaN is the one number that is not itself; math.isnan takes no whole number beyond the floats.
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


class SparkEventsError(Exception):
    """What all of them have in common."""


class ConfigError(SparkEventsError):
    """Settings that cannot be used: all that is wrong with them, one sentence a problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[str, ...]]]:
        return type(self), (self.problems,)


class InvalidEventError(SparkEventsError, ValueError):
    """An event that cannot be built: the message names the field or the attribute."""


class InvalidChoiceError(SparkEventsError, ValueError):
    """Which events, or how long: the message names the argument, what was given and what is allowed."""


class InvalidPlanError(SparkEventsError, ValueError):
    """An enrichment that cannot be made: the message names the argument, what was given and what is allowed."""


class EnrichmentError(SparkEventsError):
    """Rows of an enrichment have no answer, so the batch must not be committed.

    Attributes:
        failed: how many rows; 0 when nobody has counted them.
        rows: of how many.
        batch_id: the micro-batch; None outside of streaming.
        query: its query's id, or the name the caller gave.
        samples: a few of them, each with ``partition``, ``row`` (its place there, from 0) and ``failure``.
    """

    def __init__(
        self,
        message: str,
        *,
        failed: int = 0,
        rows: int = 0,
        batch_id: int | None = None,
        query: str = "",
        samples: Sequence[Any] = (),
    ) -> None:
        super().__init__(message)
        self.failed = failed
        self.rows = rows
        self.batch_id = batch_id
        self.query = query
        self.samples = tuple(samples)


class MissingExtraError(SparkEventsError, ImportError):
    """A reporter's library is not installed; the message says which extra brings it."""


class ProtocolError(SparkEventsError):
    """The shim and the sidecar do not understand each other."""


class ReporterProcessError(SparkEventsError):
    """A reporter with ``isolation=process`` has raised something, or its process has died; the message says which."""


class SessionError(SparkEventsError, RuntimeError):
    """This Spark session cannot do what was asked; the message says why, and what would help."""


class StreamStoppedError(SessionError):
    """The stream has ended, so the event that was asked for cannot come any more."""


class WaitTimeoutError(SparkEventsError, TimeoutError):
    """The event that was waited for has not come in time; the message says what did."""


class PermanentError(SparkEventsError):
    """A reporter's verdict: these events will never be taken, do not try again.

    Args:
        message: why not.
        rejected: how many of them, where the others were delivered; all of them, without it.

    Raises:
        TypeError: that is no number of events.
    """

    rejected: int | None = None

    def __init__(self, message: str = "", rejected: int | None = None) -> None:
        if rejected is not None and (type(rejected) is not int or rejected < 0):
            raise TypeError(f"PermanentError: rejected is {rejected!r}; allowed: a whole number from 0, or None")
        super().__init__(message)
        self.rejected = rejected


class ThrottledError(SparkEventsError):
    """A reporter's verdict: the destination asks to be left alone for a while.

    Args:
        message: what the destination said.
        retry_after: seconds to wait before the next attempt; an hour at most is kept.

    Raises:
        TypeError: these are no seconds; the text of a header, say.
    """

    def __init__(self, message: str, retry_after: float) -> None:
        if not is_seconds(retry_after):
            raise TypeError(f"ThrottledError: retry_after is {retry_after!r}; allowed: seconds, as a number")
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[ThrottledError], tuple[str, float]]:
        return type(self), (str(self), self.retry_after)


class TransientError(SparkEventsError):
    """A reporter's verdict: not now, try again; the message says what has to change if it does not pass by itself."""
