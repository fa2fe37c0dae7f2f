"""Virtual clocks, and the events of applications that a watcher reads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from fakes import START

from spark_events import Event, Severity
from spark_events.clocks import Clocks
from spark_events.event import Attributes

#: Interval of the heartbeats in these tests, in seconds.
INTERVAL = 60
_IDS = itertools.count()


class VirtualClocks:
    """Clocks of one process: time passes for both, and the wall clock can jump.

    Args:
        wall: wall clock in seconds since the epoch.
    """

    def __init__(self, wall: float = START // 1000) -> None:
        self.wall = wall
        self.monotonic: float = 1_000

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    @property
    def clocks(self) -> Clocks:
        return Clocks(lambda: self.wall, lambda: self.monotonic)


class Life:
    """One run of an application, which numbers its events.

    Args:
        app_id: id of the run.
        name: name of the application.
        wall: returns the driver's clock, in seconds since the epoch.

    Attributes:
        offset: error of the driver's clock, in seconds.
    """

    def __init__(self, app_id: str, name: str, wall: Callable[[], float]) -> None:
        self.app_id = app_id
        self.offset: float = 0
        self._about = {"spark.app.id": app_id, "spark.app.name": name}
        self._wall = wall
        self._sequence = 0

    def start(self) -> Event:
        return self._status("RUNNING")

    def end(self, status: str = "FINISHED") -> Event:
        return self._status(status)

    def beat(self, about: Mapping[str, int | str] | None = None) -> Event:
        interval = {"spark.heartbeat.interval_ms": INTERVAL * 1000}
        return self._event("HeartbeatEvent", "spark.application", **interval, **(about or {}))

    def commit(self) -> Event:
        return self._event("BatchCommitEvent", "spark.streaming.query", **{"spark.streaming.query.name": "clicks"})

    def _status(self, status: str) -> Event:
        about = {"spark.entity": "application", "spark.status.new": status}
        return self._event("JobStatusChangeEvent", "spark.application", **about)

    def _event(self, event_name: str, scope: str, **about: int | str) -> Event:
        self._sequence += 1
        return Event(
            name=event_name,
            class_scope=scope,
            body=f"{event_name} of {self.app_id}",
            severity=Severity.INFO,
            observed_ts_millis=round((self._wall() + self.offset) * 1000),
            event_id=f"id-{next(_IDS)}",
            sequence=self._sequence,
            attributes=Attributes({**self._about, **about}),
        )


class ListDestination:
    """Destination of LOST events that keeps them in a list."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def take(self, events: Sequence[Event]) -> None:
        self.events.extend(events)

    def close(self) -> int:
        return 0

    def lost(self) -> list[str]:
        """Return the ids of the runs that were reported."""
        return [str(event.attributes["spark.app.id"]) for event in self.events]
