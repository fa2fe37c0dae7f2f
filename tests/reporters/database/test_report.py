"""Tests of reports whose source is a database."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from fakes import ROOT
from report.stories import busy_day

from reporters.database.databases import Database
from spark_events.cli import main
from spark_events.config import Secret
from spark_events.reporters.database.database_config import DatabaseConfig, database_url
from spark_events.reporters.database.database_reporter import DatabaseReporter


def _uptime(since: int, until: int, **dialect: str) -> str:
    """Return the documented query for uptime and downtime in any period."""
    text = (ROOT / "docs" / "reporters" / "database.md").read_text(encoding="utf-8")
    found = re.search(r"```sql\n(-- Any window.*?)```", text, re.DOTALL)
    assert found is not None
    query = found[1].replace(":since", str(since)).replace(":until", str(until))
    return query if dialect["in"] else query.replace("greatest(", "max(").replace("least(", "min(")


def _plain(value: object) -> object:
    return value if isinstance(value, str) else int(str(value))


def test_a_report_equals_the_views(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """A report on a database includes all events, and contains the same runs and failures as the database's views."""
    password = database.settings.get("password")
    url = database.settings["url"]
    config = DatabaseConfig(database_url.parse(url), None if password is None else Secret(password))
    events = busy_day().events
    reporter = DatabaseReporter(config)
    reporter.open()
    for first in range(0, len(events), 500):
        reporter.report(events[first : first + 500])
    reporter.close()
    given = url if password is None else url.replace("@", f":{quote(password, safe='')}@", 1)
    assert main(["report", given, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["events"] == len(events)
    assert password is None or password not in report["sources"][0]["source"]
    runs = database.query("SELECT query_run_id, status FROM spark_events_runs WHERE entity = 'query'")
    shown = [(run["id"], run["status"]) for query in report["queries"] for run in query["runs"]]
    assert sorted(shown) == sorted(tuple(run) for run in runs)
    window = {"since": report["since"], "until": report["until"], "in": "" if password is None else "postgresql"}
    shown_uptime = [
        (key["id"] if key["kind"] == "query" else key["name"], key["uptime_ms"], key["downtime_ms"], key["failed_runs"])
        for key in (*report["applications"], *report["queries"])
    ]
    assert sorted(shown_uptime) == sorted(tuple(map(_plain, row[:-1])) for row in database.query(_uptime(**window)))
    (count,) = database.query("SELECT count(*) FROM spark_events_failures")[0]
    assert report["failure_count"] == int(count)
    assert main(["report", given, "--json", "--since", "2026-11-19T05:00"]) == 0
    later = json.loads(capsys.readouterr().out)
    assert later["events"] < len(events)
    assert later["queries"][0]["uptime_percent"] < 100
    assert main(["report", given.replace("events", "gone"), "--json"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("spark-events: ")
    assert password is None or password not in errors


def _documented(title: str, *, in_postgresql: bool) -> str:
    """Return the documented statement whose comment begins with this title."""
    text = (ROOT / "docs" / "reporters" / "database.md").read_text(encoding="utf-8")
    found = re.search(rf"```sql\n(-- {title}.*?);\n```", text, re.DOTALL)
    assert found is not None, title
    return found[1] if in_postgresql else re.sub("->> '(.+?)'", r"""->> '$."\1"'""", found[1])


def test_documented_statements_equal_the_report(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """The documented statements on the events table return the same numbers as the report."""
    story = busy_day()
    password = database.settings.get("password")
    url = database.settings["url"]
    config = DatabaseConfig(database_url.parse(url), None if password is None else Secret(password))
    reporter = DatabaseReporter(config)
    reporter.open()
    for first in range(0, len(story.events), 500):
        reporter.report(story.events[first : first + 500])
    reporter.close()
    given = url if password is None else url.replace("@", f":{quote(password, safe='')}@", 1)
    assert main(["report", given, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)

    def ask(title: str) -> list[tuple[Any, ...]]:
        return database.query(_documented(title, in_postgresql=password is not None))

    nightly = next(one for one in report["applications"] if one["name"] == "nightly-report")
    rows = {row[0]: int(row[1]) for row in ask("Throughput")}
    assert rows == {query["name"]: query["commits"]["rows"] for query in report["queries"]}
    watermarks = ask("Watermark")
    assert len(watermarks) == 100
    assert all(str(row[2]) < str(row[3]) for row in watermarks)
    enriched = [tuple(map(_plain, row)) for row in ask("Enrichment")]
    assert enriched == [("lookup (/jobs/users.py:12)", 17_400, 0)]
    assert [(row[0], row[1], int(row[2])) for row in ask("Dropped")] == [("nightly-report", "queue-full", 17)]
    ((name, hours, cost),) = ask("Core-hours")
    assert (name, float(hours), float(cost)) == ("nightly-report", nightly["core_hours"], nightly["cost"])
    slow = [int(row[1]) for row in ask("Slow stages")]
    assert slow == [stage["stage"] for stage in report["slow_stages"]]
