"""Source of a watcher: a database to which ``database`` reporters write."""

from __future__ import annotations

import os

import msgspec

from spark_events.errors import SparkEventsError
from spark_events.event import Attributes, Event
from spark_events.reporters.database.config import DatabaseConfig
from spark_events.reporters.database.reporter import DatabaseReporter
from spark_events.reporters.reporter import load_extra
from spark_events.watch.sightings import STATUS_CHANGE, WATCHED, Sightings


class EventDatabase:
    """Table of events in a database, as the source of a watcher.

    Args:
        config: URL and password.
        application: name of the applications to read; None: all.
    """

    def __init__(self, config: DatabaseConfig, application: str | None = None) -> None:
        load_extra("sqlalchemy", "database")
        self._config = config
        self._application = application

    def read(self, sightings: Sightings, since: int) -> None:
        """Read the latest event of each name and application; ``since`` is in milliseconds since the epoch.

        Raises:
            SparkEventsError: when the database cannot be read.
        """
        from sqlalchemy import and_, func, or_, select

        from spark_events.reporters.database import engines, schema
        from spark_events.reporters.database.rows import shortened

        engine = engines.create(self._config)
        columns = schema.EVENTS.c
        kind = (columns.app_id, func.coalesce(columns.app_attempt_id, ""), columns.name, columns.status)
        latest = (columns.observed_ts_millis.desc(), columns.sequence.desc())
        chosen = and_(
            columns.name.in_(WATCHED),
            or_(columns.name != STATUS_CHANGE, columns.entity == "application"),
            columns.observed_ts_millis >= since,
        )
        if self._application is not None:
            chosen = and_(chosen, columns.app_name == shortened(self._application))
        ranked = (
            select(
                *(columns[field] for field in Event.__struct_fields__),
                func.row_number().over(partition_by=kind, order_by=latest).label("rank"),
            )
            .where(chosen)
            .subquery()
        )
        where = engine.url.set(query={}).render_as_string(hide_password=True)
        path = engine.url.database or ""
        if engine.dialect.name == "sqlite" and not path.startswith("file:") and not os.path.exists(path):
            raise SparkEventsError(f"cannot read {where}: no such file")
        try:
            with engine.connect() as connection:
                rows = connection.execute(select(ranked).where(ranked.c.rank == 1)).mappings().all()
        except Exception as error:
            raise SparkEventsError(f"cannot read {where}: {schema.reason(error)}") from None
        finally:
            engine.dispose()
        for row in rows:
            fields = {field: row[field] for field in Event.__struct_fields__}
            sightings.see(msgspec.convert(fields | {"attributes": Attributes(row["attributes"])}, Event))

    def record(self, event: Event) -> None:
        """Store a LOST event, so that later checks do not report the application again.

        Raises:
            SparkEventsError: when the database cannot be written.
        """
        reporter = DatabaseReporter(self._config)
        try:
            reporter.open()
            reporter.report([event])
        finally:
            reporter.close()
