"""What the sidecar and a reporter's process say to each other: MessagePack behind its length, one answer a request.

The parts of a request that are ours are msgspec structs already, so nothing is pickled: what comes from a process
that has lost its mind can be wrong, but it cannot run anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeGuard

import msgspec

from spark_events.config import Setting
from spark_events.dispatch.calls import asked_pause
from spark_events.errors import PermanentError, ReporterProcessError, ThrottledError
from spark_events.event import Event
from spark_events.event.text import said_of

__all__ = [
    "MOST_ANSWER_BYTES",
    "Answer",
    "Close",
    "Done",
    "Failed",
    "Make",
    "Open",
    "Report",
    "Request",
    "Said",
    "answers_of",
    "encode",
    "failure",
    "read",
    "requests_of",
    "text",
    "verdict",
]

_LENGTH_BYTES = 4
#: An answer is a few words, or a line for the log: what claims to be longer is the work of a broken process.
MOST_ANSWER_BYTES = 1 << 20
_MOST_TEXT = 64 * 1024
#: More events than any batch has.
_MOST_REJECTED = 1 << 31


class Make(msgspec.Struct, tag="make", frozen=True):
    """Make the reporter: its name, the text of its ``type``, and its settings as the user gave them."""

    name: str
    kind: str
    settings: list[Setting]


class Open(msgspec.Struct, tag="open", frozen=True):
    """Call ``open``."""


class Report(msgspec.Struct, tag="report", frozen=True):
    """Call ``report``."""

    events: list[Event]


class Close(msgspec.Struct, tag="close", frozen=True):
    """Call ``close``."""


class Done(msgspec.Struct, tag="done", frozen=True):
    """The call has returned.

    From now on the reporter takes ``most`` events a call (None: as many as there are), and an event may wait ``linger``
    seconds for others.
    """

    most: int | None = None
    linger: float = 0.0


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The call has raised: the verdict, and the error in words."""

    verdict: Literal["permanent", "throttled", "transient"]
    error: str
    retry_after: float = 0.0
    rejected: int | None = None


class Said(msgspec.Struct, tag="said", frozen=True):
    """A line for the sidecar's log; the only thing that is said without having been asked."""

    logger: str
    level: int
    text: str


Request: TypeAlias = Make | Open | Report | Close
Answer: TypeAlias = Done | Failed | Said

_ENCODER = msgspec.msgpack.Encoder()


def encode(message: Request | Answer) -> bytes:
    """One message as it goes over the pipe."""
    data = _ENCODER.encode(message)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def requests_of() -> Callable[[bytes], Request]:
    """Decodes requests; the attributes of their events are as unchangeable as before."""
    decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Request, dec_hook=lambda kind, value: kind(value))
    return decoder.decode


def answers_of() -> Callable[[bytes], Answer]:
    """Decodes answers."""
    decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Answer)
    return decoder.decode


def read(fd: int, most: int | None = None) -> bytes | None:
    """Waits for one message; None when the other side is gone.

    Raises:
        ValueError: the message is longer than ``most`` bytes.
    """
    header = _exactly(fd, _LENGTH_BYTES)
    if header is None:
        return None
    length = int.from_bytes(header, "big")
    if most is not None and length > most:
        raise ValueError(f"a message of {length} bytes")
    return _exactly(fd, length)


def _exactly(fd: int, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        chunk = os.read(fd, count - len(data))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def text(said: object) -> str:
    """What somebody else's object says of itself, so that it can be sent."""
    return said_of(said, _MOST_TEXT)


def failure(error: BaseException) -> Failed:
    """What a call has raised, as an answer."""
    told = f"{type(error).__name__}: {text(error)}"
    if isinstance(error, PermanentError):
        said = text(error) if type(error) is PermanentError else told
        rejected = getattr(error, "rejected", None)
        return Failed("permanent", said, rejected=rejected if _is_count(rejected) else None)
    if (pause := asked_pause(error)) is not None:
        return Failed("throttled", text(error) if type(error) is ThrottledError else told, pause)
    return Failed("transient", told)


def _is_count(value: object) -> TypeGuard[int]:
    """Whether it can be sent; a class of the user's own may have anything there."""
    return type(value) is int and 0 <= value <= _MOST_REJECTED


def verdict(failed: Failed) -> Exception:
    """The same verdict, to be raised on this side."""
    if failed.verdict == "permanent":
        return PermanentError(failed.error, failed.rejected)
    if failed.verdict == "throttled":
        return ThrottledError(failed.error, failed.retry_after)
    return ReporterProcessError(failed.error)
