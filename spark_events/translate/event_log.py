"""Events of one event log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from spark_events.event import Event
from spark_events.records.event_log.reader import EventLogReader
from spark_events.records.types import ApplicationStart
from spark_events.translate.translator import Translator

__all__ = ["replayed"]

_LOG = logging.getLogger(__name__)


def replayed(reader: EventLogReader, translator: Translator) -> Iterator[list[Event]]:
    """Yield the events of one log, one list per record.

    The times of the records replace the clock. If the log lacks the application's start, the application id is derived
    from the log's file name or content.
    """
    identified = False
    for record in reader.records():
        if not identified:
            identified = True
            if type(record) is not ApplicationStart:
                _identify(reader, translator)
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


def _identify(reader: EventLogReader, translator: Translator) -> None:
    identity = reader.log.identity(reader.first_line)
    translator.assume_application(identity.app_id, identity.attempt_id)
    reader.on_damage(
        f"{reader.log.path}: the application's start is missing; its events have the application id "
        f"'{identity.app_id}', from {identity.source}"
    )
