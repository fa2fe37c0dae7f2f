"""Tests of one alarm per failure with real Spark, live and replayed from the event log."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import eventually
from reporters.peers.alertmanager import Alertmanager, incidents
from reporters.peers.webhook import Receiver
from spark.harness import PATIENT, Lab, Run, file_reporter, line_of, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

LOG = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": "{folder}",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    "spark.yarn.historyServer.address": "history:18080",
}
#: The settle time is long: on a slow machine, the application may end a long time after the failure.
PATIENTLY = {"events.incident.settle": "1min", "spark.ui.enabled": "true", "spark.ui.port": "0"}
LINES = {**two_lines(), **PATIENT, **LOG, **PATIENTLY}
FAILING = ("udf", "query")
SURVIVING = ("caught", "cancelled")
ERROR = "ValueError: payment 1003 has no currency"


@pytest.fixture(scope="module")
def runs(lab: Lab) -> dict[str, Callable[[], Run]]:
    """Run the failures, two applications at a time. Return functions that wait for the run of a failure.

    The failures that do not fail the application are in one program, each with its own context.
    """
    audit = file_reporter(Path("{folder}/events.jsonl"), "async-queued")
    failing = {how: lab.background(lab.run, "incidents.py", how, defaults={**LINES, **audit}) for how in FAILING}
    surviving = lab.background(lab.run, "incidents.py", ",".join(SURVIVING), defaults={**LINES, **audit})

    def survived(how: str) -> Run:
        run = surviving.result()
        own = Run(run.folder / how, run.process, run.mark)
        (own.folder / "stderr").write_text(run.log, encoding="utf-8")
        return own

    return {
        **{how: future.result for how, future in failing.items()},
        **{how: functools.partial(survived, how) for how in SURVIVING},
    }


def alarms(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["severity"] in ("ERROR", "FATAL")]


def members(events: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Return the entity, severity and role of each event that belongs to an incident."""
    about = [(event["severity"], event["attributes"]) for event in events]
    return [(a["spark.entity"], severity, a["incident.role"]) for severity, a in about if "incident.id" in a]


def replayed(run: Run) -> list[dict[str, Any]]:
    (log,) = [path for path in run.folder.glob("local-*") if path.suffix != ".crc"]
    program = "import sys; from spark_events.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "replay", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_failing_udf_causes_one_alarm_of_its_application(runs: dict[str, Callable[[], Run]]) -> None:
    """A failing UDF causes one alarm of the application, with root cause, line and links.

    Other events are consequences.
    """
    run = runs["udf"]()
    assert run.process.returncode == 1, run.tail()
    (alarm,) = alarms(run.events())
    line = line_of("incidents.py", "# the udf error")
    assert alarm["body"].startswith("incidents: application failed")
    assert alarm["body"].endswith(f" failed: {ERROR} (incidents.py:{line})")
    assert (alarm["name"], alarm["class_scope"]) == ("JobFailureEvent", "spark.application")
    assert members(run.events()) == [
        ("stage", "INFO", "consequence"),
        ("job", "INFO", "consequence"),
        ("job", "INFO", "consequence"),
        ("application", "INFO", "consequence"),
        ("application", "ERROR", "alarm"),
    ]
    attributes = [event["attributes"] for event in run.events() if "incident.id" in event["attributes"]]
    assert len({found["incident.id"] for found in attributes}) == 1
    assert len({found["failure.fingerprint"] for found in attributes if "failure.fingerprint" in found}) == 1
    assert alarm["attributes"]["spark.ui.url"].startswith("http://")
    application = alarm["attributes"]["spark.app.id"]
    assert alarm["attributes"]["spark.history.url"] == f"http://history:18080/history/{application}/jobs/"


