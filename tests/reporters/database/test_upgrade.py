"""Tests of upgrades from schema versions 1 and 2, and of the setting ``retention``."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from fakes import ROOT, event

from reporters.database.databases import Database, OfPostgreSQL, event_at
from reporters.running import IMPATIENT, Running
from spark_events import Event
from spark_events.reporters.database import schema
from spark_events.reporters.database.version_1 import RENAMED, attributes_of_version_2

DAY = 86_400
_IN_POSTGRESQL = {
    re.escape("(julianday('now') - 2440587.5) * 86400000"): "extract(epoch FROM now()) * 1000",
    r"json_extract\(attributes, '\$\.\"([a-z_.]+)\"'\)": r"attributes ->> '\1'",
    r"\bDATETIME\b": "TIMESTAMP WITH TIME ZONE",
    r"\battributes JSON\b": "attributes JSONB",
}


def of_version_1(database: Database) -> None:
    """Create the tables of version 1 with a few events."""
    script = Path(__file__).with_name("version_1.sql").read_text(encoding="utf-8")
    if isinstance(database, OfPostgreSQL):
        for sqlite, postgresql in _IN_POSTGRESQL.items():
            script = re.sub(sqlite, postgresql, script)
    for statement in script.split(";\n"):
        if statement.strip():
            database.query(statement)


def attributes_of(database: Database, name: str, more: str = "") -> dict[str, Any]:
    ((stored,),) = database.query(f"SELECT attributes FROM spark_events WHERE name = '{name}' {more}")
    found: dict[str, Any] = json.loads(stored) if isinstance(stored, str) else stored
    return found


def test_a_database_of_version_1_is_upgraded(database: Database) -> None:
    """An upgrade renames attributes to their version 2 names, and the views include old and new events.

    A second start changes nothing.
    """
    of_version_1(database)
    before = database.query("SELECT count(*) FROM spark_events")[0][0]
    for number in range(2):
        with Running("database", {**database.settings, **IMPATIENT}) as running:
            running.deliver([event(number)])
            assert running.counters.failures == 0
    assert database.query("SELECT count(*) FROM spark_events")[0][0] == before + 2
    assert database.query("SELECT version FROM spark_events_schema")[0][0] == 4
    commit = attributes_of(database, "BatchCommitEvent")
    assert (commit["spark.batch.id"], commit["spark.batch.rows_input"]) == (25, 4)
    assert commit["spark.batch.duration.add_batch_ms"] == 1
    assert [source["rows"] for source in json.loads(commit["spark.batch.sources"])] == [4, 0]
    (account,) = json.loads(attributes_of(database, "DispatcherReportEvent")["spark.events.reporters"])
    assert (account["name"], account["accepted"], account["dropped"]) == ("audit", 4, {"mailbox-full": 1})
    enriched = attributes_of(database, "EnrichmentEvent")
    assert json.loads(enriched["spark.enrich.failures_by_type"]) == {"ConnectionError": 1}
    look = "SELECT status, failed_runs FROM spark_events_uptime WHERE entity = 'application' AND period = 'all'"
    assert [tuple(row) for row in database.query(look)] == [("FAILED", 1)]
    causes = database.query("SELECT root_cause FROM spark_events_failures_by_cause")
    assert ("java.io.IOException: disk",) in [tuple(row) for row in causes]


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
    assert database.query("SELECT version FROM spark_events_schema")[0][0] == 4
    rows = database.query("SELECT failure_class, failures FROM spark_events_failures_by_cause")
    assert [tuple(row) for row in rows] == [("DISK_FULL", 2)]


def test_the_renamed_attributes_equal_the_page() -> None:
    """The upgrade renames exactly the attributes that docs/events.md lists."""
    text = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    table = text.partition("## Attribute names of schema version 1")[2]
    rows = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", table, re.MULTILINE))
    assert {old: new for old, new in rows.items() if "<" not in old} == RENAMED
    for old, new in rows.items():
        if "<" in old:
            given = old.replace("<i>", "0").replace("<phase>", "addBatch").replace("<number>", "failures")
            (made,) = attributes_of_version_2({given: "x"})
            assert made == new.replace("<phase>", "add_batch").replace("<number>", "failures"), old
        assert attributes_of_version_2({new: "x"}) == {new: "x"}


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
    monkeypatch.setattr(schema, "MOST_DELETED", 1)
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
