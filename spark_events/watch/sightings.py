"""What stored events show about each run of an application: signs of life, end, success.

All times are those of the drivers' clocks, in milliseconds since the epoch. :mod:`silence` decides how long a run has
been silent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from spark_events.event import Attributes, Event
from spark_events.event.heartbeat import HEARTBEAT, INTERVAL
from spark_events.records.types import ApplicationStart
from spark_events.watch.lost import key_of, lost_event, scope_of, utc

STATUS_CHANGE = "JobStatusChangeEvent"
COMMIT = "BatchCommitEvent"
_REPORT = "DispatcherReportEvent"
#: Names of the events from which runs are known. Commits are read separately, because they are numerous.
WATCHED = (STATUS_CHANGE, HEARTBEAT, _REPORT)
#: Attribute of a heartbeat with the number of commits since the previous heartbeat.
BATCHES = "spark.heartbeat.batches"
_NEVER = -1, -1


@dataclasses.dataclass(slots=True)
class Sighting:
    """One run of an application, which is identified by id and attempt.

    Attributes:
        attributes: the application's attributes in the latest sign of life, otherwise in another event.
        start: time of the start event; 0 if unknown.
        first: time of the first event.
        last_seen: time of the latest sign of life, without those from the future; if there is none, of the end event.
        ahead: number of heartbeats from the future after ``last_seen``.
        sign: highest sequence number and highest time among the signs of life; grows with each new one.
        interval: time between two heartbeats, according to the latest heartbeat.
        sequence: highest sequence number.
        reported: sequence number and time of the final report, after which the sidecar sends no heartbeats.
        status: the run's final status; empty until the run is known to have ended.
        success: times of the first and of the latest commit or successful end; None if there is none.
        place: where the source stores the latest sign of life.
    """

    attributes: Attributes = dataclasses.field(default_factory=Attributes)
    start: int = 0
    first: int = 0
    last_seen: int = 0
    ahead: int = 0
    sign: tuple[int, int] = _NEVER
    interval: int = 0
    sequence: int = 0
    reported: tuple[int, int] = _NEVER
    status: str = ""
    success: tuple[int, int] | None = None
    place: str = ""

    @property
    def name(self) -> str:
        """Name of the application, or its id if the events do not contain the name."""
        return self._text("spark.app.name") or self._text("spark.app.id")

    @property
    def identity(self) -> tuple[str, str]:
        """Id and attempt."""
        return self._text("spark.app.id"), self._text("spark.app.attempt_id")

    @property
    def key(self) -> str:
        """Key of the application's incident, the same for all runs of an application."""
        return key_of(self.attributes)

    @property
    def started(self) -> int:
        """Time of the start, or of the first event if the start is unknown."""
        return self.start or self.first

    @property
    def runs(self) -> bool:
        """Whether the run has shown life, and neither its end nor its final report is known."""
        return not self.status and self.sign > self.reported

    @property
    def is_watched(self) -> bool:
        """Whether silence would show that the run is lost."""
        return self.runs and self.interval > 0

    def age(self, now: int) -> int:
        """Return for how long the run has been silent, if its clock and ``now`` agree; milliseconds, never negative.

        The time of a heartbeat from the future is wrong, but the heartbeat shows that the run lived one interval
        longer.
        """
        return max(0, now - self.last_seen - self.ahead * self.interval) if self.last_seen else 0

    def lost(self, later: Sighting | None = None) -> Event:
        """Return the LOST event. Two watchers return equal events, because only stored events determine it.

        Args:
            later: a later run of the application that has shown success since.
        """
        app_id, attempt = self.identity
        start = ApplicationStart(
            app_id=app_id,
            app_name=self.name,
            attempt_id=attempt or None,
            user=self._text("spark.user"),
            time=self.started,
            spark_version=self._text("spark.version"),
            host=self._text("host.name"),
        )
        at = self.last_seen or max(0, self.sign[1])
        how = f"no heartbeat since {utc(at)}, expected every {self.interval / 1000:g} s"
        if not self.interval:
            how = f"it started at {utc(at)}, and its driver died without reporting its end"
        return lost_event(start, self.attributes, at, self.sequence + 1, how, "" if later is None else later._works())

    def _works(self) -> str:
        since = utc(self.success[0]) if self.success else ""
        return f"its next run {self.identity[0]} works since {since}"

    def _text(self, key: str) -> str:
        value = self.attributes.get(key)
        return "" if value is None else str(value)


