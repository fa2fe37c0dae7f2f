"""Tests of the views that the ``database`` reporter creates: uptime, failures, incidents and violated limits."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from fakes import application_end, application_start, decoded
from report.stories import Story
from report.test_model import report_of

from reporters.database.databases import Database, OfSQLite, event_at
from reporters.running import Running
from spark_events import Event, Severity
from spark_events.sql import definitions
from spark_events.translate.incidents.incident_config import IdentityConfig
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

HOUR = 3_600


def application(name: str, run: str, *statuses: tuple[float, str]) -> list[Event]:
    """Build the status changes of one run of an application."""
    return [
        event_at("JobStatusChangeEvent", second, entity="application", app=run, app_name=name, status=status)
        for second, status in statuses
    ]


def query(app: str, run: str, *statuses: tuple[float, str]) -> list[Event]:
    """Build the status changes of one run of the query with the id ``q1`` and the name clicks."""
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
        # Write the events in random order: two drivers may write to one table.
        running.deliver(sorted(events, key=lambda event: event.event_id))
        assert running.counters.failures == 0


def rows_of(database: Database, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in database.query(query)]


RUNS = "SELECT status, started_ts_millis / 1000, ended_ts_millis / 1000, uptime_ms / 1000, downtime_ms / 1000"


def test_time_from_a_failure_to_the_next_start_is_downtime(database: Database) -> None:
    """The time from a failure to the next start is downtime; the time after a normal end is not downtime."""
    written(
        database,
        *query("a", "r1", (100, "RUNNING"), (110, "FAILED")),
        *query("a", "r2", (115, "RUNNING"), (135, "FINISHED")),
        *query("a", "r3", (200, "RUNNING"), (210, "FINISHED")),
    )
    runs = rows_of(database, f"{RUNS} FROM spark_events_runs WHERE subject = 'shop/clicks' ORDER BY started_ts_millis")
    assert runs == [
        ("FAILED", 100, 110, 10, 5),
        ("FINISHED", 115, 135, 20, 0),
        ("FINISHED", 200, 210, 10, 0),
    ]
    uptime = "SELECT entity, name, kind, status, runs, failed_runs, since_ts_millis, uptime_ms, downtime_ms"
    look = f"{uptime}, availability_percent FROM spark_events_uptime WHERE period = 'all'"
    ((*whole, share),) = rows_of(database, look)
    assert whole == ["query", "clicks", "long-running", "FINISHED", 3, 1, 100_000, 40_000, 5_000]
    assert abs(float(share) - 100 * 40 / 45) < 0.001


def test_a_batch_application_is_never_down(database: Database) -> None:
    """A failed nightly run counts only as a failed run. An application with a query is down until its next run."""
    written(
        database,
        *application("nightly", "a", (100, "RUNNING"), (110, "FINISHED")),
        *application("nightly", "b", (200, "RUNNING"), (210, "FAILED")),
        *application("shop", "c", (100, "RUNNING"), (110, "FAILED")),
        *query("c", "r1", (101, "RUNNING"), (109, "FAILED")),
        *application("shop", "d", (130, "RUNNING"), (140, "FINISHED")),
    )
    look = "SELECT name, kind, status, runs, failed_runs, downtime_ms, availability_percent IS NULL"
    rows = rows_of(database, f"{look} FROM spark_events_uptime WHERE entity = 'application' AND period = 'all'")
    assert sorted(rows) == [
        ("nightly", "batch", "FAILED", 2, 1, 0, True),
        ("shop", "long-running", "FINISHED", 2, 1, 20_000, False),
    ]


def test_uptime_has_windows(database: Database) -> None:
    """A query that failed two days ago and restarted an hour later has downtime in `7d`, but not in `24h`."""
    now = time.time()
    failed, restarted = now - 48 * HOUR, now - 47 * HOUR
    written(
        database,
        *query("a", "r1", (now - 100 * HOUR, "RUNNING"), (failed, "FAILED")),
        *query("a", "r2", (restarted, "RUNNING")),
        event_at("Other", now),
    )
    look = (
        "SELECT period, runs, failed_runs, (uptime_ms + 1000) / 3600000, downtime_ms / 3600000 FROM spark_events_uptime"
    )
    assert sorted(rows_of(database, look)) == [
        ("24h", 1, 0, 24, 0),
        ("30d", 2, 1, 99, 1),
        ("7d", 2, 1, 99, 1),
        ("all", 2, 1, 99, 1),
    ]


def test_overlapping_runs_count_once(database: Database) -> None:
    """If two drivers run one application, the application is up while at least one driver runs."""
    written(
        database,
        *application("shop", "a", (100, "RUNNING"), (150, "FINISHED")),
        *application("shop", "b", (120, "RUNNING"), (130, "FAILED")),
        *query("b", "r1", (121, "RUNNING"), (130, "FAILED")),
        *application("shop", "c", (160, "RUNNING"), (170, "FINISHED")),
    )
    look = "SELECT uptime_ms, downtime_ms FROM spark_events_uptime WHERE entity = 'application' AND period = 'all'"
    assert rows_of(database, look) == [(60_000, 0)]


def test_a_replay_into_a_live_database_adds_no_second_end(database: Database) -> None:
    """The end of a run has the same event id live and in a replay. The database keeps the first row."""
    live = Translator()
    records = [application_start(), application_end(exit_code=3)]
    failed = [event for record in records for event in live.translate(decoded(record))]
    replayed = Translator()
    ended = [event for one in (records[0], application_end("UNKNOWN")) for event in replayed.translate(decoded(one))]
    assert [event.attributes["spark.status.new"] for event in ended] == ["RUNNING", "ENDED"]
    written(database, *failed)
    written(database, *ended)
    changes = "SELECT status FROM spark_events WHERE name = 'JobStatusChangeEvent' ORDER BY sequence"
    assert rows_of(database, changes) == [("RUNNING",), ("FAILED",)]


def test_a_query_ends_with_its_application(database: Database) -> None:
    """If a driver is killed, its queries have no end event. They are up until the loss, and down afterwards."""
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
    """Uptime and downtime extend to the current time of the database, so they grow between two reads."""
    written(
        database,
        *application("alive", "a", (100, "RUNNING")),
        *query("b", "r1", (100, "RUNNING"), (200, "FAILED")),
        event_at("Other", time.time(), app="a", app_name="alive"),
    )
    look = "SELECT name, status, uptime_ms / 1000, downtime_ms / 1000 FROM spark_events_uptime WHERE period = 'all'"
    alive, dead = sorted(rows_of(database, look))
    assert (alive[:2], alive[3]) == (("alive", "RUNNING"), 0)
    assert dead[:3] == ("clicks", "FAILED", 100)
    years = 50 * 365 * 86_400
    assert alive[2] > years
    assert dead[3] > years


def silences(now: int) -> Story:
    """Return the events of a healthy query, a silent one, and one whose silent application is not lost yet."""
    story = Story()
    healthy, dead = story.application("shop", "app-1"), story.application("bank", "app-2")
    for app, names in ((healthy, ("clicks", "views")), (dead, ("loans",))):
        app.status("RUNNING", now - 3 * HOUR * 1000)
        for name in names:
            app.query(name, f"{name}-1").status("RUNNING", now - 3 * HOUR * 1000)
            app.query(name, f"{name}-1").status("FAILED", now - 2 * HOUR * 1000)
            again = app.query(name, f"{name}-2")
            again.status("RUNNING", now - 2 * HOUR * 1000 + 60_000)
            for minute in range(118 if name == "clicks" else 50, 0, -1):
                last = now if name == "clicks" else now - 65 * 60_000
                again.commit(last - minute * 60_000, 900)
    return story


@pytest.mark.parametrize("age", [0, HOUR], ids=["now", "no event for an hour"])
def test_uptime_equals_the_report(age: int, database: Database) -> None:
    """Silence is no uptime: the view and the report of the same events have the same status, times and share."""
    now = round(time.time() * 1000)
    events = silences(now - age * 1000).events
    written(database, *events)
    columns = "entity, name, status, uptime_ms, downtime_ms, availability_percent"
    look = f"SELECT {columns} FROM spark_events_uptime WHERE period = 'all'"
    found = {row[:2]: row[2:] for row in rows_of(database, look)}
    report = report_of(events, now=now)
    expected: dict[tuple[str, str], tuple[Any, ...]] = {
        (one.kind, one.name): (one.outcome, one.uptime_ms, one.downtime_ms, one.uptime_percent)
        for one in (*report.applications, *report.queries)
    }
    assert found.keys() == expected.keys()
    assert {row[0] for row in expected.values()} == ({"RUNNING", "SILENT"} if age == 0 else {"SILENT"})
    for key, (status, up, down, share) in found.items():
        # A subject that is not silent is up until the clock of the database.
        same: tuple[Any, ...] = (
            status,
            pytest.approx(up, abs=60_000),
            down,
            None if share is None else pytest.approx(share, abs=0.5),
        )
        assert expected[key] == same, key


def test_a_run_without_an_end_event_ended_unknown(database: Database) -> None:
    """A run without an end event is up until the last event of its application, and down afterwards."""
    written(
        database,
        *application("shop", "a", (100, "RUNNING")),
        *query("a", "r1", (101, "RUNNING"), (102, "FINISHED")),
        event_at("BatchCommitEvent", 160, app="a", app_name="shop", took=10),
        *application("shop", "b", (190, "RUNNING"), (200, "FINISHED")),
    )
    look = f"{RUNS} FROM spark_events_runs WHERE entity = 'application' ORDER BY started_ts_millis"
    assert rows_of(database, look) == [("UNKNOWN", 100, 160, 60, 30), ("FINISHED", 190, 200, 10, 0)]


def test_failures_have_entity_and_cause(database: Database) -> None:
    """The failures view contains one row per failure, with the entity and cause in columns."""
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


def test_a_lost_application_is_a_failure(database: Database) -> None:
    """A lost application has no JobFailureEvent. Its incident is open until a run finishes."""
    lost: dict[str, Any] = {"entity": "application", "app_name": "nightly", "status": "LOST"}
    written(
        database,
        *application("nightly", "a", (100, "RUNNING")),
        event_at("JobStatusChangeEvent", 150, Severity.FATAL, app="a", **lost),
        *application("nightly", "b", (200, "RUNNING"), (210, "FAILED")),
        failure(210, app="b", app_name="nightly", key="nightly/failure"),
    )
    look = "SELECT app_name, error_type, cause_key, incident_role FROM spark_events_failures ORDER BY observed_at"
    assert rows_of(database, look)[0] == ("nightly", "LOST", "LOST", "alarm")
    incidents = "SELECT incident_key, opened_ts_millis, closed_ts_millis, is_open, alarms FROM spark_events_incidents"
    assert rows_of(database, incidents) == [("nightly/failure", 150_000, None, True, 2)]
    written(database, *application("nightly", "c", (300, "RUNNING"), (320, "FINISHED")))
    assert rows_of(database, incidents) == [("nightly/failure", 150_000, 320_000, False, 2)]


def test_a_loss_after_which_the_next_run_works_opens_no_incident(database: Database) -> None:
    lost: dict[str, Any] = {"entity": "application", "app": "a", "app_name": "nightly", "status": "LOST"}
    event = event_at("JobStatusChangeEvent", 150, Severity.WARN, **lost, **{"incident.role": "member"})
    written(database, *application("nightly", "a", (100, "RUNNING")), event)
    assert rows_of(database, "SELECT incident_role FROM spark_events_failures") == [("member",)]
    assert rows_of(database, "SELECT incident_key FROM spark_events_incidents") == []


def test_a_run_that_overlaps_a_lost_run_closes_its_incident_with_its_next_commit(database: Database) -> None:
    lost: dict[str, Any] = {"entity": "application", "app": "a", "app_name": "shop", "status": "LOST"}
    commit: dict[str, Any] = {"app": "b", "app_name": "shop", "query": "q1", "run": "r1", "query_name": "clicks"}
    written(
        database,
        *application("shop", "a", (100, "RUNNING")),
        *application("shop", "b", (110, "RUNNING")),
        *query("b", "r1", (111, "RUNNING")),
        event_at("BatchCommitEvent", 120, took=10, **commit),
        event_at("JobStatusChangeEvent", 150, Severity.FATAL, **lost),
    )
    incidents = "SELECT incident_key, opened_ts_millis, closed_ts_millis FROM spark_events_incidents"
    assert rows_of(database, incidents) == [("shop/failure", 150_000, None)]
    commits = [event_at("BatchCommitEvent", second, took=10, **commit) for second in (900, 1_500)]
    written(database, *commits)
    assert rows_of(database, incidents) == [("shop/failure", 150_000, 900_000)]


def failure(
    second: float, cause: str = "ValueError: no currency", key: str = "shop/clicks/failure", **about: Any
) -> Event:
    """Build the event of a failure that is an alarm."""
    more = {
        "failure.root_cause": cause,
        "failure.fingerprint": cause[:5],
        "incident.key": key,
        "incident.role": "alarm",
    }
    return event_at("JobFailureEvent", second, Severity.ERROR, **more, **about)


def test_a_run_in_another_environment_closes_no_incident(database: Database) -> None:
    """Staging and production have equal names, and separate incidents."""

    def run(environment: str, began: int, ending: dict[str, Any]) -> list[Event]:
        records = [
            application_start(app_id=f"{environment}-{began}", time=began),
            application_end(time=began + 1_000, **ending),
        ]
        identity = IdentityConfig(environment=environment)
        translator = Translator(TranslateConfig(identity=identity))
        return [event for record in records for event in translator.translate(decoded(record))]

    good, bad = {"program_exit_code": 0}, {"ending": "PROGRAM_FAILED", "program_exit_code": 1}
    written(database, *run("prod", 1_000, bad), *run("staging", 5_000, good))
    look = "SELECT incident_key, is_open FROM spark_events_incidents"
    assert [(key, bool(is_open)) for key, is_open in rows_of(database, look)] == [
        ("environment=prod/shop/failure", True)
    ]
    written(database, *run("prod", 9_000, good))
    assert [bool(is_open) for _, is_open in rows_of(database, look)] == [False]


def test_failures_are_grouped_by_cause(database: Database) -> None:
    """Failures with one fingerprint share a row with the values of the latest failure. Consequences are not alarms."""
    consequence: dict[str, Any] = {"failure.fingerprint": "Value", "incident.role": "consequence"}
    written(
        database,
        failure(100, "ValueError: payment 1", app_name="shop"),
        failure(200, "ValueError: payment 2", app_name="till"),
        event_at("JobFailureEvent", 150, app_name="shop", **consequence),
        failure(300, "OSError: disk full", app_name="shop"),
    )
    look = "SELECT root_cause, failures, alarms, applications, app_name, first_ts_millis, last_ts_millis"
    rows = rows_of(database, f"{look} FROM spark_events_failures_by_cause ORDER BY failures DESC")
    assert rows == [
        ("ValueError: payment 2", 3, 2, 2, "till", 100_000, 200_000),
        ("OSError: disk full", 1, 1, 1, "shop", 300_000, 300_000),
    ]


def test_a_cause_in_two_environments_concerns_two_applications(database: Database) -> None:
    places = [{"deployment.environment.name": place} for place in ("prod", "staging", "prod")]
    written(database, *(failure(100 + n, "OSError: full", app_name="shop", **one) for n, one in enumerate(places)))
    rows = rows_of(database, "SELECT failures, applications FROM spark_events_failures_by_cause")
    assert rows == [(3, 2)]


def test_a_query_that_fails_three_times_and_commits_is_one_incident(database: Database) -> None:
    """An incident closes with the first commit of a later run, and the next failure is another incident."""
    about: dict[str, Any] = {"query": "q1", "query_name": "clicks", "app_name": "shop"}
    events = []
    for run, second in (("r1", 100), ("r2", 200), ("r3", 300), ("r4", 400)):
        events += query("a", run, (second, "RUNNING"), (second + 50, "FAILED"))
        events.append(failure(second + 50, run=run, app="a", **about))
    events.append(event_at("BatchCommitEvent", 120, app="a", run="r1", took=10, **about))
    events.append(event_at("BatchCommitEvent", 420, app="a", run="r4", took=10, **about))
    written(database, *events)
    look = "SELECT kind, query_name, cause, opened_ts_millis, closed_ts_millis, alarms FROM spark_events_incidents"
    assert rows_of(database, f"{look} ORDER BY opened_ts_millis") == [
        ("failure", "clicks", "ValueError: no currency", 150_000, 420_000, 3),
        ("failure", "clicks", "ValueError: no currency", 450_000, None, 1),
    ]


def test_overdue_work_and_open_breakers_are_incidents(database: Database) -> None:
    """Incidents of deadlines and breakers close when the work recovers, the breaker closes, or the application ends."""
    late: dict[str, Any] = {
        "app": "a",
        "app_name": "shop",
        "spark.deadline.rule": "batch",
        "spark.deadline.subject": "batch",
    }
    limit: dict[str, Any] = {"spark.deadline.limit_ms": 60_000, "spark.deadline.elapsed_ms": 60_000}
    breaker: dict[str, Any] = {"app": "a", "app_name": "shop", "spark.events.reporter.name": "audit"}
    written(
        database,
        *application("shop", "a", (100, "RUNNING"), (500, "FINISHED")),
        event_at("DeadlineStatusChangeEvent", 200, Severity.WARN, status="OVERDUE", old="ON_TIME", **late, **limit),
        event_at("DeadlineStatusChangeEvent", 250, Severity.ERROR, status="OVERDUE", old="OVERDUE", **late, **limit),
        event_at("DeadlineStatusChangeEvent", 300, status="ON_TIME", old="OVERDUE", **late),
        event_at("ReporterStatusChangeEvent", 400, Severity.WARN, status="open", old="closed", **breaker),
        event_at("ReporterStatusChangeEvent", 430, status="half-open", old="open", **breaker),
        event_at("ReporterStatusChangeEvent", 431, Severity.WARN, status="open", old="half-open", **breaker),
    )
    look = "SELECT incident_key, kind, opened_ts_millis, closed_ts_millis FROM spark_events_incidents"
    assert rows_of(database, f"{look} ORDER BY opened_ts_millis") == [
        ("shop/overdue batch", "overdue", 200_000, 300_000),
        ("shop/reporter audit", "breaker", 400_000, 500_000),
    ]
    violations = "SELECT kind, duration_ms, limit_ms FROM spark_events_sla_violations"
    assert rows_of(database, violations) == [("batch", 60_000, 60_000)]


def test_an_event_is_compared_with_the_limits_of_its_driver(database: Database) -> None:
    """Each event is compared with the limits of its driver. If an event covers several batches, the mean counts."""
    commits = [(1, 59_000, 30_000, True), (2, 59_000, 600_000, False), (3, 90_000, 30_000, True)]
    written(
        database,
        *(
            event_at(
                "BatchCommitEvent",
                at,
                Severity.WARN if slow else Severity.INFO,
                query_name="clicks",
                batch=at,
                took=took,
                batches=2 if at == 3 else 1,
                **{"spark.batch.limit_ms": limit},
            )
            for at, took, limit, slow in commits
        ),
    )
    look = "SELECT batch_id, kind, duration_ms, limit_ms FROM spark_events_sla_violations ORDER BY batch_id"
    assert rows_of(database, look) == [(1, "commit", 59_000, 30_000), (3, "commit", 45_000, 30_000)]


def test_an_overdue_incident_ends_with_its_attempt(database: Database) -> None:
    """If an application has two attempts, overdue work is one incident, and ends with the attempt that reported it."""
    first: dict[str, Any] = {"spark.app.attempt_id": "1"}
    second: dict[str, Any] = {"spark.app.attempt_id": "2"}
    late: dict[str, Any] = {"app": "a", "status": "OVERDUE", "spark.deadline.rule": "batch"}
    written(
        database,
        *(
            event_at("JobStatusChangeEvent", at, entity="application", app="a", status=status, **attempt)
            for at, status, attempt in ((100, "RUNNING", first), (200, "FAILED", first), (210, "RUNNING", second))
        ),
        event_at("DeadlineStatusChangeEvent", 150, Severity.WARN, **late, **first),
        event_at("DeadlineStatusChangeEvent", 250, Severity.WARN, **late, **second),
    )
    look = "SELECT opened_ts_millis, closed_ts_millis FROM spark_events_incidents WHERE kind = 'overdue'"
    assert rows_of(database, f"{look} ORDER BY opened_ts_millis") == [(150_000, 200_000), (250_000, None)]


def failing_runs(count: int) -> list[Event]:
    """Build runs of an application whose query commits, is overdue and fails."""
    events = []
    for number in range(count):
        app, run, at = f"a{number}", f"r{number}", 100 * (number + 1)
        about: dict[str, Any] = {"app": app, "app_name": "shop", "query": "q1", "query_name": "clicks", "run": run}
        events += application("shop", app, (at, "RUNNING"), (at + 60, "FAILED"))
        events += query(app, run, (at + 1, "RUNNING"), (at + 59, "FAILED"))
        events += [event_at("BatchCommitEvent", at + 2 + batch, batch=batch, took=10, **about) for batch in range(3)]
        late = {"spark.deadline.rule": "batch"}
        events.append(event_at("DeadlineStatusChangeEvent", at + 30, Severity.WARN, status="OVERDUE", **about, **late))
        events.append(failure(at + 59, **about))
    return events


def steps_of(database: OfSQLite, query: str) -> int:
    """Return how many steps SQLite's virtual machine needs for a query, in units of 100."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with contextlib.closing(database.connect()) as connection:
        connection.set_progress_handler(count, 100)
        connection.execute(query).fetchall()
    return steps


def test_the_work_of_a_view_grows_linearly_with_the_runs(tmp_path: Path) -> None:
    """Three times as many runs and failures need about three times as many steps of SQLite, not nine times."""
    few, many = OfSQLite(tmp_path / "few.db"), OfSQLite(tmp_path / "many.db")
    written(few, *failing_runs(200))
    written(many, *failing_runs(600))
    for view in definitions.NAMES:
        look = f"SELECT * FROM {view}"
        assert 0 < steps_of(many, look) < 4 * steps_of(few, look), view
