"""Tests of the views of the reporter ``database``: uptime, downtime, failures, slow commits."""

from __future__ import annotations

from typing import Any

from reporters.database.databases import Database, event_at
from reporters.running import Running
from spark_events import Event, Severity


def application(name: str, run: str, *statuses: tuple[float, str]) -> list[Event]:
    """Build the status changes of one run of an application."""
    return [
        event_at("JobStatusChangeEvent", second, entity="application", app=run, app_name=name, status=status)
        for second, status in statuses
    ]


def query(app: str, run: str, *statuses: tuple[float, str]) -> list[Event]:
    """Build the status changes of one run of the query ``q1`` named clicks."""
    about: dict[str, Any] = {
        "entity": "query",
        "app": app,
        "app_name": "shop",
        "query": "q1",
        "run": run,
        "query_name": "clicks",
    }
    return [event_at("JobStatusChangeEvent", second, **about, status=status) for second, status in statuses]


def written(database: Database, *events: Event) -> None:
    with Running("database", database.settings) as running:
        # Write in random order, because two drivers may write to one table.
        running.deliver(sorted(events, key=lambda event: event.event_id))
        assert running.counters.failures == 0


def rows_of(database: Database, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in database.query(query)]


RUNS = "SELECT status, started_ts_millis / 1000, ended_ts_millis / 1000, uptime_ms / 1000, downtime_ms / 1000"


def test_time_from_a_failure_to_the_next_start_is_downtime(database: Database) -> None:
    """The time from a failure to the next start is downtime; the time after a normal end is not."""
    written(
        database,
        *query("a", "r1", (100, "RUNNING"), (110, "FAILED")),
        *query("a", "r2", (115, "RUNNING"), (135, "FINISHED")),
        *query("a", "r3", (200, "RUNNING"), (210, "FINISHED")),
    )
    runs = rows_of(database, f"{RUNS} FROM spark_events_runs WHERE subject = 'q1' ORDER BY started_ts_millis")
    assert runs == [
        ("FAILED", 100, 110, 10, 5),
        ("FINISHED", 115, 135, 20, 0),
        ("FINISHED", 200, 210, 10, 0),
    ]
    uptime = "SELECT entity, name, status, runs, failed_runs, since_ts_millis, uptime_ms, downtime_ms"
    ((*whole, share),) = rows_of(database, f"{uptime}, availability_percent FROM spark_events_uptime")
    assert whole == ["query", "clicks", "FINISHED", 3, 1, 100_000, 40_000, 5_000]
    assert abs(float(share) - 100 * 40 / 45) < 0.001


def test_a_query_ends_with_its_application(database: Database) -> None:
    """Queries of a killed driver, which reports no end, count as up until the loss and then as down."""
    written(
        database,
        *application("shop", "a", (100, "RUNNING"), (150, "LOST")),
        *query("a", "r1", (105, "RUNNING")),
        *application("shop", "b", (180, "RUNNING")),
        *query("b", "r2", (185, "RUNNING")),
    )
    lost = rows_of(database, f"{RUNS} FROM spark_events_runs WHERE status = 'LOST' ORDER BY started_ts_millis")
    assert lost == [("LOST", 100, 150, 50, 30), ("LOST", 105, 150, 45, 35)]


def test_uptime_and_downtime_last_until_now(database: Database) -> None:
    """Uptime and downtime last until now by the database's clock, so they grow between two reads."""
    written(
        database,
        *application("alive", "a", (100, "RUNNING")),
        *application("dead", "b", (100, "RUNNING"), (200, "FAILED")),
    )
    look = "SELECT subject, status, uptime_ms / 1000, downtime_ms / 1000 FROM spark_events_uptime ORDER BY subject"
    alive, dead = rows_of(database, look)
    assert (alive[:2], alive[3]) == (("alive", "RUNNING"), 0)
    assert dead[:3] == ("dead", "FAILED", 100)
    years = 50 * 365 * 86_400
    assert alive[2] > years
    assert dead[3] > years


def test_a_run_without_an_end_event_ended_unknown(database: Database) -> None:
    """A run without an end event counts as up until the last event of its application, and then as down."""
    written(
        database,
        *application("shop", "a", (100, "RUNNING")),
        event_at("BatchCommitEvent", 160, app="a", app_name="shop", took=10),
        *application("shop", "b", (190, "RUNNING"), (200, "FINISHED")),
    )
    runs = rows_of(database, f"{RUNS} FROM spark_events_runs ORDER BY started_ts_millis")
    assert runs == [("UNKNOWN", 100, 160, 60, 30), ("FINISHED", 190, 200, 10, 0)]


def test_failures_have_entity_and_cause(database: Database) -> None:
    """The failures view has one row per failure, with entity and cause in columns."""
    about: dict[str, Any] = {
        "failure.label.type": "USER",
        "failure.root_cause": "ValueError: no currency",
        "failure.will_retry": True,
    }
    failure = event_at("JobFailureEvent", 100, Severity.ERROR, entity="query", app_name="shop", batch=7, **about)
    written(database, failure, event_at("JobFailureEvent", 101, Severity.ERROR, entity="job"), event_at("Other", 102))
    columns = "entity, app_name, batch_id, failure_type, root_cause, location, event_id"
    first, second = rows_of(database, f"SELECT {columns}, will_retry FROM spark_events_failures ORDER BY observed_at")
    assert first[:-1] == ("query", "shop", 7, "USER", "ValueError: no currency", None, failure.event_id)
    assert first[-1]
    assert second[:5] == ("job", None, None, None, None)
    assert not second[-1]


def test_slow_commits_use_editable_thresholds(database: Database) -> None:
    """A commit is slow above the threshold of its query, or of one minute, or if its event has severity WARN."""
    written(
        database,
        event_at("BatchCommitEvent", 1, query_name="clicks", batch=1, took=59_000),
        event_at("BatchCommitEvent", 2, query_name="clicks", batch=2, took=61_000),
        event_at("BatchCommitEvent", 3, query_name="clicks", batch=3, took=90_000, batches=3),
        event_at("BatchCommitEvent", 4, query_name="clicks", batch=4, took=5, severity=Severity.WARN),
        event_at("BatchCommitEvent", 5, query_name="nightly", batch=5, took=61_000),
        event_at("BatchCommitEvent", 6, batch=6, took=70_000),
    )
    look = "SELECT batch_id, duration_ms, threshold_ms FROM spark_events_slow_commits ORDER BY batch_id"
    assert rows_of(database, look) == [(2, 61_000, 60_000), (4, 5, 60_000), (5, 61_000, 60_000), (6, 70_000, 60_000)]
    with_own = "INSERT INTO spark_events_thresholds VALUES ('nightly', 600000)"
    for statement in (with_own, "UPDATE spark_events_thresholds SET slow_commit_ms = 65000 WHERE query_name = '*'"):
        database.query(statement)
    assert rows_of(database, look) == [(4, 5, 65_000), (6, 70_000, 65_000)]
