"""Protocol between the sidecar and a reporter's process.

A message consists of its length and MessagePack data. Each request has exactly one answer. Messages are msgspec structs
instead of pickles, so data from a faulty process cannot execute code.
"""

from __future__ import annotations

import os
from typing import Any, Literal, TypeAlias, TypeGuard

import msgspec

from spark_events.config import Setting
from spark_events.dispatch.reporter_calls import asked_pause
from spark_events.errors import PermanentError, ReporterProcessError, ThrottledError
from spark_events.event import Event, Severity
from spark_events.event.text import text_of
from spark_events.reporters.reporter import Rest

#: Size of the length before each message, in bytes.
LENGTH_BYTES = 4
#: Maximum size of an answer in bytes. Answers are short strings and log lines, so a longer message indicates a faulty
#: process.
MOST_ANSWER_BYTES = 1 << 20
_MOST_TEXT = 64 * 1024
#: Upper limit for the number of rejected events in an answer: the size of the largest batch.
_MOST_REJECTED = 1 << 31


class Make(msgspec.Struct, tag="make", frozen=True):
    """Request to create the reporter from its name, its ``type`` setting and the user's settings."""

    name: str
    kind: str
    settings: list[Setting]


class Open(msgspec.Struct, tag="open", frozen=True):
    """Request to call ``open``."""


class Report(msgspec.Struct, tag="report", frozen=True):
    """Request to call ``report``."""

    events: list[Event]


class Close(msgspec.Struct, tag="close", frozen=True):
    """Request to call ``close``."""


class Done(msgspec.Struct, tag="done", frozen=True):
    """Answer for a call that has returned.

    Attributes:
        most: the maximum number of events of the next call; None for no limit.
        linger: how long events may wait to form a larger batch, in seconds.
        lingers_through: events of a higher severity end this wait.
        rest: how long events wait after this call.
    """

    most: int | None = None
    linger: float = 0.0
    lingers_through: Severity = Severity.INFO
    rest: Rest = Rest()


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """Answer for a call that has raised an error.

    Attributes:
        verdict: the kind of error, which decides whether the call is retried.
        error: the error as a string.
        retry_after: the requested pause in seconds, for a throttled error.
        rejected: the number of rejected events, for a permanent error that states this number.
    """

    verdict: Literal["permanent", "throttled", "transient"]
    error: str
    retry_after: float = 0.0
    rejected: int | None = None


class LogLine(msgspec.Struct, tag="log", frozen=True):
    """Line for the sidecar's log: the only message that is not an answer to a request."""

    logger: str
    level: int
    text: str


Request: TypeAlias = Make | Open | Report | Close
Answer: TypeAlias = Done | Failed | LogLine

_ENCODER = msgspec.msgpack.Encoder()
#: Decoder of requests; the hook makes event attributes immutable again.
REQUESTS: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Request, dec_hook=lambda kind, value: kind(value))
ANSWERS: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Answer)


def encode(message: Request | Answer) -> bytes:
    """Return the message as bytes, preceded by its length."""
    data = _ENCODER.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def read(fd: int) -> bytes | None:
    """Wait for one message; return None if the other process has closed the pipe."""
    header = _exactly(fd, LENGTH_BYTES)
    return None if header is None else _exactly(fd, int.from_bytes(header, "big"))


def _exactly(fd: int, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        chunk = os.read(fd, count - len(data))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def text(given: object) -> str:
    """Return any object as a string, limited in length and safe to encode."""
    return text_of(given, _MOST_TEXT)


def failure(error: BaseException) -> Failed:
    """Return the answer that reports an error raised by a call."""
    described = f"{type(error).__name__}: {text(error)}"
    if isinstance(error, PermanentError):
        reason = text(error) if type(error) is PermanentError else described
        rejected = getattr(error, "rejected", None)
        return Failed("permanent", reason, rejected=rejected if _is_count(rejected) else None)
    if (pause := asked_pause(error)) is not None:
        return Failed("throttled", text(error) if type(error) is ThrottledError else described, pause)
    return Failed("transient", described)


def _is_count(value: object) -> TypeGuard[int]:
    """Return whether an attribute of a user-defined error is a valid number of rejected events."""
    return type(value) is int and 0 <= value <= _MOST_REJECTED


def verdict(failed: Failed) -> Exception:
    """Return the exception that the sidecar raises for this answer."""
    if failed.verdict == "permanent":
        return PermanentError(failed.error, failed.rejected)
    if failed.verdict == "throttled":
        return ThrottledError(failed.error, failed.retry_after)
    return ReporterProcessError(failed.error)
