"""Tests of dashboards/: query results equal the report, and Grafana and the Collector accept the files."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from fakes import ROOT
from missing import missing
from report.stories import MINUTE, busy_day

from reporters.database.databases import OfPostgreSQL
from reporters.peers.otlp import BINARY
from reporters.peers.postgresql import PASSWORD, PostgreSQL
from spark_events import Severity
from spark_events.cli import main
from spark_events.config import Secret
from spark_events.reporters.database.database_config import DatabaseConfig, database_url
from spark_events.reporters.database.database_reporter import DatabaseReporter

GRAFANA = ROOT / "dashboards" / "grafana"
EXAMPLE = ROOT / "examples" / "observability"
DASHBOARDS = sorted((GRAFANA / "json").glob("*.json"))
SOURCES = GRAFANA / "provisioning" / "datasources" / "spark-events.yaml"
_RULES = yaml.safe_load((GRAFANA / "provisioning" / "alerting" / "spark-events.yaml").read_text(encoding="utf-8"))
RULES = {rule["uid"]: rule for rule in _RULES["groups"][0]["rules"]}


class History:
    """One day of events in PostgreSQL, the report on these events, and the rows of each panel for the same period."""

    def __init__(self, database: OfPostgreSQL, report: dict[str, Any]) -> None:
        self.database, self.report = database, report
        panels = json.loads((GRAFANA / "json" / "spark-events-postgresql.json").read_text(encoding="utf-8"))["panels"]
        self.panels = {panel["title"]: panel["targets"][0]["rawSql"] for panel in panels}
        self.unused = set(self.panels)

    def rows(self, title: str, **variables: str) -> list[dict[str, Any]]:
        """Replace the variables in a panel's query as Grafana does, and run the query."""
        self.unused.discard(title)
        names = {one["name"] for one in self.report["applications"]}
        known = {
            "${__from}": str(self.report["since"]),
            "${__to}": str(self.report["until"]),
            "$__interval_ms": str(1 << 50),
            "${application:sqlstring}": ", ".join(f"'{name}'" for name in sorted(names)),
            **variables,
        }
        return self.run(re.sub(r"\$\{[\w:]+\}|\$\w+", lambda found: known[found[0]], self.panels[title]))

    def run(self, statement: str) -> list[dict[str, Any]]:
        # Select each row as one JSON column, because the test compares the names of the columns.
        return [row for (row,) in self.database.query(f"SELECT row_to_json(panel) FROM ({statement}) AS panel")]

    @property
    def subjects(self) -> list[dict[str, Any]]:
        return [*self.report["applications"], *self.report["queries"]]


@pytest.fixture(scope="module")
def history(postgresql: PostgreSQL) -> History:
    """Return one day of events that exercise every part of the report."""
    if not postgresql.server.is_running:
        postgresql.start()
    postgresql.psql("CREATE DATABASE dashboards", database="postgres")
    database = OfPostgreSQL(postgresql, "dashboards")
    story = busy_day()
    # Add a lost application with a failure and violated limits, and an open circuit breaker.
    end = max(event.observed_ts_millis for event in story.events)
    other = story.application("other", "application_3_0001")
    other.status("RUNNING", end - 90 * MINUTE)
    query = other.query("limited", "limited-1")
    query.status("RUNNING", end - 89 * MINUTE)
    # The query starts again with a new checkpoint, and is the same query.
    again = other.query("limited", "limited-2", "another-checkpoint")
    again.status("RUNNING", end - 79 * MINUTE)
    for number, severity in enumerate((Severity.INFO, Severity.WARN, Severity.WARN)):
        took = {"spark.batch.duration.trigger_execution_ms": 20_000 * (number + 1), "spark.batch.count": 1}
        about = {"spark.batch.id": number, "spark.batch.rows_input": 10, "spark.batch.limit_ms": 30_000, **took}
        run = query if number < 2 else again
        run.event("BatchCommitEvent", end - (80 - number) * MINUTE, severity, **about)
    full: dict[str, Any] = {"failure.class": "DISK_FULL", "failure.retry_useful": True}
    other.failure(end - 75 * MINUTE, "job", "IOException: No space left on device", **full)
    breaker = {"spark.status.old": "closed", "spark.status.new": "open", "spark.status.reason": "refused"}
    opened = {"spark.events.reporter.name": "audit", **breaker}
    running = max(str(one.attributes["spark.app.id"]) for one in story.events if "application_1" in str(one.attributes))
    story.application("clickstream", running).event("ReporterStatusChangeEvent", end - MINUTE, Severity.WARN, **opened)
    other.status("LOST", end - 70 * MINUTE)
    url = database.settings["url"]
    reporter = DatabaseReporter(DatabaseConfig(database_url.parse(url), Secret(PASSWORD)))
    reporter.open()
    reporter.report(story.events)
    reporter.close()
    return History(database, _report(url.replace("@", f":{quote(PASSWORD, safe='')}@", 1)))


