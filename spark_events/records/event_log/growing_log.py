"""Reader of an event log that still grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO

from spark_events.errors import MissingExtraError
from spark_events.records.event_log.compression import CutOffError, DamagedLogError, pieces
from spark_events.records.event_log.handlers import LogRecord
from spark_events.records.event_log.line_reader import LineReader, dated
from spark_events.records.event_log.log_files import COMPACT, EventLog, Position, part_of
from spark_events.records.event_log.log_lines import MeasuredText, split
from spark_events.records.event_log.log_paths import LogPath

__all__ = ["GrowingLogReader"]


class GrowingLogReader(LineReader):
    """Reader of a log that grows; takes the arguments of a :class:`.LineReader`.

    Attributes:
        position: how far the log has been read.
    """

    def __init__(self, log: EventLog, on_damage: Callable[[str], None], summary_interval: float = 0.0) -> None:
        super().__init__(log, on_damage, summary_interval)
        self.position = Position(-1)

    def new_records(self, log: EventLog, until: Position | None = None) -> Iterator[LogRecord]:
        """Yield the records after the last call; :attr:`position` follows the records.

        A last line without its line break may still be written; it is read by a later call.

        Args:
            log: the log's files now.
            until: where to stop, a position of an earlier reader of the same log; None: at the end.
        """
        self.log = log
        return dated(self._grown(until))

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
            self.note_compaction(path)
            try:
                with path.open("rb") as file:
                    yield from self._lines(path, MeasuredText(self._growing(path, file, start), limit), start)
            except (OSError, MissingExtraError) as error:
                # The part may be new, renamed or deleted since the listing; a later call reads it.
                self.note_unreadable(path, error)
                return
            if until is not None and part == until[:2]:
                self.position = until

    def _growing(self, path: LogPath, file: IO[bytes], start: int) -> Iterator[bytes]:
        try:
            yield from pieces(file, lambda what: self.note_damage(f"{path}: {what}"), start)
        except CutOffError:
            # The block is still being written.
            return
        except DamagedLogError as error:
            self.note_damage(f"{path}: {error}")

    def _lines(self, path: LogPath, content: MeasuredText, start: int) -> Iterator[LogRecord]:
        """Yield the records of the whole lines of a growing file, and move the position."""
        for lines, are_whole in split(content, self.is_needed):
            if are_whole:
                yield from self.of_lines(path, lines)
                self.position = self.position._replace(offset=start + content.whole)
