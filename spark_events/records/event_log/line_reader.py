"""Records of the lines of Spark's event log: the records that the shim sends in a live run.

Spark's ``JsonProtocol`` defines the lines. Some kinds of lines produce no record, so the reader checks the kind of a
line before it decodes the line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import msgspec

from spark_events.errors import MissingExtraError
from spark_events.records.event_log.handlers import LogRecord
from spark_events.records.event_log.log_files import COMPACT, EventLog
from spark_events.records.event_log.log_paths import LogPath
from spark_events.records.event_log.logged_sql import SQL_START
from spark_events.records.event_log.records import LogRecords
from spark_events.records.event_log.shapes import EventKind, RolloverLine
from spark_events.records.types import QueryTerminated

__all__ = ["LineReader", "dated"]

_BEGINNING = b'{"Event":"'
_MOST_MISSING = 10
_COMPACTED = (
    "Spark has compacted this part; jobs, stages and tasks that had finished are missing, and the application's summary"
    " does not count them"
)
#: First event of each file of a Databricks log; contains the file's number, from 0.
_ROLLOVER = b"DBCEventLoggingListenerMetadata"
_SPARKS_OWN = (b"SparkListener", b"org.apache.spark.")


class LineReader:
    """What the readers of a whole log and of a growing log have in common: the way from a line to its records.

    Args:
        log: the log's files.
        on_damage: called with each damaged or missing part and its position.
        summary_interval: minimum time between two totals of the application, in seconds; 0: only the final totals.

    Attributes:
        log: the log's files.
        on_damage: called with each damaged or missing part and its position.
        lines: number of lines read.
        recognised: whether any line was an event.
        first_line: the line that produced the first record; empty before the first record.
        damaged: number of lines or compressed blocks that were skipped.
        unreadable: number of files that could not be read.
        unknown: number of lines of other kinds than Spark's own.
    """

    def __init__(self, log: EventLog, on_damage: Callable[[str], None], summary_interval: float = 0.0) -> None:
        self.log = log
        self.on_damage = on_damage
        self.lines = 0
        self.recognised = False
        self.first_line = b""
        self.damaged = self.unreadable = self.unknown = 0
        self._next_rollover = 0
        self._handlers = {**LogRecords(summary_interval).handlers, _ROLLOVER: self._rolled}

    def note_damage(self, what: str) -> None:
        """Count and report a line or a compressed block that is skipped."""
        self.damaged += 1
        self.on_damage(what)

    def note_unreadable(self, path: LogPath, error: OSError | MissingExtraError) -> None:
        """Count and report a file that cannot be read."""
        self.unreadable += 1
        reason = (error.strerror or error) if isinstance(error, OSError) else error
        self.on_damage(f"{path}: cannot be read: {reason}")

    def note_compaction(self, path: LogPath) -> None:
        """Report the file if Spark has compacted it."""
        if path.name.endswith(COMPACT):
            self.on_damage(f"{path}: {_COMPACTED}")

    def of_lines(self, path: LogPath, lines: list[bytes], number: int = 0) -> Iterator[LogRecord]:
        """Yield the records of whole lines; ``number`` is the number of lines before them."""
        handler_of = self._handlers.get
        self.lines += len(lines)
        for line in lines:
            number += 1
            kind = line[10 : line.find(b'"', 10)]
            handler = handler_of(kind)
            if handler is None:
                if kind.startswith(_SPARKS_OWN) and line[-1:] == b"}":
                    self.recognised = True
                    continue
                handler = self.of_unusual_line
            try:
                records = handler(line)
            except Exception as error:
                # Catch every error that a line causes; reading continues with the next line.
                if line.strip():
                    self.note_damage(f"{path}:{number}: {_reason(line, error)}")
                continue
            self.recognised = True
            if records:
                self.first_line = self.first_line or line
                yield from records

    def is_needed(self, beginning: bytes) -> bool:
        """Return whether a line with this beginning produces records, so that it must be kept whole."""
        kind = beginning[10 : beginning.find(b'"', 10)]
        # Cut the line that records the start of a SQL execution too, because its plan has an unlimited size.
        return not beginning.startswith(_BEGINNING) or (kind in self._handlers and kind != SQL_START)

    def _rolled(self, line: bytes) -> Sequence[LogRecord]:
        """Report the files of a Databricks log that are missing before this one."""
        number = msgspec.json.decode(line, type=RolloverLine).rollover_number
        for missing in itertools.islice(range(self._next_rollover, number), _MOST_MISSING):
            self.on_damage(f"{self.log.path}: part {missing} is missing")
        if number - self._next_rollover > _MOST_MISSING:
            self.on_damage(f"{self.log.path}: all parts up to {number - 1} are missing too")
        self._next_rollover = number + 1
        return ()

    def of_unusual_line(self, line: bytes) -> Sequence[LogRecord]:
        """Handle a line of an unknown kind, or a line whose kind is at an unusual position."""
        name = msgspec.json.decode(line, type=EventKind).name
        handler = self._handlers.get(name.encode())
        if handler is not None:
            return handler(line)
        self.unknown += not name.encode().startswith(_SPARKS_OWN)
        return ()


def dated(records: Iterator[LogRecord]) -> Iterator[LogRecord]:
    """Add to the end of each query the time of the next record."""
    ends: list[QueryTerminated] = []
    for record in records:
        if type(record) is QueryTerminated:
            ends.append(record)
            continue
        if ends:
            for end in ends:
                yield msgspec.structs.replace(end, until=record.at)
            ends = []
        yield record
    yield from ends


def _reason(line: bytes, error: Exception) -> str:
    if line.rstrip()[-1:] != b"}":
        return "line skipped: incomplete"
    return f"line skipped: {'not JSON' if type(error) is msgspec.DecodeError else f'not a Spark event: {error}'}"