def _report(url: str) -> dict[str, Any]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main(["report", url, "--json"]) == 0
    found: dict[str, Any] = json.loads(output.getvalue())
    return found


def test_uptime_equals_the_report(history: History) -> None:
    """Uptime, downtime, availability, runs and outcome of each application and query equal the report."""
    keys = ("kind", "name", "uptime_ms", "downtime_ms", "failed_runs", "outcome", "run_count")
    expected = sorted(tuple(one[key] for key in keys) for one in history.subjects)
    columns = ("entity", "name", "uptime_ms", "downtime_ms", "failed_runs", "status", "runs")
    rows = history.rows("Uptime")
    assert sorted(tuple(row[column] for column in columns) for row in rows) == expected
    shares = {(one["kind"], one["name"]): one["uptime_percent"] for one in history.subjects}
    for row in rows:
        share = shares[row["entity"], row["name"]]
        assert row["availability"] == (None if share is None else pytest.approx(share))
    known = [share for share in shares.values() if share is not None]
    assert history.rows("Lowest availability")[0]["lowest availability"] == pytest.approx(min(known))
    runs = [(run["id"], run["status"]) for one in history.subjects for run in one["runs"]]
    assert sorted((row["run"], row["status"]) for row in history.rows("Runs")) == sorted(runs)


def test_failures_equal_the_report(history: History) -> None:
    """The numbers and times of failures, causes, lost executors and lost records equal the report."""
    assert history.rows("Failures") == [{"failures": history.report["failure_count"]}]
    groups = {
        (
            one["key"],
            one["count"],
            one["first"],
            one["last"],
            one["failure_class"],
        )
        for one in history.report["failures"]
    }
    rows = history.rows("Failures by cause")
    columns = ("cause_key", "failures", "first", "last", "failure_class")
    assert {tuple(row[column] for column in columns) for row in rows} == groups
    assert {row["failure_class"] for row in rows} == {
        None,
        "USER_CODE",
        "FETCH_FAILURE",
        "MISSING_FILE_OR_TABLE",
        "DISK_FULL",
    }
    executors = [[loss, count] for one in history.report["applications"] for loss, count in one["executors_lost"]]
    assert [[row["loss"], row["executors"]] for row in history.rows("Lost executors")] == executors
    assert history.rows("Lost records and events") == [{"lost": sum(one["count"] for one in history.report["lost"])}]


def test_incidents_cover_the_failures_of_the_report(history: History) -> None:
    """Each alarm belongs to one incident. The report's overdue work and open breakers are also incidents."""
    rows = history.rows("Incidents")
    failures = [row for row in rows if row["kind"] == "failure"]
    [alarms] = history.run("SELECT count(*) AS alarms FROM spark_events_failures WHERE incident_role = 'alarm'")
    assert sum(row["alarms"] for row in failures) == alarms["alarms"] > 0
    overdue = [work for one in history.subjects for work in one["overdue"]]
    assert sum(row["kind"] == "overdue" for row in rows) == len(overdue) == 1
    assert [row["incident_key"] for row in rows if row["kind"] == "breaker"] == ["clickstream/reporter audit"]
    assert history.rows("Open incidents") == [{"open incidents": sum(row["is_open"] for row in rows)}]