class Sightings:
    """All runs in a source. Events may be added in any order, and more than once.

    Attributes:
        now: wall clock of this machine; a heartbeat that is more than one interval ahead of it is from the future.
    """

    def __init__(self) -> None:
        self.now = 0
        self._all: dict[tuple[str, str], Sighting] = {}

    def __iter__(self) -> Iterator[Sighting]:
        return iter(self._all.values())

    def see(self, event: Event, *, place: str = "", times: int = 1, first: int | None = None) -> None:
        """Add a status change, heartbeat or final report of an application; ignore other events.

        Args:
            event: the event.
            place: where the source stores the event.
            times: number of events that this event stands for, because the source returns only the latest.
            first: time of the first of these events.
        """
        about, at = event.attributes, event.observed_ts_millis
        is_status = event.name == STATUS_CHANGE and about.get("spark.entity") == "application"
        if "spark.app.id" not in about or not (is_status or event.name in (HEARTBEAT, _REPORT)):
            return
        key = str(about["spark.app.id"]), str(about.get("spark.app.attempt_id") or "")
        found = self._all.setdefault(key, Sighting())
        found.attributes = found.attributes or scope_of(event)
        first = at if first is None else first
        found.first = min(found.first or first, first)
        status = str(about.get("spark.status.new")) if is_status else ""
        if status == "RUNNING":
            found.start = at
        if event.name == _REPORT:
            found.reported = max(found.reported, (event.sequence, at))
        elif status in ("", "RUNNING"):
            self._see_life(found, event, place, times)
        else:
            found.status = status
            found.last_seen = found.last_seen or at
        if status == "FINISHED" or (event.name == HEARTBEAT and _number(about.get(BATCHES))):
            _succeed(found, at, at)
        found.sequence = max(found.sequence, event.sequence)

    def _see_life(self, found: Sighting, event: Event, place: str, times: int) -> None:
        at, sequence = event.observed_ts_millis, event.sequence
        is_beat = event.name == HEARTBEAT
        interval = _number(event.attributes.get(INTERVAL)) or found.interval
        is_newest = sequence >= found.sign[0]
        if at > self.now + interval:
            found.ahead += times if is_newest and is_beat else 0
            is_latest = not found.last_seen and at >= found.sign[1]
        else:
            found.ahead = 0 if is_newest else found.ahead
            # A heartbeat may have the same time as the start, and shows more.
            is_latest = at > found.last_seen or (at == found.last_seen and (is_beat or not found.interval))
            found.last_seen = max(found.last_seen, at)
        if is_latest:
            found.attributes, found.interval, found.place = scope_of(event), interval, place
        found.sign = max(found.sign[0], sequence), max(found.sign[1], at)

    def succeed(self, identity: tuple[str, str], first: int, latest: int) -> None:
        """Add the times of the first and of the latest commit that were read of a run; ignore unknown runs."""
        found = self._all.get(identity)
        if found is not None:
            _succeed(found, first, latest)

    def works_since(self, lost: Sighting) -> Sighting | None:
        """Return the next run of the same application if it has shown success since the lost run; None otherwise.

        Both runs have clocks of their own, so a success also counts up to one interval before the last sign of life.
        """
        later = [
            one
            for one in self
            if one.success is not None
            and one.started > lost.started
            and one.success[1] > lost.last_seen - lost.interval
            and one.key == lost.key
        ]
        return min(later, key=lambda one: one.started, default=None)


def _succeed(found: Sighting, first: int, latest: int) -> None:
    known = found.success or (first, latest)
    found.success = min(known[0], first), max(known[1], latest)


def _number(value: object) -> int:
    return value if type(value) is int else 0
