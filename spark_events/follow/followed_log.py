"""One log that grows: its reader and translator, and how long it has not grown."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from spark_events.event import Event
from spark_events.records.event_log.growing_log import GrowingLogReader
from spark_events.records.event_log.log_files import EventLog, Position
from spark_events.translate.event_log import LogTranslation
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

_LISTENER = "io.sparkevents."
_LISTENER_SETTINGS = ("spark.extraListeners", "spark.plugins")


class FollowedLog:
    """Reader of a growing log, which emits each event once.

    Args:
        log: the log.
        config: settings of the translation.
        delivered: the position up to which an earlier process has delivered the events.
        note: receives problems of the log.

    Attributes:
        last_at: time of the newest record, in milliseconds since the epoch; 0 before the first.
    """

    def __init__(
        self, log: EventLog, config: TranslateConfig, delivered: Position, note: Callable[[str], None]
    ) -> None:
        self._reader = GrowingLogReader(log, note, config.summary.interval)
        self._translator = Translator(config)
        self._translation = LogTranslation(self._reader, self._translator)
        self._delivered = delivered
        self._first_at = 0
        self._moments = 0
        self.last_at = 0

    @property
    def position(self) -> Position:
        """How far the log has been read."""
        return self._reader.position

    @property
    def unreadable(self) -> int:
        """Number of times that a part could not be read."""
        return self._reader.unreadable

    @property
    def is_over(self) -> bool:
        """Whether the log has the application's end."""
        return self._translator.application_is_over

    @property
    def reports_live(self) -> bool:
        """Whether the application's own listener reports the same events."""
        settings = self._translation.start.settings if self._translation.start is not None else {}
        return any(_LISTENER in settings.get(name, "") for name in _LISTENER_SETTINGS)

    @property
    def title(self) -> str:
        """Name and id of the application, or the name of the log."""
        start = self._translation.start
        return f"{start.app_name} ({start.app_id})" if start is not None else self._reader.log.path.name

    @property
    def usual_interval(self) -> float:
        """Mean time between two moments at which the application wrote records, in seconds."""
        return (self.last_at - self._first_at) / 1000 / max(1, self._moments - 1)

    def new_events(self, log: EventLog) -> Iterator[list[Event]]:
        """Yield the events that are not delivered yet; first rebuild the state from the delivered part of the log."""
        if self.position < self._delivered:
            unreadable = self._reader.unreadable
            for _ in self._translated(log, self._delivered):
                pass
            if self._reader.unreadable > unreadable:
                return
            # Spark may have deleted the part, because a compacted one replaces it.
            self._reader.position = max(self.position, self._delivered)
        yield from self._translated(log, None)

    def lost(self, how: str) -> list[Event]:
        """Return the event that reports the application as LOST."""
        return self._translator.driver_lost(self.last_at, orderly=False, how=how)

    def _translated(self, log: EventLog, until: Position | None) -> Iterator[list[Event]]:
        for record in self._reader.new_records(log, until):
            if record.at > self.last_at:
                self._first_at = self._first_at or record.at
                self.last_at = record.at
                self._moments += 1
            yield from self._translation.take(record)
