"""Reader of Spark's event log; yields the records that the shim sends in a live run.

Spark's ``JsonProtocol`` defines the lines. Some kinds of lines produce no record, so the reader checks the kind of a
line before it decodes the line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO

import msgspec

from spark_events.errors import MissingExtraError
from spark_events.records.event_log.compression import CutOffError, DamagedLogError, pieces
from spark_events.records.event_log.handlers import LogRecord
from spark_events.records.event_log.log_files import COMPACT, EventLog, Position, part_of
from spark_events.records.event_log.log_paths import LogPath
from spark_events.records.event_log.logged_sql import SQL_START
from spark_events.records.event_log.records import LogRecords
from spark_events.records.event_log.shapes import EventKind, RolloverLine
from spark_events.records.types import QueryTerminated

_BEGINNING = b'{"Event":"'
_MOST_MISSING = 10
_COMPACTED = (
    "Spark has compacted this part; jobs, stages and tasks that had finished are missing, and the application's summary"
    " does not count them"
)
#: First event of each file of a Databricks log; contains the file's number, from 0.
_ROLLOVER = b"DBCEventLoggingListenerMetadata"
_SPARKS_OWN = (b"SparkListener", b"org.apache.spark.")


class EventLogReader:
    """Reader of one log.

    :meth:`records` reads the log once, from beginning to end. :meth:`new_records` reads a log that grows, and may be
    called again with the log's files at that time. Large, because both read the same lines in the same way.

    Args:
        log: the log's files.
        on_damage: called with each damaged or missing part and its position.
        summary_interval: minimum time between two totals of the application, in seconds; 0: only the final totals.

    Attributes:
        log: the log's files.
        position: how far :meth:`new_records` has read.
        on_damage: called with each damaged or missing part and its position.
        lines: number of lines read.
        recognised: whether any line was an event.
        first_line: the line that produced the first record; empty before the first record.
        damaged: number of lines or compressed blocks that were skipped.
        cut_off: number of files that end in the middle of a line or of a compressed block.
        unreadable: number of files that could not be read.
        unknown: number of lines of other kinds than Spark's own.
    """

    def __init__(self, log: EventLog, on_damage: Callable[[str], None], summary_interval: float = 0.0) -> None:
        self.log = log
        self.position = Position(-1)
        self.lines = 0
        self.first_line = b""
        self.damaged = 0
        self.cut_off = 0
        self.unreadable = 0
        self.on_damage = on_damage
        self._file: IO[bytes] | None = None
        self._read_before = 0
        self._size = sum(map(_size, log.files))
        self.recognised = False
        self.unknown = 0
        self._is_cut_off = False
        self._next_rollover = 0
        self._handlers = {**LogRecords(summary_interval).handlers, _ROLLOVER: self._rolled}

    @property
    def fraction(self) -> float:
        """Fraction of the files' bytes that has been read, from 0 to 1.

        Compressed files count with their compressed size.
        """
        here = 0 if self._file is None else self._file.tell()
        return min(1.0, (self._read_before + here) / self._size) if self._size else 1.0

    def records(self) -> Iterator[LogRecord]:
        """Yield the records in the order of the log; ``at`` never decreases."""
        return _dated(self._all_records())

    def new_records(self, log: EventLog, until: Position | None = None) -> Iterator[LogRecord]:
        """Yield the records after the last call; :attr:`position` follows the records.

        A last line without its line break may still be written; it is read by a later call.

        Args:
            log: the log's files now.
            until: where to stop, a position of an earlier reader of the same log; None: at the end.
        """
        self.log = log
        return _dated(self._grown(until))

    def _grown(self, until: Position | None) -> Iterator[LogRecord]:
        for path in self.log.files:
            part = part_of(path)
            here = self.position[:2]
            is_compact = path.name.endswith(COMPACT)
            if part < here or (part == here and is_compact) or (until is not None and part > until[:2]):
                continue
            start = self.position.offset if part == here else 0
            # Spark has compacted this part since it was read, so the offset does not apply.
            limit = until.offset - start if until is not None and part == until[:2] and not is_compact else None
            self.position = Position(*part, start)
            if is_compact:
                self.on_damage(f"{path}: {_COMPACTED}")
            try:
                with path.open("rb") as file:
                    yield from self._lines(path, _Measured(self._growing(path, file, start), limit), start)
            except (OSError, MissingExtraError) as error:
                # The part may be new, renamed or deleted since the listing; a later call reads it.
                self.unreadable += 1
                reason = (error.strerror or error) if isinstance(error, OSError) else error
                self.on_damage(f"{path}: cannot be read: {reason}")
                return
            if until is not None and part == until[:2]:
                self.position = until

    def _growing(self, path: LogPath, file: IO[bytes], start: int) -> Iterator[bytes]:
        def damaged(what: str) -> None:
            self.damaged += 1
            self.on_damage(f"{path}: {what}")

        try:
            yield from pieces(file, damaged, start)
        except CutOffError:
            # The block is still being written.
            return
        except DamagedLogError as error:
            damaged(str(error))

    def _lines(self, path: LogPath, content: _Measured, start: int) -> Iterator[LogRecord]:
        """Yield the records of the whole lines of a growing file, and move the position."""
        for lines, are_whole in _split(content, self._is_needed):
            if are_whole:
                yield from self._records(path, lines, 0, are_whole)
                self.position = self.position._replace(offset=start + content.whole)

    def _read(self, path: LogPath, file: IO[bytes]) -> Iterator[LogRecord]:
        number = 0
        self._is_cut_off = False
        for lines, are_whole in _split(self._pieces(path, file), self._is_needed):
            yield from self._records(path, lines, number, are_whole)
            number += len(lines)

    def _all_records(self) -> Iterator[LogRecord]:
        for name in self.log.missing:
            self.on_damage(f"{self.log.path}: part {name} is missing")
        for path in self.log.files:
            if path.name.endswith(COMPACT):
                self.on_damage(f"{path}: {_COMPACTED}")
            try:
                with path.open("rb") as file:
                    self._file = file
                    yield from self._read(path, file)
            except OSError as error:
                self.unreadable += 1
                self.on_damage(f"{path}: cannot be read: {error.strerror or error}")
            except MissingExtraError as error:
                self.unreadable += 1
                self.on_damage(f"{path}: {error}")
            finally:
                self._file = None
                self._read_before += _size(path)

    def _records(self, path: LogPath, lines: list[bytes], number: int, are_whole: bool) -> Iterator[LogRecord]:
        """Yield the records of some lines; ``number`` is the number of lines before them."""
        handler_of = self._handlers.get
        self.lines += len(lines)
        for line in lines:
            number += 1
            kind = line[10 : line.find(b'"', 10)]
            # Decode a part of a line completely, because a part may also end with a bracket.
            handler = handler_of(kind) if are_whole else self._unusual
            if handler is None:
                if kind.startswith(_SPARKS_OWN) and line[-1:] == b"}":
                    self.recognised = True
                    continue
                handler = self._unusual
            try:
                records = handler(line)
            except Exception as error:
                # Catch every error that a line causes; reading continues with the next line.
                if not line.strip():
                    continue
                if are_whole:
                    self.damaged += 1
                    self.on_damage(f"{path}:{number}: {_reason(line, error)}")
                else:
                    self._unfinished(f"{path}:{number}")
                continue
            self.recognised = True
            if records:
                self.first_line = self.first_line or line
                yield from records

    def _unfinished(self, where: str) -> None:
        """Note a last line that is being written or was cut off; it does not count as a line."""
        self.lines -= 1
        # If a compressed block was cut off, the damage has already been reported.
        if not self._is_cut_off:
            self._cut_off(f"{where}: the file ends in the middle of this line")

    def _pieces(self, path: LogPath, file: IO[bytes]) -> Iterator[bytes]:
        def damaged(what: str) -> None:
            self.damaged += 1
            self.on_damage(f"{path}: {what}")

        try:
            yield from pieces(file, damaged)
        except CutOffError as error:
            self._cut_off(f"{path}: {error}")
        except DamagedLogError as error:
            damaged(str(error))

    def _cut_off(self, damage: str) -> None:
        self._is_cut_off = True
        self.cut_off += 1
        self.on_damage(damage)

    def _is_needed(self, beginning: bytes) -> bool:
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

    def _unusual(self, line: bytes) -> Sequence[LogRecord]:
        """Handle a line of an unknown kind, or a line whose kind is at an unusual position."""
        name = msgspec.json.decode(line, type=EventKind).name
        handler = self._handlers.get(name.encode())
        if handler is not None:
            return handler(line)
        self.unknown += not name.encode().startswith(_SPARKS_OWN)
        return ()


def _dated(records: Iterator[LogRecord]) -> Iterator[LogRecord]:
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


class _Measured:
    """Pieces of a text, at most ``limit`` bytes; ``whole`` counts the bytes up to the last line break so far."""

    def __init__(self, content: Iterator[bytes], limit: int | None) -> None:
        self._content = content
        self._left = limit
        self._size = 0
        self.whole = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._content:
            taken = piece if self._left is None else piece[: self._left]
            if self._left is not None:
                self._left -= len(taken)
            if b"\n" in taken:
                self.whole = self._size + taken.rfind(b"\n") + 1
            self._size += len(taken)
            yield taken
            if self._left == 0:
                return


def _size(path: LogPath) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _reason(line: bytes, error: Exception) -> str:
    if line.rstrip()[-1:] != b"}":
        return "line skipped: incomplete"
    return f"line skipped: {'not JSON' if type(error) is msgspec.DecodeError else f'not a Spark event: {error}'}"


#: Maximum length of a line that is kept without checking whether the reader needs the line.
_LONG = 1 << 20
#: Maximum length of a valid line. A longer line indicates a file without line breaks.
_LONGEST = 1 << 27
_KEPT_BYTES = 1 << 10


def _split(pieces: Iterable[bytes], is_needed: Callable[[bytes], bool]) -> Iterator[tuple[list[bytes], bool]]:
    """Yield lists of lines without their line breaks, and whether the lines are whole.

    Only the text after the last line break may be a part of a line. A long unneeded line is reduced to its first 1,024
    bytes and its last byte. A line above the maximum length is also cut, so that the reader detects it as damaged.

    Args:
        pieces: the text in pieces of any size.
        is_needed: decides from the first bytes of a line whether the line is needed.
    """
    begun: list[bytes] = []
    size = 0
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        if whole:
            if begun:
                whole[0] = b"".join((*begun, whole[0]))
                begun, size = [], 0
            yield whole, True
        if not rest:
            continue
        begun.append(rest)
        size += len(rest)
        if size > _LONG:
            beginning = b"".join(begun[:2])[:_KEPT_BYTES]
            if size > _LONGEST or not is_needed(beginning):
                begun, size = [beginning, rest[-1:]], 0
    if begun:
        yield [b"".join(begun)], False
