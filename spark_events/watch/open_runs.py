"""Runs of this application in a database that have no end event when this run starts.

A database does not show whether such a run has died, or is still running under the same name. Therefore a run is LOST
when it is silent, which may be up to two intervals after the start of the next run, or when the start of this run
proves that it is over.

The folder of a ``file`` reporter is not searched, because it may be on another machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from spark_events.clocks import Clocks, UnjumpedWall
from spark_events.errors import SparkEventsError
from spark_events.event import AttributeValue
from spark_events.records.types import ApplicationStart
from spark_events.watch.lost import key_of
from spark_events.watch.mark_files import identity_of
from spark_events.watch.sightings import Sighting, Sightings
from spark_events.watch.silence import Observed, Silence
from spark_events.watch.watcher import Source, WatchConfig

if TYPE_CHECKING:
    from spark_events.reporters.database.database_config import DatabaseConfig


class Found(NamedTuple):
    """Lost runs, and the seconds until the next look; None if no open run is left."""

    lost: Sequence[Sighting]
    pause: float | None


class OpenRuns:
    """Open runs of one application in one database.

    Args:
        source: the events of all applications of this name.
        start: identity of this run.
        scope: this run's attributes and the key of its incident.
        is_unique: whether at most one application of this name runs at any time.
        clocks: the clocks of this process.
        config: the settings of the watch.
    """

    def __init__(
        self,
        source: Source,
        start: ApplicationStart,
        scope: Mapping[str, AttributeValue],
        is_unique: bool,
        clocks: Clocks,
        config: WatchConfig,
    ) -> None:
        self._source = source
        self._own = identity_of(start)
        self._key = key_of(scope)
        self._is_unique = is_unique
        self._wall = UnjumpedWall(clocks)
        self._since = round(config.since * 1000)
        self._silence = Silence(config.intervals, clocks, Observed())
        self.sightings = Sightings()
        # The runs that were open when the database was first read; a run that starts later is not a predecessor.
        self._open: set[tuple[str, str]] | None = None
        # Whether the first look was possible at once. Later, the start of this run does not prove that others are over.
        self._is_prompt = True

    def look(self) -> Found:
        """Read the database once.

        Raises:
            SparkEventsError: when the database cannot be read.
        """
        now = self.sightings.now = self._wall.millis()
        try:
            self._source.read(self.sightings, now - self._since)
        except SparkEventsError:
            self._silence.fail()
            self._is_prompt = self._open is not None and self._is_prompt
            raise
        self._silence.observe(self.sightings)
        runs = {one.identity: one for one in self.sightings if one.runs and self._is_other(one)}
        if self._open is None:
            self._open = set(runs)
        runs = {identity: one for identity, one in runs.items() if identity in self._open}
        lost = [one for one in runs.values() if self._is_over(one) or self._is_silent(one)]
        if lost:
            self._source.read_commits(self.sightings, min(one.last_seen - one.interval for one in lost))
        waits = [self._silence.left(one) for one in runs.values() if one.is_watched and one not in lost]
        return Found(lost, min(waits, default=None))

    def _is_other(self, one: Sighting) -> bool:
        return one.identity != self._own and one.key == self._key

    def _is_over(self, one: Sighting) -> bool:
        """Return whether the start of this run proves that the other run is over."""
        return self._is_prompt and (self._is_unique or one.identity[0] == self._own[0])

    def _is_silent(self, one: Sighting) -> bool:
        return one.is_watched and self._silence.left(one) < 0


def database(config: DatabaseConfig, start: ApplicationStart) -> Source:
    """Return the database as a source, with only the events of this application's name."""
    # Import this module here, because it imports SQLAlchemy, which is needed only for a database reporter.
    from spark_events.watch.event_database import EventDatabase

    return EventDatabase(config, start.app_name)
