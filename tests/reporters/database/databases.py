"""SQLite and PostgreSQL databases for the tests: reporter settings and queries."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any, Protocol

from reporters.peers.postgresql import PASSWORD, PostgreSQL
from spark_events import Event, EventBuilder, Severity
from spark_events.event import AttributeValue

__all__ = ["Database", "OfPostgreSQL", "OfSQLite", "event_at"]


class Database(Protocol):
    """SQLite or PostgreSQL database of a test."""

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of a reporter that writes to this database."""

    def query(self, query: str) -> list[tuple[Any, ...]]:
        """Run a statement in its own transaction and return its rows."""


class OfSQLite:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = {"url": f"sqlite:///{path}"}

    def connect(self) -> sqlite3.Connection:
        """Open a connection with explicit transactions."""
        return sqlite3.connect(self.path, isolation_level=None)

    def query(self, query: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(self.connect()) as connection:
            return connection.execute(query).fetchall()


class OfPostgreSQL:
    def __init__(self, server: PostgreSQL, name: str) -> None:
        self.server, self.name = server, name
        self.settings = {"url": server.url(name), "password": PASSWORD}

    def query(self, query: str) -> list[tuple[Any, ...]]:
        return self.server.psql(query, database=self.name)


def event_at(name: str, second: float, severity: Severity = Severity.INFO, **attributes: AttributeValue) -> Event:
    """Build an event with this name; ``_KEYS`` maps short names to attributes."""
    made = EventBuilder("tests", name).set_severity(severity).set_observed_ts_millis(int(second * 1000))
    return made.set_attributes({_KEYS.get(key, key): value for key, value in attributes.items()}).build()


_KEYS = {
    "app": "spark.app.id",
    "app_name": "spark.app.name",
    "query": "spark.streaming.query.id",
    "run": "spark.streaming.query.run_id",
    "query_name": "spark.streaming.query.name",
    "entity": "spark.entity",
    "status": "spark.status.new",
    "old": "spark.status.old",
    "batch": "spark.batch.id",
    "batches": "spark.batch.count",
    "took": "spark.batch.duration.trigger_execution_ms",
}
