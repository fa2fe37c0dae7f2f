"""Events of one event log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from spark_events.event import Event
from spark_events.records.event_log.reader import EventLogReader
from spark_events.records.event_log.records import LogRecord
from spark_events.records.types import ApplicationStart
from spark_events.translate.translator import Translator

__all__ = ["replayed"]

_LOG = logging.getLogger(__name__)
#: Maximum number of records that are kept until the application's start has been read. Spark writes the start after
#: the executors that registered before it.
_MOST_EARLY = 10_000


def replayed(reader: EventLogReader, translator: Translator) -> Iterator[list[Event]]:
    """Yield the events of one log, one list per record.

    The times of the records replace the clock. If the log lacks the application's start, the application id is derived
    from the log's file name or content.
    """
    for record in _from_start(reader, translator):
        try:
            yield translator.translate(record)
        except Exception:
            # Catch every error: a defect in the translation may lose one record, but not the other events of the log.
            translator.defects += 1
            _LOG.exception(
                "skipped a record of kind %s: its translation failed; report this defect", type(record).__name__
            )
    if not translator.application_is_over:
        yield translator.flush()


def _from_start(reader: EventLogReader, translator: Translator) -> Iterator[LogRecord]:
    """Yield the application's start, then the records that precede it in the log, then all other records."""
    records = reader.records()
    early: list[LogRecord] = []
    for record in records:
        if type(record) is ApplicationStart:
            early.insert(0, record)
            break
        early.append(record)
        if len(early) == _MOST_EARLY:
            break
    if early and type(early[0]) is not ApplicationStart:
        _identify(reader, translator)
    yield from early
    yield from records


def _identify(reader: EventLogReader, translator: Translator) -> None:
    identity = reader.log.identity(reader.first_line)
    translator.assume_application(identity.app_id, identity.attempt_id)
    reader.on_damage(
        f"{reader.log.path}: the application's start is missing; its events have the application id "
        f"'{identity.app_id}', from {identity.source}"
    )
