"""Two environments of one application: no view mixes them, in SQLite, PostgreSQL and DuckDB."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from report import troubled_stories
from report.stories import HOUR, MINUTE, Story

from reporters.database.databases import Database
from reporters.running import Running
from spark_events import Event, Severity
from spark_events.event import encode_lines
from spark_events.report.table import EventTable
from spark_events.sql import definitions

#: Columns of each view that depend neither on the clock of the database nor on the other events of it.
COLUMNS = {
    "spark_events_runs": "entity, subject, app_id, query_run_id, status, started_ts_millis, ended_ts_millis, is_latest,"
    " is_long_running, environment",
    "spark_events_uptime": "period, entity, subject, status, runs, failed_runs, environment",
    "spark_events_now": "kind, entity, subject, app_id, since_ts_millis, times, cause, failure_class, incident_key,"
    " event_id, usual_ms, failed_runs, silent_since_ts_millis,"
    " running_since_ts_millis, environment",
    "spark_events_silent_runs": "entity, subject, app_id, since_ts_millis, usual_ms, is_latest, limit_ms, environment",
    "spark_events_silent": "entity, subject, since_ts_millis, whose_silence, usual_ms, environment",
    "spark_events_incidents": "incident_key, kind, subject, opened_ts_millis, closed_ts_millis, alarms, environment",
    "spark_events_sla_violations": "app_id, query_name, environment",
    "spark_events_failures": "app_id, entity, cause_key, incident_role, environment",
}


def told(environment: str, is_well: bool, now: int) -> Story:
    """Tell the last hours of four applications, of which a silence, a crash loop, a loss and overdue work are wrong."""
    story = Story()

    def begin(name: str, number: int, hours: float) -> Any:
        app = story.application(name, f"{name}-{environment}-{number}")
        app.base["deployment.environment.name"] = environment
        app.status("RUNNING", now - round(hours * HOUR))
        return app

    query = begin("etl", 0, 5).query("book", f"book-{environment}", f"id-{environment}")
    query.status("RUNNING", now - 5 * HOUR)
    for minute in range(200, 0 if is_well else 90, -1):
        query.commit(now - minute * MINUTE, 900)
    for number in range(4):
        app = begin("loop", number, (50 - 10 * number) / 60)
        if number < 3:
            app.status("FINISHED" if is_well else "FAILED", now - (42 - 10 * number) * MINUTE)
    for number in range(6):
        began = now - (58 - 5 * number) * MINUTE
        app = begin("storm", number, (58 - 5 * number) / 60)
        if is_well and number < 5:
            app.status("FINISHED", began + 3 * MINUTE)
        elif number < 5:
            app.failure(began + 3 * MINUTE, "application", "KeyError: 'CHF'", **{"incident.role": "alarm"})
            app.failure(began + 3 * MINUTE - 1, "stage", "IOException: gone", **{"failure.will_retry": True})
            app.status("FAILED", began + 3 * MINUTE)
        else:
            for minute in range(32, 0 if is_well else 27, -1):
                app.event("Other", now - minute * MINUTE)
            charge = app.query("charge", f"charge-{environment}", f"charge-{environment}")
            charge.status("RUNNING", now - 33 * MINUTE)
            charge.commit(now - 33 * MINUTE + 1, 900)
    nightly = begin("nightly", 0, 3)
    if not is_well:
        nightly.failure(now - 2 * HOUR, "application")
    nightly.status("FINISHED" if is_well else "FAILED", now - 2 * HOUR)
    late = begin("late", 0, 1)
    if not is_well:
        about = {"spark.deadline.subject": "job", "spark.deadline.rule": "job", "spark.status.new": "OVERDUE"}
        late.event("DeadlineStatusChangeEvent", now - 30 * MINUTE, **about)
    for minute in range(59, 0, -1):
        late.event("Other", now - minute * MINUTE)
    return story


def distinct(stories: Sequence[Story]) -> list[Event]:
    """Give the events of several stories distinct ids."""
    events = [event for story in stories for event in story.events]
    whole = Story()
    for event in events:
        whole.add(event.name, event.observed_ts_millis, dict(event.attributes), event.severity, event.body)
    return whole.events


def in_database(database: Database, events: Sequence[Event]) -> dict[str, list[tuple[Any, ...]]]:
    with Running("database", database.settings) as running:
        running.deliver(events)
        assert running.counters.failures == 0
    return {
        view: sorted(map(tuple, database.query(f"SELECT {columns} FROM {view}")), key=str)
        for view, columns in COLUMNS.items()
    }


def in_duckdb(folder: Path, events: Sequence[Event], now: int) -> dict[str, list[tuple[Any, ...]]]:
    file = folder / "events.jsonl"
    file.write_bytes(encode_lines(events))
    with EventTable() as table:
        table.load(file, compressed=False, since=None)
        table.compute_sources(now)
        names = [name for name in definitions.NAMES if name in set(COLUMNS) - {"spark_events_sla_violations"}]
        table.compute(now, names=names)
        return {name: sorted(table.run(f"SELECT {COLUMNS[name]} FROM {name}"), key=str) for name in names}


def of(found: dict[str, list[tuple[Any, ...]]], environment: str) -> dict[str, list[tuple[Any, ...]]]:
    return {view: [row for row in rows if row[-1] == environment] for view, rows in found.items()}


def problems(found: dict[str, list[tuple[Any, ...]]]) -> set[tuple[str, str, str]]:
    return {(str(row[0]), str(row[2]), str(row[-1])) for row in found["spark_events_now"]}


WRONG = {
    ("silent", "etl", "prod"),
    ("silent", "storm", "prod"),
    ("crash-loop", "loop", "prod"),
    ("failure", "nightly", "prod"),
    ("overdue", "late", "prod"),
}


def test_every_view_is_the_same_with_and_without_the_other_environment(database: Database) -> None:
    """Production is in trouble, staging is well, and both have applications and queries of the same names."""
    now = round(time.time() * 1000)
    both = distinct([told("prod", False, now), told("staging", True, now)])
    first = [event for event in both if event.attributes["deployment.environment.name"] == "prod"]
    alone = in_database(database, first)
    assert problems(alone) == WRONG
    (storm,) = [row for row in alone["spark_events_now"] if row[2] == "storm"]
    assert (storm[6:8], storm[11]) == (("KeyError: 'CHF'", "USER_CODE"), 5)
    together = in_database(database, [event for event in both if event not in first])
    assert problems(together) == WRONG
    assert of(together, "prod") == alone
    assert {row[3] for row in of(together, "staging")["spark_events_uptime"]} == {"RUNNING", "FINISHED"}
    assert set(definitions.NAMES) - set(COLUMNS) == {"spark_events_sources", "spark_events_failures_by_cause"}


@pytest.mark.parametrize("environment", ["prod", "staging"])
def test_the_tables_of_a_report_are_the_same_with_and_without_the_other(environment: str, tmp_path: Path) -> None:
    now = round(time.time() * 1000)
    both = distinct([told("prod", False, now), told("staging", True, now)])
    own = [event for event in both if event.attributes["deployment.environment.name"] == environment]
    alone, together = (in_duckdb(tmp_path, events, now) for events in (own, both))
    assert of(together, environment) == alone
    assert problems(together) == WRONG


def retold(number: int, story: Story, now: int) -> Story:
    """Move a story to the current time, with names of its own."""
    moved = Story()
    for event in story.events:
        about = dict(event.attributes)
        for key in ("spark.app.id", "spark.app.name", "spark.streaming.query.run_id", "incident.key"):
            if key in about:
                about[key] = f"{number}-{about[key]}"
        at = event.observed_ts_millis - troubled_stories.NOW + now
        # By default, a reporter leaves heartbeats out.
        name = "Other" if event.name == "HeartbeatEvent" else event.name
        moved.add(name, at, about, max(event.severity, Severity.INFO), event.body)
    return moved


def test_what_is_wrong_is_the_same_in_every_database(database: Database, tmp_path: Path) -> None:
    now = round(time.time() * 1000)
    # Reporters cut the names of the story that is left out.
    stories = [tell() for tell in troubled_stories.STORIES if tell is not troubled_stories.hostile_names]
    events = distinct([retold(number, story, now) for number, story in enumerate(stories)])
    tables, views = in_duckdb(tmp_path, events, now), in_database(database, events)
    for name in ("spark_events_silent_runs", "spark_events_silent", "spark_events_now"):
        assert alike(name, tables) == alike(name, views), name
    assert {"silent", "failure"} <= {row[0] for row in views["spark_events_now"]}


def alike(name: str, found: dict[str, list[tuple[Any, ...]]]) -> set[tuple[Any, ...]]:
    """Return the rows of a view without the ids of events, which are numbers in DuckDB; SQLite has no booleans."""
    columns = [column.strip() for column in COLUMNS[name].split(",")]
    chosen = [position for position, column in enumerate(columns) if column != "event_id"]
    return {tuple(int(row[at]) if isinstance(row[at], bool) else row[at] for at in chosen) for row in found[name]}
