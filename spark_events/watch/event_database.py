"""Source of a watcher: a database to which ``database`` reporters write."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from spark_events.errors import SparkEventsError
from spark_events.event import Attributes, Event
from spark_events.event.heartbeat import HEARTBEAT
from spark_events.reporters.database.database_config import DatabaseConfig
from spark_events.reporters.database.database_reporter import DatabaseReporter
from spark_events.reporters.reporter import load_extra
from spark_events.watch.sightings import BATCHES, COMMIT, STATUS_CHANGE, WATCHED, Sighting, Sightings

if TYPE_CHECKING:
    from sqlalchemy import RowMapping, Select


class EventDatabase:
    """Table of events in a database, as the source of a watcher.

    Args:
        config: URL and password.
        application: name of the applications to read; None: all.

    Attributes:
        unread: reasons for parts that could not be read; always empty, because a database is read as a whole.
    """

    def __init__(self, config: DatabaseConfig, application: str | None = None) -> None:
        load_extra("sqlalchemy", "database")
        self._config = config
        self._application = application
        self.unread: Mapping[Path, str] = {}

    def read(self, sightings: Sightings, since: int) -> None:
        """Read the latest event of each name and run; ``since`` is in milliseconds since the epoch.

        Of a run whose clock was once ahead, read the latest event of the past and the latest event of the future.

        Raises:
            SparkEventsError: when the database cannot be read.
        """
        from sqlalchemy import and_, case, func, or_, select

        from spark_events.reporters.database.event_tables import EVENTS

        columns = EVENTS.c
        is_ahead = case((columns.observed_ts_millis > sightings.now, 1), else_=0)
        attempt = func.coalesce(columns.app_attempt_id, "")
        kind = (columns.app_id, attempt, columns.name, columns.status, is_ahead)
        latest = (columns.observed_ts_millis.desc(), columns.sequence.desc())
        ranked = self._chosen(
            select(
                *(columns[field] for field in Event.__struct_fields__),
                func.row_number().over(partition_by=kind, order_by=latest).label("rank"),
                func.count().over(partition_by=kind).label("times"),
                func.min(columns.observed_ts_millis).over(partition_by=kind).label("first"),
                func.max(columns.sequence).over(partition_by=kind).label("highest"),
            ),
            and_(
                columns.name.in_(WATCHED),
                or_(columns.name != STATUS_CHANGE, columns.entity == "application"),
                columns.observed_ts_millis >= since,
            ),
        ).subquery()
        for row in self._rows(select(ranked).where(ranked.c.rank == 1)):
            fields = {field: row[field] for field in Event.__struct_fields__}
            fields |= {"attributes": Attributes(row["attributes"]), "sequence": row["highest"]}
            sightings.see(msgspec.convert(fields, Event), times=row["times"], first=row["first"])

    def read_commits(self, sightings: Sightings, since: int) -> None:
        """Read the times of the first and of the latest commit, or heartbeat after commits, of each run since a time.

        Raises:
            SparkEventsError: when the database cannot be read.
        """
        from sqlalchemy import and_, func, or_, select

        from spark_events.reporters.database.event_tables import EVENTS

        columns = EVENTS.c
        run = (columns.app_id, func.coalesce(columns.app_attempt_id, ""))
        times = (func.min(columns.observed_ts_millis), func.max(columns.observed_ts_millis))
        has_commits = and_(columns.name == HEARTBEAT, columns.attributes[BATCHES].as_integer() > 0)
        chosen = and_(or_(columns.name == COMMIT, has_commits), columns.observed_ts_millis >= since)
        names = ("id", "attempt", "first", "latest")
        wanted = [column.label(name) for name, column in zip(names, (*run, *times), strict=True)]
        for row in self._rows(self._chosen(select(*wanted), chosen).group_by(*run)):
            sightings.succeed((str(row["id"]), row["attempt"]), row["first"], row["latest"])

    def hides(self, _: Sighting) -> bool:
        """Return False, because a database is read as a whole."""
        return False

    def record(self, event: Event) -> None:
        """Store a LOST event, so that later checks do not report the run again.

        Raises:
            SparkEventsError: when the database cannot be written.
        """
        reporter = DatabaseReporter(self._config)
        try:
            reporter.open()
            reporter.report([event])
        finally:
            reporter.close()

    def _chosen(self, wanted: Select[Any], condition: Any) -> Select[Any]:
        from spark_events.reporters.database.event_rows import shortened
        from spark_events.reporters.database.event_tables import EVENTS

        chosen = wanted.where(condition)
        return chosen if self._application is None else chosen.where(EVENTS.c.app_name == shortened(self._application))

    def _rows(self, query: Select[Any]) -> Sequence[RowMapping]:
        from spark_events.reporters.database import engines, event_tables

        engine = engines.create(self._config)
        where = engines.where(engine.url)
        path = engine.url.database or ""
        if engine.dialect.name == "sqlite" and not path.startswith("file:") and not os.path.exists(path):
            raise SparkEventsError(f"cannot read {where}: no such file")
        try:
            with engine.connect() as connection:
                return connection.execute(query).mappings().all()
        except Exception as error:
            raise SparkEventsError(f"cannot read {where}: {event_tables.reason(error)}") from None
        finally:
            engine.dispose()
