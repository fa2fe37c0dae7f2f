"""State of each application: last heartbeat and termination, read from stored events."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from spark_events.bridge.records import ApplicationStart
from spark_events.event import Attributes, Event
from spark_events.event.heartbeat import HEARTBEAT, INTERVAL
from spark_events.translate.translator import Translator

STATUS_CHANGE = "JobStatusChangeEvent"
_REPORT = "DispatcherReportEvent"
#: Names of the events that a watcher needs.
WATCHED = (STATUS_CHANGE, HEARTBEAT, _REPORT)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclasses.dataclass(slots=True)
class Sighting:
    """State of one application, which is identified by id and attempt.

    Times are in milliseconds since the epoch, 0 if unknown.

    Attributes:
        attributes: attributes of the application, which the LOST event contains, from a heartbeat or the start; if
            neither is known, from another event.
        started: time of the start.
        last_seen: time of the latest start or heartbeat; if neither is known, of the end event.
        interval: time between two heartbeats, according to the latest heartbeat.
        sequence: highest sequence number.
        reported: time of the latest final report, after which the sidecar sends no heartbeats.
        status: the application's final status; empty until the application is known to have ended.
    """

    attributes: Attributes = dataclasses.field(default_factory=Attributes)
    started: int = 0
    last_seen: int = 0
    interval: int = 0
    sequence: int = 0
    reported: int = 0
    status: str = ""

    @property
    def name(self) -> str:
        """Name of the application, or its id if the events do not contain the name."""
        return self._text("spark.app.name") or self._text("spark.app.id")

    @property
    def is_expected(self) -> bool:
        """Whether heartbeats are expected.

        None are expected if the application is known to have ended, or if a final report follows the latest heartbeat.
        """
        return not self.status and self.last_seen > self.reported

    def is_overdue(self, now: int, intervals: float) -> bool:
        """Return whether heartbeats are expected and the latest heartbeat is older than ``intervals`` intervals."""
        return self.is_expected and self.interval > 0 and now - self.last_seen > intervals * self.interval

    def lost(self) -> Event:
        """Return the LOST event. Two watchers return equal events, because only stored events determine it."""
        start = ApplicationStart(
            app_id=self._text("spark.app.id"),
            app_name=self.name,
            attempt_id=self._text("spark.app.attempt_id") or None,
            user=self._text("spark.user"),
            time=self.started,
            spark_version=self._text("spark.version"),
            host=self._text("host.name"),
        )
        since = (_EPOCH + timedelta(milliseconds=self.last_seen)).strftime("%Y-%m-%d %H:%M:%S UTC")
        what = f"no heartbeat since {since}, expected every {self.interval / 1000:g} s"
        if not self.interval:
            what = f"it started at {since}, and its driver died without reporting its end"
        return lost_event(start, self.last_seen, self.sequence + 1, what)

    def _text(self, key: str) -> str:
        value = self.attributes.get(key)
        return "" if value is None else str(value)


class Sightings:
    """State of all applications in a source. Events may be added in any order, and more than once."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], Sighting] = {}

    def __iter__(self) -> Iterator[Sighting]:
        return iter(self._all.values())

    def see(self, event: Event) -> None:
        """Update the state of an application from a status change, heartbeat or final report; ignore other events."""
        about = event.attributes
        if "spark.app.id" not in about:
            return
        is_status = event.name == STATUS_CHANGE and about.get("spark.entity") == "application"
        if not is_status and event.name not in (HEARTBEAT, _REPORT):
            return
        key = str(about["spark.app.id"]), str(about.get("spark.app.attempt_id") or "")
        found = self._all.setdefault(key, Sighting())
        at = event.observed_ts_millis
        found.sequence = max(found.sequence, event.sequence)
        found.attributes = found.attributes or about
        if event.name == _REPORT:
            found.reported = max(found.reported, at)
            return
        status = str(about.get("spark.status.new"))
        if is_status and status != "RUNNING":
            found.status = status
            found.last_seen = found.last_seen or at
        elif is_status:
            found.started = at
        if at >= found.last_seen and not found.status:
            found.last_seen, found.attributes = at, about
            found.interval = _number(about.get(INTERVAL)) or found.interval


def _number(value: object) -> int:
    return value if type(value) is int else 0


def lost_event(start: ApplicationStart, at: int, sequence: int, how: str) -> Event:
    """Return the LOST event, with the same ``event_id`` as the sidecar's own event.

    Args:
        start: identity of the application.
        at: the time at which the application was last known to run, in milliseconds since the epoch.
        sequence: sequence number of the event, one more than the application's last known number.
        how: how the loss was detected, as the last words of a sentence.
    """
    # Use the sidecar's translator, which produces the same key, attributes and severity.
    translator = Translator(first_sequence=sequence)
    translator.restore(start)
    (event,) = translator.driver_lost(at, orderly=False, how=how)
    return event