def test_commits_equal_the_report(history: History) -> None:
    """Commits, batches, rows, quantiles and violated limits of each query equal the report, in tables and in charts."""
    queries = {one["name"]: one for one in history.report["queries"]}
    found = history.rows("Commits")
    rows = {row["query"]: row for row in found}
    assert rows.keys() == queries.keys()
    assert len(found) == len(queries)
    names = {"commits": "events", "batches": "batches", "rows": "rows", "over_limit": "over_sla"}
    quantiles = {"p50": "p50_ms", "p95": "p95_ms", "p99": "p99_ms", "longest": "max_ms"}
    for name, row in rows.items():
        commits = queries[name]["commits"]
        assert {key: row[key] for key in names} == {key: commits[known] for key, known in names.items()}
        assert {key: row[key] for key in quantiles} == pytest.approx({k: commits[v] for k, v in quantiles.items()})

    def charted(title: str) -> dict[str, Any]:
        points = history.rows(title)
        assert len(points) == len(queries)
        return {row["metric"]: row["value"] for row in points}

    assert charted("Median batch duration") == pytest.approx({n: q["commits"]["p50_ms"] for n, q in queries.items()})
    assert charted("p99 of batch durations") == pytest.approx({n: q["commits"]["p99_ms"] for n, q in queries.items()})
    assert charted("Input rows") == {name: query["commits"]["rows"] for name, query in queries.items()}
    lags = {name: (query["watermark"] or {}).get("max_lag_ms") for name, query in queries.items()}
    assert charted("Watermark lag") == lags
    over = sum(query["commits"]["over_sla"] for query in queries.values())
    assert history.rows("Commits over their limit") == [{"commits": over}]
    violated = history.rows("Violated limits")
    assert sum(row["kind"] == "commit" for row in violated) == over == 2
    assert {row["limit_ms"] for row in violated} == {30_000, 300_000}
    # With buckets of one hour, each row and batch is in exactly one bucket.
    by_hour = history.rows("Input rows", **{"$__interval_ms": "3600000"})
    assert len(by_hour) > len(queries)
    assert sum(row["value"] for row in by_hour) == sum(query["commits"]["rows"] for query in queries.values())


def test_slow_stages_equal_the_report(history: History) -> None:
    """The slow stages equal the report in order, times, lost times and problems. The panel adds task durations."""
    names = {"application": "application", "stage": "stage", "attempt": "attempt", "name": "name", "lost_ms": "lost_ms"}
    names |= {"duration_ms": "duration_ms", "body": "text"}
    rows, stages = history.rows("Slow stages"), history.report["slow_stages"]
    assert [{key: row[key] for key in names} for row in rows] == [{k: s[v] for k, v in names.items()} for s in stages]
    assert [datetime.fromisoformat(row["time"]).timestamp() for row in rows] == [one["at"] / 1000 for one in stages]
    problems = [", ".join(sorted(kind for kind, _ in one["problems"])) for one in stages]
    assert [row["problems"] for row in rows] == problems
    assert set(problems) == {"skew, spill"}
    assert [(row["p50"], row["p95"], row["max"]) for row in rows] == [(1000, 2000, s["lost_ms"]) for s in stages]


def test_costs_equal_the_report(history: History) -> None:
    names = {"core_hours": "core_hours", "used": "core_hours_used", "idle": "core_hours_idle", "cost": "cost"}
    expected = {
        one["name"]: {key: one[known] for key, known in names.items()}
        for one in history.report["applications"]
        if one["core_hours"] is not None
    }
    rows = history.rows("Core-hours and cost")
    assert {row["application"]: {key: row[key] for key in names} for row in rows} == expected
    assert expected.keys() == {"nightly-report"}


def test_enrichment_equals_the_report(history: History) -> None:
    """Batches, calls, retries, rows without an answer and p99 of each function equal the report."""
    names = {"function": "function", "batches": "batches", "failed_batches": "failed_batches", "calls": "calls"}
    names |= {"retries": "retries", "unanswered_rows": "unanswered_rows", "p99": "p99_ms"}
    expected = [{key: one[known] for key, known in names.items()} for s in history.subjects for one in s["enrichment"]]
    assert [{key: row[key] for key in names} for row in history.rows("Enrichment")] == expected


