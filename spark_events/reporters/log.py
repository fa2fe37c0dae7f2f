"""``log``: events as a person reads them, on the driver's standard error."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from spark_events.event import Event
from spark_events.reporters.reporter import NoOptions, Reporter

__all__ = ["LogReporter", "format_event"]

# Line breaks of every kind, and what a terminal would obey.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def format_event(event: Event, *, time_format: str = "%y/%m/%d %H:%M:%S") -> str:
    """An event as one line of text, in the form of Spark's own log lines.

    >>> print(format_event(event))                                                # doctest: +SKIP
    26/01/31 10:00:00 INFO BatchCommitEvent: Query 'clicks' committed batch 41 in 900 ms: 1,200 rows
    """
    try:
        moment = datetime.fromtimestamp(event.observed_ts_millis / 1000).strftime(time_format)
    except (ValueError, OverflowError, OSError):
        # Beyond the years that a calendar has; still an event.
        moment = str(event.observed_ts_millis)
    return _CONTROL.sub(" ", f"{moment} {event.severity.value} {event.name}: {event.body}")


class LogReporter(Reporter):
    """Writes to standard error, which the sidecar shares with the driver."""

    Config: ClassVar[type[NoOptions]] = NoOptions

    def __init__(self, config: NoOptions) -> None:
        self._fd = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2

    def report(self, events: Sequence[Event]) -> None:
        data = "".join(f"{format_event(event)}\n" for event in events).encode("utf-8", "replace")
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
