"""Tests of older schema versions, and of the setting ``retention``."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fakes import event

from reporters.database.databases import Database, OfPostgreSQL, event_at
from reporters.running import IMPATIENT, Running
from spark_events import Event
from spark_events.reporters.database import event_tables

DAY = 86_400


def test_tables_of_an_old_version_are_refused(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Tables that cannot be upgraded are unchanged; the error says what to do. Afterwards, events are stored."""
    with Running("database", {**database.settings, **IMPATIENT}) as running:
        running.deliver([event(0)])
    database.query("UPDATE spark_events_schema SET version = 1")
    with Running("database", {**database.settings, **IMPATIENT}) as running:
        running.deliver([event(1)])
        assert running.counters.dropped == {"rejected": 1}
    assert database.query("SELECT count(*) FROM spark_events")[0][0] == 1
    advice = "the tables in the database have version 1, this release upgrades version 2 and later: use another"
    assert caplog.text.count(advice) == 1
    database.query(f"DROP TABLE spark_events {'CASCADE' if isinstance(database, OfPostgreSQL) else ''}")
    with Running("database", {**database.settings, **IMPATIENT}) as running:
        running.deliver([event(2)])
        assert running.counters.delivered == 1
    assert database.query("SELECT version FROM spark_events_schema")[0][0] == event_tables.VERSION


def test_an_upgrade_of_version_2_adds_the_class_to_the_views(database: Database) -> None:
    """Upgrading from version 2 replaces the view that lacks the failure class, and keeps the events."""
    about: dict[str, Any] = {"failure.fingerprint": "f", "failure.class": "DISK_FULL"}
    with Running("database", {**database.settings, **IMPATIENT}) as running:
        running.deliver([event_at("JobFailureEvent", 100, app_name="shop", **about)])
    for change in (
        "DROP VIEW spark_events_failures_by_cause",
        "CREATE VIEW spark_events_failures_by_cause AS SELECT count(*) AS failures FROM spark_events_failures",
        "UPDATE spark_events_schema SET version = 2",
    ):
        database.query(change)
    with Running("database", {**database.settings, **IMPATIENT}) as running:
        running.deliver([event_at("JobFailureEvent", 200, app_name="shop", **about)])
        assert running.counters.failures == 0
    assert database.query("SELECT version FROM spark_events_schema")[0][0] == event_tables.VERSION
    rows = database.query("SELECT failure_class, failures FROM spark_events_failures_by_cause")
    assert [tuple(row) for row in rows] == [("DISK_FULL", 2)]


def old_and_new(now: float) -> list[Event]:
    """Return events of two applications: one has run for a hundred days, and one has ended."""
    running: dict[str, Any] = {"entity": "application", "app": "a", "app_name": "shop"}
    ended: dict[str, Any] = {"entity": "application", "app": "b", "app_name": "old"}
    return [
        event_at("JobStatusChangeEvent", now - 100 * DAY, status="RUNNING", **running),
        event_at("JobStatusChangeEvent", now - 99 * DAY, status="RUNNING", **ended),
        event_at("JobStatusChangeEvent", now - 98 * DAY, status="FINISHED", **ended),
        *(event_at("BatchCommitEvent", now - day * DAY, app="a", app_name="shop", batch=day) for day in (97, 40, 1)),
    ]


def test_events_older_than_the_retention_are_deleted(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events older than the retention are deleted in parts, after new events are stored.

    The start event of a running application is kept, because the views need this event.
    """
    monkeypatch.setattr(event_tables, "MOST_DELETED", 1)
    now = time.time()
    with Running("database", {**database.settings, **IMPATIENT}) as running:
        running.deliver(old_and_new(now))
    with Running("database", {**database.settings, **IMPATIENT, "retention": "30d"}) as running:
        for number in range(5):
            running.deliver([event_at("Other", now + number)])
        assert running.counters.failures == 0
    look = "SELECT name, app_id, batch_id FROM spark_events WHERE name <> 'Other' ORDER BY observed_ts_millis"
    kept = [tuple(row) for row in database.query(look)]
    assert kept == [("JobStatusChangeEvent", "a", None), ("BatchCommitEvent", "a", 1)]
    assert database.query("SELECT count(*) FROM spark_events WHERE name = 'Other'")[0][0] == 5


def test_without_the_right_to_delete_new_events_are_stored(
    in_postgresql: OfPostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the permission to delete, new events are stored, and one warning per hour contains the reason."""
    with Running("database", in_postgresql.settings) as running:
        running.deliver(old_and_new(time.time()))
    for change in (
        "CREATE ROLE zoe LOGIN PASSWORD 'z'",
        "GRANT INSERT ON spark_events TO zoe",
        "GRANT SELECT ON spark_events_schema TO zoe",
    ):
        in_postgresql.query(change)
    url = in_postgresql.server.url(in_postgresql.name, "zoe")
    with Running("database", {"url": url, "password": "z", "retention": "1d"}) as running:
        running.deliver([event(1)])
        running.deliver([event(2)])
        assert (running.counters.delivered, running.counters.failures) == (2, 0)
    assert caplog.text.count("cannot delete old events, retrying in an hour") == 1
    for leave in ("DROP OWNED BY zoe", "DROP ROLE zoe"):
        in_postgresql.query(leave)