def test_rules_fire_for_problems_in_the_report(history: History) -> None:
    """Each alert rule on PostgreSQL returns one row per alert, with one number and the labels that the rule uses."""
    found: dict[str, Sequence[dict[str, Any]]] = {}
    for uid, rule in RULES.items():
        model = rule["data"][0]["model"]
        if "rawSql" in model:
            rows = found[uid] = history.run(model["rawSql"])
            for row in rows:
                assert [key for key, value in row.items() if not isinstance(value, str)] == [list(row)[-1]]
                assert set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) <= row.keys()
    down = {(row["entity"], row["name"]) for row in found["spark-events-down"]}
    bad = ("FAILED", "LOST", "UNKNOWN")
    assert down == {(s["kind"], s["name"]) for s in history.subjects if s["is_long_running"] and s["outcome"] in bad}
    assert ("application", "other") in down
    assert [row["incident_key"] for row in found["spark-events-overdue"]] == ["clickstream/sessions/overdue batch"]
    assert [row["incident_key"] for row in found["spark-events-breaker"]] == ["clickstream/reporter audit"]
    opened = {row["incident_key"] for row in history.rows("Incidents") if row["is_open"] and row["kind"] == "failure"}
    assert {row["incident_key"] for row in found["spark-events-incident"]} == opened
    assert found["spark-events-slow-commits"] == []


def test_what_is_wrong_and_states_equal_the_report(history: History) -> None:
    """Grafana's panel of problems has those of the report, as of now; the state timeline has each run's end."""
    rows = history.rows("What is wrong now")
    known = {(one["kind"], one["subject"].partition(":")[2]) for one in history.report["problems"]}
    assert {("failure", "nightly-report")} <= {(row["kind"], row["name"]) for row in rows} & known
    assert {row["kind"] for row in rows} <= {"failure", "ended", "silent", "crash-loop", "overdue", "breaker"}
    silent = {(one["kind"], one["name"]) for one in history.subjects if one["outcome"] == "SILENT"}
    silence = history.rows("Silence")
    assert {(row["entity"], row["name"]) for row in silence} == silent
    assert {row["whose_silence"] for row in silence} <= {"application", "query", "source"}
    states = history.rows("States")
    ends = [run for one in history.subjects for run in one["runs"] if run["end"] is not None]
    assert len(states) == len(ends) + sum(len(one["runs"]) for one in history.subjects) + len(silent)
    last = {row["metric"]: row["state"] for row in states}
    assert {name for name, state in last.items() if state == "SILENT"} == {f"{kind} {name}" for kind, name in silent}


def test_every_panel_is_compared(history: History) -> None:
    """The tests of this module have run the query of every panel."""
    assert not history.unused


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_grafana_s_models_accept_the_dashboards(path: Path) -> None:
    """Grafana's models decode and encode each dashboard without loss, and its panels do not overlap."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    given = json.loads(path.read_text(encoding="utf-8"))
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(given)))
    # The models know only the target of annotations of Grafana's own data source.
    assert [place for place in _lost(given, again) if not place.startswith("/annotations/list/0/target/")] == []
    cells = [
        (x, y)
        for panel in given["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23


def _lost(given: Any, again: Any, place: str = "") -> list[str]:
    """Return the paths of missing or different values."""
    if isinstance(given, dict) and isinstance(again, dict):
        return [lost for key in given for lost in _lost(given[key], again.get(key), f"{place}/{key}")]
    if isinstance(given, list) and isinstance(again, list) and len(given) == len(again):
        return [lost for number, one in enumerate(given) for lost in _lost(one, again[number], f"{place}/{number}")]
    return [] if given == again else [place]


@pytest.mark.parametrize("uid", RULES)
def test_grafana_s_models_accept_the_rules(uid: str) -> None:
    """Grafana's models decode and encode each rule without loss. The rule's query has no Grafana variables."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.alerting import Rule

    rule = RULES[uid]
    again = json.loads(JSONEncoder().encode(Rule.from_json(rule)))
    assert _lost(rule, again) == []
    assert "$" not in json.dumps(rule["data"])


