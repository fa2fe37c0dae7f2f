"""Reader of a whole event log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO

from spark_events.errors import MissingExtraError
from spark_events.records.event_log.compression import CutOffError, DamagedLogError, pieces
from spark_events.records.event_log.handlers import LogRecord
from spark_events.records.event_log.line_reader import LineReader, dated
from spark_events.records.event_log.log_files import EventLog
from spark_events.records.event_log.log_lines import split
from spark_events.records.event_log.log_paths import LogPath

__all__ = ["EventLogReader"]


class EventLogReader(LineReader):
    """Reader of a log from its beginning to its end; takes the arguments of a :class:`.LineReader`.

    Attributes:
        cut_off: number of files that end in the middle of a line or of a compressed block.
    """

    def __init__(self, log: EventLog, on_damage: Callable[[str], None], summary_interval: float = 0.0) -> None:
        super().__init__(log, on_damage, summary_interval)
        self.cut_off = 0
        self._file: IO[bytes] | None = None
        self._read_before = 0
        self._size = sum(map(_size, log.files))
        self._is_cut_off = False

    @property
    def fraction(self) -> float:
        """Fraction of the files' bytes that has been read, from 0 to 1.

        Compressed files count with their compressed size.
        """
        here = 0 if self._file is None else self._file.tell()
        return min(1.0, (self._read_before + here) / self._size) if self._size else 1.0

    def records(self) -> Iterator[LogRecord]:
        """Yield the records, once, in the order of the log; ``at`` never decreases."""
        return dated(self._all_records())

    def _all_records(self) -> Iterator[LogRecord]:
        for name in self.log.missing:
            self.on_damage(f"{self.log.path}: part {name} is missing")
        for path in self.log.files:
            self.note_compaction(path)
            try:
                with path.open("rb") as file:
                    self._file = file
                    yield from self._read(path, file)
            except (OSError, MissingExtraError) as error:
                self.note_unreadable(path, error)
            finally:
                self._file = None
                self._read_before += _size(path)

    def _read(self, path: LogPath, file: IO[bytes]) -> Iterator[LogRecord]:
        number = 0
        self._is_cut_off = False
        for lines, are_whole in split(self._pieces(path, file), self.is_needed):
            if are_whole:
                yield from self.of_lines(path, lines, number)
            else:
                yield from self._last_line(lines[0], f"{path}:{number + 1}")
            number += len(lines)

    def _last_line(self, line: bytes, where: str) -> Iterator[LogRecord]:
        """Yield the records of a line without its line break, which may be a part of a line."""
        try:
            # Decode the line completely, because a part may also end with a bracket.
            records = self.of_unusual_line(line)
        except Exception:
            # If a compressed block was cut off, the damage has already been reported.
            if line.strip() and not self._is_cut_off:
                self._cut_off(f"{where}: the file ends in the middle of this line")
            return
        self.lines += 1
        self.recognised = True
        if records:
            self.first_line = self.first_line or line
            yield from records

    def _pieces(self, path: LogPath, file: IO[bytes]) -> Iterator[bytes]:
        try:
            yield from pieces(file, lambda what: self.note_damage(f"{path}: {what}"))
        except CutOffError as error:
            self._cut_off(f"{path}: {error}")
        except DamagedLogError as error:
            self.note_damage(f"{path}: {error}")

    def _cut_off(self, damage: str) -> None:
        self._is_cut_off = True
        self.cut_off += 1
        self.on_damage(damage)


def _size(path: LogPath) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
