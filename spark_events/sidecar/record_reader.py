"""What reads: from lines of the driver to events."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from spark_events._version import __version__
from spark_events.dispatch.entries import WEIGHT_BYTES, Entry, weight_for
from spark_events.records.types import (
    ApplicationEnd,
    ApplicationStart,
    Goodbye,
    Inspection,
    JvmShutdown,
    Restored,
    Unknown,
    decode,
)
from spark_events.sidecar.acknowledgements import Acknowledgements
from spark_events.sidecar.outlet import EventOutlet
from spark_events.translate.translator import Translator

#: Maximum number of events in one call to the dispatcher; at most a quarter of a mailbox's capacity.
_SLICE = 512
#: Upper limit for the weight of an event. An event also weighs at most half a mailbox, so that a later event of higher
#: priority can displace other events.
_MAX_WEIGHT = 1024
#: Types of records that the driver session itself handles.
_SPECIAL = frozenset({ApplicationStart, ApplicationEnd, Inspection, Goodbye, Restored, JvmShutdown, Unknown})
#: Types of records that the driver session handles and that are then translated and acknowledged.
_Numbered: TypeAlias = ApplicationStart | ApplicationEnd | Inspection | JvmShutdown | Unknown
#: Adds data about the driver's Python process to a record.
Amend: TypeAlias = Callable[
    [ApplicationStart | ApplicationEnd | Inspection], ApplicationStart | ApplicationEnd | Inspection
]
_LOG = logging.getLogger(__name__)


class RecordReader:
    """Decode lines to records, translate them, and pass their events on.

    Args:
        translator: creates the events.
        outlet: receives the events.
        acknowledgements: learns the number of the next event after each record, before its events are dispatched.
        queue_size: capacity of the driver's queue and of the mailboxes.
        amend: adds data about the driver's Python process to inspection, application-start and application-end records.

    Attributes:
        started: the record of the application's start, until :meth:`take_start`.
        goodbye: the driver's last message; None before it.
        jvm_is_going_down: whether the driver's JVM has begun to shut down.
        unknown: number of records of each unknown kind.
    """

    def __init__(
        self,
        translator: Translator,
        outlet: EventOutlet,
        acknowledgements: Acknowledgements,
        queue_size: int,
        amend: Amend,
    ) -> None:
        self._translator = translator
        self._outlet = outlet
        self._acknowledgements = acknowledgements
        self._amend = amend
        self._max_weight = max(1, min(_MAX_WEIGHT, queue_size // 2))
        self._slice = max(1, min(_SLICE, queue_size // 4))
        self.started: ApplicationStart | None = None
        self.goodbye: Goodbye | None = None
        self.jvm_is_going_down = False
        self.unknown: Counter[str] = Counter()

    def read(self, lines: Sequence[bytes]) -> None:
        """Translate the records of the lines, and dispatch their events."""
        # This loop runs for every record, so look up its functions only once.
        outlet, translate = self._outlet, self._translator.translate
        entries: list[Entry] = []
        now, most = time.monotonic_ns(), self._slice
        for line in lines:
            record = decode(line)
            if type(record) in _SPECIAL:
                special = self._handle(record)
                if special is None:
                    continue
                record = special
            seq = record.seq
            weight = 1 if len(line) < WEIGHT_BYTES else min(weight_for(len(line)), self._max_weight)
            try:
                for event in translate(record):
                    entries.append(Entry(seq, event, weight, now))
            except Exception:
                # Catch every error: a defect in the translation must cost at most one record, not all events of the
                # application.
                self._defect(record)
            if seq:
                outlet.seq = seq
            if len(entries) >= most:
                self._dispatch(entries)
                entries = []
        if lines:
            self._dispatch(entries)

    def _dispatch(self, entries: Sequence[Entry]) -> None:
        if seq := self._outlet.seq:
            self._acknowledgements.translated(seq, self._translator.next_sequence, entries)
        self._outlet.dispatch(entries)

    def take_start(self) -> ApplicationStart | None:
        """Return the record of the application's start, once the translator knows the application."""
        if self.started is None or not self._translator.knows_application:
            return None
        started, self.started = self.started, None
        return started

    def _handle(self, record: object) -> _Numbered | None:
        """Handle a record about the driver session; return the record to translate and acknowledge, or None."""
        if isinstance(record, Goodbye):
            self.goodbye = record
            return None
        if isinstance(record, Restored):
            self._restore(record)
            return None
        if isinstance(record, (ApplicationStart, ApplicationEnd, Inspection)):
            record = self._amend(record)
            if isinstance(record, ApplicationStart):
                self.started = record
            return record
        if isinstance(record, JvmShutdown):
            self.jvm_is_going_down = True
            return record
        assert isinstance(record, Unknown)
        return self._skip(record)

    def _restore(self, restored: Restored) -> None:
        record = decode(restored.record)
        if isinstance(record, ApplicationStart):
            self.started = record = cast(ApplicationStart, self._amend(record))
        try:
            self._translator.restore(record)
        except Exception:
            self._defect(record)

    def _skip(self, record: Unknown) -> Unknown:
        """Count an unknown record, and log each unknown kind once."""
        if record.kind not in self.unknown:
            _LOG.warning("skipping records of kind %r, which spark_events %s does not know", record.kind, __version__)
        self.unknown[record.kind] += 1
        # Record numbers are consecutive, so an unreadable record has the next number.
        return record if record.seq else Unknown(seq=self._outlet.seq + 1, kind=record.kind)

    def _defect(self, record: object) -> None:
        self._translator.defects += 1
        kind = type(record).__name__
        _LOG.exception("a record of kind %s could not be translated; its events are missing; report this", kind)