def test_dashboards_rules_and_sources_name_the_same_uids() -> None:
    """The example provisions every data source to which a dashboard refers."""
    sources = yaml.safe_load(SOURCES.read_text(encoding="utf-8"))
    uids = {source["uid"]: source["type"] for source in sources["datasources"]}
    for path in DASHBOARDS:
        found = re.findall(r'"type": "([\w-]+)",\s+"uid": "([\w-]+)"', path.read_text(encoding="utf-8"))
        assert found
        assert {uid: kind for kind, uid in found}.items() <= uids.items()
    asked = {part["datasourceUid"] for rule in RULES.values() for part in rule["data"]}
    assert asked == {*uids, "__expr__"}


def test_the_page_lists_every_panel_and_rule() -> None:
    """The example's page contains each panel's description and each rule's condition."""
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for path in DASHBOARDS:
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        section = page.partition(f'## Dashboard "{dashboard["title"]}"')[2].partition("\n## ")[0]
        rows = re.findall(r"^\| (.+) \| (.+) \|$", section, re.MULTILINE)[1:]
        assert rows == [(panel["title"], panel["description"]) for panel in dashboard["panels"]]
    alerts = re.findall(r"^\| (.+?) \|", page.partition("## Alert rules")[2].partition("\n## ")[0], re.MULTILINE)
    assert alerts[1:] == [rule["title"] for rule in RULES.values()]


def test_the_example_mounts_existing_files() -> None:
    """Every mounted file exists, and all variables of the data sources are set."""
    compose = yaml.safe_load((EXAMPLE / "compose.yaml").read_text(encoding="utf-8"))
    for service in compose["services"].values():
        assert re.fullmatch(r"[\w./-]+:\d[\w.]*", service["image"])
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (EXAMPLE / source).exists(), volume
    sources = SOURCES.read_text(encoding="utf-8")
    assert set(re.findall(r"\$(\w+)", sources)) <= compose["services"]["grafana"]["environment"].keys()


def test_a_collector_accepts_the_example_s_configuration(tmp_path: Path) -> None:
    """A real Collector accepts the configuration.

    In the test, a file exporter replaces the OTLP/HTTP exporter.
    """
    if not BINARY.exists():
        missing("no OpenTelemetry Collector: run `make collector`")
    config = yaml.safe_load((EXAMPLE / "collector.yaml").read_text(encoding="utf-8"))
    pipeline = config["service"]["pipelines"]["logs"]
    assert pipeline["exporters"] == list(config["exporters"]) == ["otlphttp/loki"]
    config["exporters"], pipeline["exporters"] = {"file": {"path": str(tmp_path / "out")}}, ["file"]
    (tmp_path / "collector.json").write_text(json.dumps(config))
    done = subprocess.run(
        [BINARY, "validate", f"--config=file:{tmp_path / 'collector.json'}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_silence_states_and_failures_are_shown(path: Path) -> None:
    """Each dashboard has a panel of silence, a state timeline, and annotations of failures."""
    dashboard = json.loads(path.read_text(encoding="utf-8"))
    shown = {panel["title"]: panel["type"] for panel in dashboard["panels"]}
    assert (shown["Silence"], shown["States"]) == ("table", "state-timeline")
    assert [one["name"] for one in dashboard["annotations"]["list"] if one["enable"]] == ["Failures"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_has_links(path: Path) -> None:
    """Every panel links to the report, to the history server and to the other dashboard."""
    other = {one.stem for one in DASHBOARDS} - {path.stem}
    for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
        urls = [link["url"] for link in panel["links"]]
        assert urls == ["${report}", "${history}", *(f"/d/{uid}" for uid in other)]


def test_every_panel_that_names_work_names_its_environment() -> None:
    """Panels of one number name nothing, and the key of an incident contains the environment."""
    panels = json.loads((GRAFANA / "json" / "spark-events-postgresql.json").read_text(encoding="utf-8"))["panels"]
    statements = {panel["title"]: panel["targets"][0]["rawSql"] for panel in panels if panel["type"] != "stat"}
    unnamed = {title for title, statement in statements.items() if "environment" not in statement}
    assert unnamed == {"Incidents"}
