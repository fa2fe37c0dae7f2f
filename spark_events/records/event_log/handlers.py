"""Handlers of lines: functions that return the records of a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from spark_events.records.types import Record, StageWaited

#: Record of a log; only logs produce StageWaited.
LogRecord: TypeAlias = Record | StageWaited
Handler: TypeAlias = Callable[[bytes], Sequence[LogRecord]]
_Line = TypeVar("_Line")


def decoding(shape: type[_Line], take: Callable[[_Line], Sequence[LogRecord] | None]) -> Handler:
    """Return a handler that decodes a line and passes it on to a function, which may return None for no record."""
    decode = msgspec.json.Decoder(shape).decode

    def handle(line: bytes) -> Sequence[LogRecord]:
        return take(decode(line)) or ()

    return handle
