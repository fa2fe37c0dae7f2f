"""Flow of records through a driver session: translate records, dispatch their events, acknowledge the records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from spark_events.bridge.acknowledgements import Acknowledgements
from spark_events.bridge.records import Record, Unknown
from spark_events.dispatch.dispatcher import AsyncQueuedDispatcher
from spark_events.dispatch.entries import WEIGHT_BYTES, Entry, weight_for
from spark_events.event import Event
from spark_events.translate.draft import Draft
from spark_events.translate.translator import Translator

#: Maximum number of events in one call to the dispatcher; less than a mailbox's capacity.
_SLICE = 128
#: Upper limit for the weight of an event. An event also weighs at most half a mailbox, so that a later event of higher
#: priority can displace other events.
_MAX_WEIGHT = 1024
#: Pause after an error in one of the translator's timers, in seconds.
_CLOCK_SECONDS = 60.0
_LOG = logging.getLogger(__name__)


class RecordFlow:
    """Translates the records of one driver session, dispatches the events, and acknowledges the records.

    Args:
        translator: makes events from records.
        dispatcher: receives the events.
        acknowledgements: receives the numbers of the translated records.
        capacity: maximum number of entries of a mailbox.

    Attributes:
        last_record: number of the last translated record.
    """

    def __init__(
        self,
        translator: Translator,
        dispatcher: AsyncQueuedDispatcher,
        acknowledgements: Acknowledgements,
        capacity: int,
    ) -> None:
        self.last_record = 0
        self._translator = translator
        self._dispatcher = dispatcher
        self._acknowledgements = acknowledgements
        self._max_weight = max(1, min(_MAX_WEIGHT, capacity // 2))
        self._entries: list[Entry] = []
        self._held: int | None = None
        # The translator's timers are paused until this time, in seconds of ``time.monotonic``.
        self._clock_stands_until = 0.0

    def translate(self, record: Record | Unknown, size: int) -> None:
        """Translate a record of ``size`` bytes; :meth:`dispatch` sends the events."""
        # This method runs for every record.
        translator, number = self._translator, record.seq
        oldest = translator.held_record or number
        weight = 1 if size < WEIGHT_BYTES else min(weight_for(size), self._max_weight)
        try:
            for event in translator.translate(record, oldest):
                self._entries.append(Entry(oldest if oldest < number else number, event, weight))
        except Exception:
            # Catch every error: a defect in the translation must cost at most one record, not all events of the
            # application.
            self._note_defect(record)
        if number:
            self.last_record = number
            self._acknowledgements.translated(number, translator.next_sequence)
        if len(self._entries) >= _SLICE:
            self.dispatch()

    def dispatch(self) -> None:
        """Dispatch the events of the translated records, and acknowledge the records that are settled."""
        entries, self._entries = self._entries, []
        self._dispatch(entries)

    def restore(self, record: object) -> None:
        """Apply a record that the preceding sidecar has already reported."""
        try:
            self._translator.restore(record)
        except Exception:
            self._note_defect(record)

    def emit(self, draft: Draft) -> None:
        """Dispatch an event that no record caused."""
        self.send(lambda: self._translator.emit(draft))

    def send(self, events: Callable[[], Iterable[Event]]) -> None:
        """Dispatch the events that the function returns; no record caused these events."""
        # While an event is held, use the number of its record, because the numbers in a mailbox must not decrease.
        # Calling the function may release the held event.
        record = self._translator.held_record or self.last_record
        self._dispatch([Entry(record, event) for event in events()])

    @property
    def patience(self) -> float | None:
        """Seconds until the translator's next timer; None if no timer is set."""
        deadline = self._translator.next_deadline
        if deadline is None:
            return None
        return max(0.0, deadline / 1000 - time.time(), self._clock_stands_until - time.monotonic())

    def tick(self) -> None:
        """Dispatch the time-driven events that are due."""
        if self.patience == 0:
            self.send(self._timed)

    def _timed(self) -> list[Event]:
        try:
            return self._translator.tick(time.time_ns() // 1_000_000)
        except Exception:
            # Translate records even while the timers are paused.
            self._translator.defects += 1
            self._clock_stands_until = time.monotonic() + _CLOCK_SECONDS
            _LOG.exception("a timer of the translation failed; retrying in %g s; report this", _CLOCK_SECONDS)
            return []

    def acknowledge(self) -> None:
        """Acknowledge the records whose events are settled; thread-safe."""
        self._acknowledgements.complete(self._dispatcher.progress)

    def _dispatch(self, entries: list[Entry]) -> None:
        # A held event's record must not be acknowledged: set a new hold before the record counts as dispatched, and
        # remove the hold only after the event is in the mailboxes.
        held = self._translator.held_record
        if held is not None and self._held is None:
            self._acknowledgements.hold(held)
        self._dispatcher.dispatch(entries, self.last_record)
        self._held = held
        self._acknowledgements.hold(held)
        # Acknowledge here too. Otherwise only reporters would trigger acknowledgements, and a hanging reporter never
        # does.
        self.acknowledge()

    def _note_defect(self, record: object) -> None:
        self._translator.defects += 1
        kind = type(record).__name__
        _LOG.exception("a record of kind %s could not be translated; its events are missing; report this", kind)
