"""What dispatches: the way of a driver session's events to the reporters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_events.dispatch.dispatcher import Dispatcher
from spark_events.dispatch.entries import Entry
from spark_events.event import Event
from spark_events.sidecar.acknowledgements import MessageWriter
from spark_events.translate.draft import Draft
from spark_events.translate.translator import Translator


class EventOutlet:
    """Dispatch events with the number of their record, and let their records be acknowledged.

    Only the driver session's thread may dispatch.

    Args:
        translator: numbers the events, and holds the memory for the driver.
        dispatcher: passes events to the reporters.
        messages: sends the memory to the driver.
        acknowledge: acknowledges the records whose events are settled.

    Attributes:
        seq: number of the last translated record.
    """

    def __init__(
        self,
        translator: Translator,
        dispatcher: Dispatcher,
        messages: MessageWriter,
        acknowledge: Callable[[], None],
    ) -> None:
        self._translator = translator
        self._dispatcher = dispatcher
        self._messages = messages
        self._acknowledge = acknowledge
        self.seq = 0

    @property
    def settled_seq(self) -> int:
        """Number of the last record up to which all events are settled or on disk."""
        return self._dispatcher.progress().settled_seq

    def dispatch(self, entries: Sequence[Entry]) -> None:
        """Dispatch the events of the records up to ``seq``; without events, note only that they are translated."""
        memory = self._translator.take_memory()
        if memory is not None:
            # Send the memory before the acknowledgement of the records that caused it.
            self._messages.send("remember", memory=memory)
        self._dispatcher.dispatch(entries, self.seq)
        # Acknowledge here too. Otherwise only reporters would trigger acknowledgements, and a hanging reporter never
        # does.
        self._acknowledge()

    def report(self, events: Sequence[Event]) -> None:
        """Dispatch events that have no record."""
        self.dispatch([Entry(self.seq, event) for event in events])

    def emit(self, draft: Draft) -> None:
        """Dispatch an event about the reporters."""
        self.report([self._translator.emit(draft)])
