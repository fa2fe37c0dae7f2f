"""Events of one event log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from spark_events.event import Event
from spark_events.records.event_log.handlers import LogRecord
from spark_events.records.event_log.line_reader import LineReader
from spark_events.records.event_log.log_reader import EventLogReader
from spark_events.records.types import ApplicationStart
from spark_events.translate.translator import Translator

__all__ = ["LogTranslation", "replayed"]

_LOG = logging.getLogger(__name__)
#: Maximum number of records that are kept until the application's start has been read. Spark writes the start after
#: the executors that registered before it.
_MOST_EARLY = 10_000


def replayed(reader: EventLogReader, translator: Translator, *, ends: bool = True) -> Iterator[list[Event]]:
    """Yield the events of one log, one list per record.

    The times of the records replace the clock. If the log lacks the application's start, the application id is derived
    from the log's file name or content. With ``ends=False``, the log may grow: events that later records would change,
    and events before the application's start, are left out.
    """
    translation = LogTranslation(reader, translator)
    for record in reader.records():
        yield from translation.take(record)
    if ends:
        yield from translation.end()


class LogTranslation:
    """Translation of the records of one log, in which the application's start may follow other records.

    Args:
        reader: the log's reader.
        translator: translates the records.

    Attributes:
        start: the application's start; None before it was read.
    """

    def __init__(self, reader: LineReader, translator: Translator) -> None:
        self._reader = reader
        self._translator = translator
        # Records before the application's start; None after it.
        self._early: list[LogRecord] | None = []
        self.start: ApplicationStart | None = None

    def take(self, record: LogRecord) -> Iterator[list[Event]]:
        """Yield the events of a record, or of none before the application's start."""
        if self._early is None:
            yield self._translated(record)
            return
        if type(record) is ApplicationStart:
            self.start = record
            self._early.insert(0, record)
        else:
            self._early.append(record)
            if len(self._early) < _MOST_EARLY:
                return
            self._identify()
        yield from self._begin()

    def end(self) -> Iterator[list[Event]]:
        """Yield the last events, because no more records will arrive."""
        if self._early:
            self._identify()
        yield from self._begin()
        if not self._translator.application_is_over:
            yield self._translator.flush()

    def _begin(self) -> Iterator[list[Event]]:
        early, self._early = self._early or [], None
        for record in early:
            yield self._translated(record)

    def _translated(self, record: LogRecord) -> list[Event]:
        try:
            return self._translator.translate(record)
        except Exception:
            # Catch every error: a defect in the translation may lose one record, but not the other events of the log.
            self._translator.defects += 1
            _LOG.exception(
                "skipped a record of kind %s: its translation failed; report this defect", type(record).__name__
            )
            return []

    def _identify(self) -> None:
        identity = self._reader.log.identity(self._reader.first_line)
        self._translator.assume_application(identity.app_id, identity.attempt_id)
        self._reader.on_damage(
            f"{self._reader.log.path}: the application's start is missing; its events have the application id "
            f"'{identity.app_id}', from {identity.source}"
        )
