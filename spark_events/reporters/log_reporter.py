"""Reporter ``log``: readable lines on the driver's standard error or in its log."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from collections.abc import Awaitable, Iterable, Sequence
from typing import ClassVar, TextIO

import msgspec

from spark_events.config import choice, option
from spark_events.errors import PermanentError
from spark_events.event import Event, Severity, encode_event
from spark_events.event.text import moment, on_one_line, plain
from spark_events.reporters.reporter import Reporter, until

#: Name of the logger whose lines the sidecar forwards to the driver; the driver's logger has the same name.
DRIVER_LOGGER = "io.sparkevents.Events"
_WIDTH = max(len(severity.value) for severity in Severity)
_LEVELS = {severity: 10 * rank or 5 for rank, severity in enumerate(Severity)}
_SEVERITIES = {level: severity for severity, level in _LEVELS.items()}
_COLOURS = {Severity.TRACE: "2", Severity.DEBUG: "2", Severity.WARN: "33", Severity.ERROR: "31", Severity.FATAL: "1;31"}


@dataclasses.dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings below ``events.reporter.<name>.`` for type ``log``."""

    format: str = option(
        "format",
        choice("text", "json"),
        "text",
        doc="text: readable lines. json: the whole event, as the reporter `file` writes it, after the key `tag`.",
    )
    destination: str = option(
        "destination",
        choice("stderr", "log4j"),
        "stderr",
        doc=f"stderr: the driver's standard error. log4j: the driver's own log, logger {DRIVER_LOGGER}.",
    )


#: Tag of every line in a log, for ``grep``: the beginning of a line of text, the first value of a JSON object.
TAG = "[spark-events]"


def format_event(event: Event, *, at: str | None = None, in_colour: bool = False) -> str:
    """Return an event as one line in the format of Spark's log.

    >>> print(format_event(event))                                                # doctest: +SKIP
    26/01/31 10:00:00 INFO  BatchCommitEvent: Query 'clicks' committed batch 41 in 900 ms: 1,200 rows

    Args:
        event: the event.
        at: the time as text; None: local time, in the format of Spark's log.
        in_colour: whether to colour the severity with ANSI escape codes.
    """
    severity = event.severity.value.ljust(_WIDTH)
    if in_colour and event.severity in _COLOURS:
        severity = f"\x1b[{_COLOURS[event.severity]}m{severity}\x1b[0m"
    when = on_one_line(moment(event.observed_ts_millis, "%y/%m/%d %H:%M:%S") if at is None else at)
    return f"{when} {severity} {on_one_line(f'{event.name}: {event.body}')}"


def severity_of(level: int) -> str:
    """Return the severity that corresponds to a level of Python's ``logging``."""
    return str(_SEVERITIES.get(level, Severity.INFO).value)


class LogReporter(Reporter):
    """Reporter that writes to the driver's standard error or to the driver's log."""

    min_severity = Severity.INFO

    Config: ClassVar[type[LogConfig]] = LogConfig

    def __init__(self, config: LogConfig) -> None:
        self._fd = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
        self._is_json = config.format == "json"
        self._in_colour = not self._is_json and _shows_colours(self._fd)
        # Use Python's logging, which reaches the driver even if the reporter runs in its own process.
        self._logger = logging.getLogger(DRIVER_LOGGER) if config.destination == "log4j" else None
        # Data of the current batch, and the number of bytes already written. A retry continues after these bytes.
        self._data = b""
        self._written = 0

    def open(self) -> None:
        if self._logger is not None and not self._logger.hasHandlers():
            raise PermanentError(
                "destination=log4j needs a driver's log, which this process does not have; set destination=stderr"
            )

    def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
        if self._logger is not None:
            self._log_to_driver(self._logger, events)
            return None
        data = "".join(f"{self._line(event)}\n" for event in self._shown(events)).encode("utf-8", "replace")
        if data != self._data:
            self._data, self._written = data, 0
        return None if self._write() else until(self._write)

    def _write(self) -> bool:
        """Write the remaining data; return False if standard error accepts no more data now.

        Standard error may be non-blocking, because any process that shares the open file can set this mode.
        """
        view = memoryview(self._data)
        while self._written < len(view):
            try:
                self._written += os.write(self._fd, view[self._written :])
            except BlockingIOError:
                return False
        self._data = b""
        return True

    def _log_to_driver(self, logger: logging.Logger, events: Sequence[Event]) -> None:
        for event in self._shown(events):
            # The driver's log adds its own time and level.
            line = self._line(event) if self._is_json else f"{TAG} {on_one_line(f'{event.name}: {event.body}')}"
            level = _LEVELS[event.severity]
            logger.handle(logger.makeRecord(logger.name, level, "", 0, plain(line), (), None))

    def _shown(self, events: Sequence[Event]) -> Iterable[Event]:
        if self._is_json:
            return events
        return (_as_part(event) for event in events if not _is_repeated(event))

    def _line(self, event: Event) -> str:
        if self._is_json:
            return f'{{"tag":"{TAG}",{encode_event(event).decode()[1:]}'
        return f"{TAG} {format_event(event, in_colour=self._in_colour)}"


def _is_repeated(event: Event) -> bool:
    """Return whether another line tells the failure: the alarm of the query or application, or the failed job."""
    role = event.attributes.get("incident.role")
    of_query = "spark.streaming.query.run_id" in event.attributes
    return role == "consequence" or (role == "member" and (of_query or event.severity < Severity.WARN))


def _as_part(event: Event) -> Event:
    """Show a failed job at INFO: its program may catch the failure, and otherwise the alarm repeats the cause."""
    if event.attributes.get("incident.role") != "member":
        return event
    return msgspec.structs.replace(event, severity=Severity.INFO)


def _shows_colours(fd: int) -> bool:
    return os.isatty(fd) and shows_colours(sys.stdout, is_terminal=True)


def shows_colours(output: TextIO, *, is_terminal: bool | None = None) -> bool:
    """Return whether the terminal shows colours and the user allows colours (no-color.org).

    Args:
        output: the stream to the terminal.
        is_terminal: whether the output is a terminal; None: ask the stream.
    """
    is_terminal = output.isatty() if is_terminal is None else is_terminal
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
