"""All exceptions of this project."""

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
    "RowError",
    "SessionError",
    "SparkEventsError",
    "StreamStoppedError",
    "ThrottledError",
    "TransientError",
    "WaitTimeoutError",
    "is_seconds",
]


def is_seconds(value: object) -> TypeGuard[float]:
    """Return whether a value is a number other than NaN."""
    # Only NaN differs from itself; math.isnan fails for integers beyond the range of floats.
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


class SparkEventsError(Exception):
    """Base class of all exceptions of this project."""


class ConfigError(SparkEventsError):
    """Invalid settings; the message contains one sentence per problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[str, ...]]]:
        return type(self), (self.problems,)


class InvalidEventError(SparkEventsError, ValueError):
    """Invalid event; the message names the field or attribute."""


class InvalidChoiceError(SparkEventsError, ValueError):
    """Invalid event filter or timeout; the message contains the argument, the value and the allowed values."""


class InvalidPlanError(SparkEventsError, ValueError):
    """Invalid enrichment; the message contains the argument, the value and the allowed values."""


class RowError(SparkEventsError):
    """The failure of one row, as the cause of an :class:`EnrichmentError`."""


class EnrichmentError(SparkEventsError):
    """An enrichment could not process some rows, so the batch is not committed.

    Attributes:
        failed: number of failed rows; 0 if unknown.
        rows: number of rows in the batch.
        batch_id: micro-batch; None outside of streaming.
        query: id of the query, or the name that the caller passed.
        samples: some failed rows, each with ``partition``, ``row`` (index in the partition, from 0) and ``failure``.
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
    """A reporter's library is not installed; the message names the extra."""


class ProtocolError(SparkEventsError):
    """Shim and sidecar use different versions of the protocol."""


class ReporterProcessError(SparkEventsError):
    """A reporter with ``isolation=process`` raised an exception, or its process died."""


class SessionError(SparkEventsError, RuntimeError):
    """The Spark session does not support the request; the message contains the reason and a remedy."""


class StreamStoppedError(SessionError):
    """The stream has stopped, so the awaited event cannot arrive."""


class WaitTimeoutError(SparkEventsError, TimeoutError):
    """The awaited event did not arrive in time; the message lists the events that arrived."""


class PermanentError(SparkEventsError):
    """Raised by a reporter: the destination will never accept these events, so drop them.

    Args:
        message: reason.
        rejected: number of rejected events, if the other events were delivered; default: all.

    Raises:
        TypeError: ``rejected`` is not a number of events.
    """

    rejected: int | None = None

    def __init__(self, message: str = "", rejected: int | None = None) -> None:
        if rejected is not None and (type(rejected) is not int or rejected < 0):
            raise TypeError(f"PermanentError: rejected is {rejected!r}; allowed: a whole number from 0, or None")
        super().__init__(message)
        self.rejected = rejected


class ThrottledError(SparkEventsError):
    """Raised by a reporter: the destination throttles, so retry these events after a pause.

    At the application's end, delivery to it may use all of ``spark.events.shutdown.timeout``.

    Args:
        message: the destination's answer.
        retry_after: seconds until the next attempt, at most one hour; 0 if the destination requests no time.

    Raises:
        TypeError: ``retry_after`` is not a number of seconds but, for example, a header's string.
    """

    def __init__(self, message: str, retry_after: float) -> None:
        if not is_seconds(retry_after):
            raise TypeError(f"ThrottledError: retry_after is {retry_after!r}; allowed: a number of seconds")
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[ThrottledError], tuple[str, float]]:
        return type(self), (str(self), self.retry_after)


class TransientError(SparkEventsError):
    """Raised by a reporter: retry these events.

    If a retry can succeed only after a change by the user, the message states the change.
    """
