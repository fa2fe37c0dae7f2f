"""One check of a source: find lost runs, report each of them once, and tell what could not be watched."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from spark_events.clocks import SYSTEM, Clocks, UnjumpedWall
from spark_events.errors import SparkEventsError
from spark_events.event import Event
from spark_events.watch.remembered import Memory
from spark_events.watch.sightings import Sighting, Sightings
from spark_events.watch.silence import Silence


class Source(Protocol):
    """Store of applications' events, to which the watcher adds the events that it reports."""

    @property
    def unread(self) -> Mapping[Path, str]:
        """Reasons for the parts that the last check could not read."""

    def read(self, sightings: Sightings, since: int) -> None:
        """Read the signs of life and the ends of runs."""

    def read_commits(self, sightings: Sightings, since: int) -> None:
        """Read the commits since a time."""

    def hides(self, one: Sighting) -> bool:
        """Return whether newer signs of life of a run may be in an unread part."""

    def record(self, event: Event) -> None:
        """Store a LOST event."""


class Destination(Protocol):
    """Receiver of the LOST events."""

    def take(self, events: Sequence[Event]) -> None:
        """Accept events."""

    def close(self) -> int:
        """Deliver the events; return the number of events that were not delivered."""


@dataclasses.dataclass(frozen=True, slots=True)
class WatchConfig:
    """Settings of a watcher.

    Attributes:
        intervals: number of intervals without a heartbeat after which a run is LOST.
        since: seconds of history to read.
    """

    intervals: float = 2
    since: float = 7 * 86_400


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """Result of one check.

    Attributes:
        undelivered: number of LOST events that were not delivered; the next check reports them again.
        unrecorded: reason why a delivered event could not be stored in the source; None if all were stored.
        unread: reasons for the parts of the source that could not be read.
        unwatched: running applications without heartbeats.
    """

    undelivered: int
    unrecorded: str | None
    unread: Mapping[Path, str]
    unwatched: Sequence[Sighting]


class Watcher:
    """Check a source for lost runs, and report them.

    Args:
        source: the stored events.
        open_destination: opens the destination of the events; called only if a run is lost.
        config: the settings.
        clocks: the clocks of this process.
        memory: what earlier watchers of this source remember; None: nothing.
    """

    def __init__(
        self,
        source: Source,
        open_destination: Callable[[], Destination],
        config: WatchConfig,
        clocks: Clocks = SYSTEM,
        memory: Memory | None = None,
    ) -> None:
        self._source = source
        self._open_destination = open_destination
        self._config = config
        self._wall = UnjumpedWall(clocks)
        self._memory = memory or Memory(None)
        self._remembered = self._memory.load()
        self._silence = Silence(config.intervals, clocks, self._remembered.observed)
        self.sightings = Sightings()

    def look(self) -> Check:
        """Check the source once.

        Raises:
            SparkEventsError: when the source cannot be read, so no run is reported.
        """
        # A wall clock that is set ahead must make no run look silent, and no event too old to read.
        now = self.sightings.now = self._wall.millis()
        try:
            self._source.read(self.sightings, now - round(self._config.since * 1000))
        except SparkEventsError:
            self._silence.fail()
            self._memory.save(self._remembered)
            raise
        self._silence.observe(self.sightings, is_complete=not self._source.unread)
        try:
            undelivered, unrecorded = self._report([one for one in self.sightings if self._is_lost(one)])
        finally:
            self._memory.save(self._remembered)
        unwatched = [one for one in self.sightings if one.runs and not one.is_watched]
        return Check(undelivered, unrecorded, self._source.unread, unwatched)

    def _is_lost(self, one: Sighting) -> bool:
        return one.is_watched and self._silence.left(one) < 0 and not self._source.hides(one)

    def _report(self, lost: Sequence[Sighting]) -> tuple[int, str | None]:
        """Deliver and record the LOST events that were not delivered before."""
        reported, unrecorded = self._remembered.reported, None
        if lost:
            self._source.read_commits(self.sightings, min(one.last_seen - one.interval for one in lost))
        events = [one.lost(self.sightings.works_since(one)) for one in lost]
        new = [event for event in events if event.event_id not in reported]
        if new:
            destination = self._open_destination()
            destination.take(new)
            if undelivered := destination.close():
                # Do not note these events as reported: the next check reports them again, with the same event ids.
                return undelivered, None
        self._remembered.reported = [event.event_id for event in events]
        if new:
            # Remember the delivery before the source records it, in case this process is killed in between.
            self._memory.save(self._remembered)
        for event in events:
            try:
                self._source.record(event)
                self.sightings.see(event)
            except SparkEventsError as error:
                unrecorded = str(error)
        return 0, unrecorded
