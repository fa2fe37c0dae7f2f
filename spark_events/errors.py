"""Everything this project raises, as one shallow tree."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "ConfigError",
    "InvalidEventError",
    "MissingExtraError",
    "PermanentError",
    "ProtocolError",
    "ReporterProcessError",
    "SparkEventsError",
    "ThrottledError",
]


class SparkEventsError(Exception):
    """What all of them have in common."""


class ConfigError(SparkEventsError):
    """Settings that cannot be used: all that is wrong with them, one sentence a problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class InvalidEventError(SparkEventsError, ValueError):
    """An event that cannot be built: the message names the field or the attribute."""


class MissingExtraError(SparkEventsError, ImportError):
    """A reporter's library is not installed; the message says which extra brings it."""


class ProtocolError(SparkEventsError):
    """The shim and the sidecar do not understand each other."""


class ReporterProcessError(SparkEventsError):
    """A reporter with ``isolation=process`` has raised something, or its process has died; the message says which."""


class PermanentError(SparkEventsError):
    """A reporter's verdict: these events will never be taken, do not try again.

    Args:
        message: why not.
        rejected: how many of them, where the others were delivered; all of them, without it.
    """

    rejected: int | None = None

    def __init__(self, message: str = "", rejected: int | None = None) -> None:
        super().__init__(message)
        self.rejected = rejected


class ThrottledError(SparkEventsError):
    """A reporter's verdict: the destination asks to be left alone for a while.

    Args:
        message: what the destination said.
        retry_after: seconds to wait before the next attempt.
    """

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after
