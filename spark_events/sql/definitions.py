"""All definitions, each after the definitions that it uses."""

from __future__ import annotations

from collections.abc import Callable

from spark_events.sql import dialects
from spark_events.sql.fleet_views import APPLICATIONS_OF_FLEET, FAILURES_OF_FLEET
from spark_events.sql.incident_views import FAILURES, FAILURES_BY_CAUSE, INCIDENTS, SLA_VIOLATIONS
from spark_events.sql.run_views import RUNS, UPTIME
from spark_events.sql.status_views import NOW, SILENT, SILENT_RUNS, SOURCES

_TEXTS = {
    "spark_events_runs": RUNS,
    "spark_events_failures": FAILURES,
    "spark_events_failures_by_cause": FAILURES_BY_CAUSE,
    "spark_events_incidents": INCIDENTS,
    "spark_events_sla_violations": SLA_VIOLATIONS,
    "spark_events_sources": SOURCES,
    "spark_events_silent_runs": SILENT_RUNS,
    "spark_events_silent": SILENT,
    "spark_events_now": NOW,
    "spark_events_uptime": UPTIME,
}
NAMES = tuple(_TEXTS)


def views(dialect: str) -> list[str]:
    """Return the CREATE VIEW statements for ``postgresql`` or ``sqlite``."""
    return [f"CREATE VIEW {name} AS {dialects.in_database(dialect, text)}" for name, text in _TEXTS.items()]


#: Queries for a fleet: its applications, and their failures by class.
FLEET = (APPLICATIONS_OF_FLEET, FAILURES_OF_FLEET)


#: The definitions that the queries for a fleet use.
UNDER_FLEET = ("spark_events_runs", "spark_events_failures")


def attributes_of_fleet() -> list[str]:
    """Return the attributes that the queries for a fleet use."""
    texts = (*FLEET, *(_TEXTS[name] for name in UNDER_FLEET))
    return sorted(set().union(*map(dialects.attributes_of, texts)))


def table(name: str, column: Callable[[str], str], now: int) -> str:
    """Return the statement that computes a table of a report in DuckDB.

    Args:
        name: one of :data:`NAMES`; the definitions that it uses must have been computed.
        column: returns the column of ``spark_events`` with an attribute.
        now: the time, in milliseconds.
    """
    return f"CREATE OR REPLACE TABLE {name} AS {dialects.in_duckdb(_TEXTS[name], column, now)}"