def test_a_caught_exception_causes_no_alarm(runs: dict[str, Callable[[], Run]]) -> None:
    """If the program catches an exception and then runs another job, the failure is not an alarm."""
    run = runs["caught"]()
    assert run.process.returncode == 0, run.tail()
    assert alarms(run.events()) == []
    assert members(run.events())[-1] == ("job", "WARN", "survived")


def test_a_failing_query_causes_one_alarm_of_its_application(runs: dict[str, Callable[[], Run]]) -> None:
    """The alarm of a failed query contains the query, its batch, the cause, and the query's incident key."""
    run = runs["query"]()
    assert run.process.returncode == 1, run.tail()
    (alarm,) = alarms(run.events())
    line = line_of("incidents.py", "# the error of the query")
    assert alarm["body"].endswith(f": query 'book-payments' failed at batch 1: {ERROR} (incidents.py:{line})")
    assert alarm["attributes"]["incident.key"] == "incidents/book-payments/failure"
    (query,) = run.named("JobFailureEvent", spark_entity="query")
    assert query["severity"] == "INFO"
    assert query["attributes"]["incident.id"] == alarm["attributes"]["incident.id"]


def test_a_cancelled_job_causes_no_alarm(runs: dict[str, Callable[[], Run]]) -> None:
    """A cancelled job causes no alarm."""
    run = runs["cancelled"]()
    assert run.process.returncode == 0, run.tail()
    assert alarms(run.events()) == []
    assert members(run.events()) == [("job", "INFO", "consequence"), ("job", "WARN", "survived")]


@pytest.mark.parametrize("how", FAILING + SURVIVING)
def test_a_replay_has_the_same_severities(runs: dict[str, Callable[[], Run]], how: str) -> None:
    """A replay has the same severities as the live run.

    If the event log does not contain the outcome, the job or query is the alarm.
    """
    run = runs[how]()
    live, replay = run.events(), replayed(run)
    assert len(alarms(replay)) == len(alarms(live))
    if any(event["class_scope"] == "spark.application" for event in alarms(replay)) or not alarms(live):
        found = [
            {e["event_id"]: e["severity"] for e in one if "incident.id" in e["attributes"]} for one in (live, replay)
        ]
        assert found[0] == found[1]


def test_a_query_that_fails_three_times_and_commits_is_one_alert(lab: Lab) -> None:
    """A query that fails three times and then commits opens and closes one alert at Alertmanager and PagerDuty."""
    with Alertmanager() as alertmanager, Receiver() as pagerduty:
        alerts = {
            "events.reporters": "audit,alerts,page",
            "events.incident.settle": "100ms",
            "events.reporter.alerts.type": "webhook",
            "events.reporter.alerts.format": "alertmanager",
            "events.reporter.alerts.url": alertmanager.url,
            "events.reporter.alerts.alerts.directory": "{folder}/alerts",
            "events.reporter.page.type": "webhook",
            "events.reporter.page.format": "pagerduty",
            "events.reporter.page.url": pagerduty.url,
            "events.reporter.page.routing-key": "R0UT1NG",
            "events.reporter.page.alerts.directory": "{folder}/alerts",
        }
        audit = file_reporter(Path("{folder}/events.jsonl"), "async-queued")
        run = lab.run("incidents.py", "restarted", defaults={**LINES, **audit, **alerts})
        assert run.process.returncode == 0, run.tail()
        assert len(alarms(run.events())) == 3
        title = alarms(run.events())[0]["body"]
        assert title.startswith(f"incidents: query 'book-payments' failed at batch 1: {ERROR} (incidents.py:")
        (incident,) = incidents(pagerduty.bodies())
        assert incident == ("spark-events:incidents/book-payments/failure", title, False)
        eventually(lambda: len(alertmanager.notifications("incidents")) > 1)
        (opened, closed) = alertmanager.notifications("incidents")
        assert (opened, closed[0]) == (("firing", title), "resolved")
        assert closed[1].startswith("incidents: query 'book-payments' committed batch 1")
        assert alertmanager.active("incidents") == []
