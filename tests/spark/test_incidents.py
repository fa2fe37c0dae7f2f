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
from spark.harness import PATIENT, PLAIN_EVENT_LOG, Lab, Run, file_reporter, line_of, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

LOG = {
    **PLAIN_EVENT_LOG,
    "spark.yarn.historyServer.address": "history:18080",
}
UI = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
LINES = {**two_lines(), **PATIENT, **LOG, **UI}
#: Failures that fail the application. The last part of a name is the dispatcher's type.
FAILING = ("udf", "query", "wrong-cause", "finally", "finally-query", "finally@sync", "query@sync")
SURVIVING = ("caught", "cancelled")
ERROR = "ValueError: payment 1003 has no currency"


@pytest.fixture(scope="module")
def runs(lab: Lab) -> dict[str, Callable[[], Run]]:
    """Run the failures, two applications at a time. Return functions that wait for the run of a failure.

    The failures that do not fail the application are in one program, each with its own context.
    """
    audit = file_reporter(Path("{folder}/events.jsonl"), "async-queued")
    failing = {}
    for name in FAILING:
        how, _, dispatcher = name.partition("@")
        defaults = {**LINES, **audit, "events.dispatcher.type": dispatcher or "async-queued"}
        failing[name] = lab.background(lab.run, "incidents.py", how, defaults=defaults)
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
    """A failing UDF is one alarm, of the application, which names the failed job as what failed before.

    Without `configure`, the exception that ended the program is unknown.
    """
    run = runs["udf"]()
    assert run.process.returncode == 1, run.tail()
    (alarm,) = alarms(run.events())
    line = line_of("incidents.py", "# the udf error")
    assert alarm["body"].startswith(
        "incidents: application failed with exit code 1: cause unknown; last failure before"
    )
    assert alarm["body"].endswith(f" earlier: {ERROR} (incidents.py:{line})")
    assert (alarm["name"], alarm["class_scope"]) == ("JobFailureEvent", "spark.application")
    found = members(run.events())
    # Spark wakes the thread of the SQL execution before it posts the end of the job: either can be first.
    assert found[0] == ("stage", "INFO", "member")
    assert sorted(found[1:4]) == [("job", "INFO", "member"), ("job", "WARN", "member"), ("sql", "INFO", "member")]
    assert found[4:] == [("application", "INFO", "member"), ("application", "ERROR", "alarm")]
    of_the_job = [event for event in run.events() if "incident.id" in event["attributes"]][:4]
    assert len({event["attributes"]["incident.id"] for event in of_the_job}) == 1
    attributes = [event["attributes"] for event in run.events() if event["name"] == "JobFailureEvent"]
    assert len({found["failure.fingerprint"] for found in attributes}) == 1
    assert alarm["attributes"]["spark.ui.url"].startswith("http://")
    application = alarm["attributes"]["spark.app.id"]
    assert alarm["attributes"]["spark.history.url"] == f"http://history:18080/history/{application}/jobs/"


def test_a_caught_exception_causes_no_alarm(runs: dict[str, Callable[[], Run]]) -> None:
    """If the program catches an exception and then runs another job, the failure is not an alarm."""
    run = runs["caught"]()
    assert run.process.returncode == 0, run.tail()
    assert alarms(run.events()) == []
    assert ("job", "WARN", "member") in members(run.events())


def test_an_unknown_cause_is_not_the_failure_that_was_caught(runs: dict[str, Callable[[], Run]]) -> None:
    """A program that catches a failure and dies of something else has an alarm, but not with the caught failure."""
    run = runs["wrong-cause"]()
    (alarm,) = alarms(run.events())
    assert alarm["body"].startswith(
        "incidents: application failed with exit code 1: cause unknown; last failure before"
    )
    assert alarm["attributes"]["failure.class"] == "UNKNOWN"
    assert "failure.root_cause" not in alarm["attributes"]


@pytest.mark.parametrize("how", ["finally", "finally@sync"])
def test_stop_in_finally_does_not_hide_a_failure(runs: dict[str, Callable[[], Run]], how: str) -> None:
    """Spark ends normally for the program that stops it in `finally`; its failure is an alarm and closes nothing."""
    run = runs[how]()
    assert run.process.returncode == 1, run.tail()
    (alarm,) = alarms(run.events())
    assert alarm["attributes"]["spark.entity"] == "application"
    assert ERROR in alarm["body"]
    assert not [e for e in run.events() if e["attributes"].get("incident.role") == "recovery"]


@pytest.mark.parametrize("how", ["finally-query", "query@sync"])
def test_a_failed_query_is_one_alarm_however_its_program_ends(runs: dict[str, Callable[[], Run]], how: str) -> None:
    run = runs[how]()
    (alarm,) = alarms(run.events())
    assert alarm["attributes"]["spark.entity"] == "query"
    recoveries = [e for e in run.events() if e["attributes"].get("incident.role") == "recovery"]
    # The first batch was committed; nothing after the failure is a recovery.
    assert [e["name"] for e in recoveries] == ["BatchCommitEvent"]


def test_a_failing_query_causes_one_alarm(runs: dict[str, Callable[[], Run]]) -> None:
    """The alarm of a failed query contains the query, its batch and the cause. Its application is a consequence."""
    run = runs["query"]()
    assert run.process.returncode == 1, run.tail()
    (alarm,) = alarms(run.events())
    line = line_of("incidents.py", "# the error of the query")
    assert alarm["body"] == f"incidents: query 'book-payments' failed at batch 1: {ERROR} (incidents.py:{line})"
    assert alarm["attributes"]["incident.key"] == "incidents/query=book-payments/failure"
    (application,) = run.named("JobFailureEvent", spark_entity="application")
    assert (application["severity"], application["attributes"]["incident.role"]) == ("INFO", "consequence")
    assert "after query 'book-payments' failed at batch 1" in application["body"]
    assert application["attributes"]["incident.id"] == alarm["event_id"]


def test_a_cancelled_job_causes_no_alarm(runs: dict[str, Callable[[], Run]]) -> None:
    run = runs["cancelled"]()
    assert run.process.returncode == 0, run.tail()
    assert alarms(run.events()) == []
    assert members(run.events()) == []


@pytest.mark.parametrize("how", FAILING + SURVIVING)
def test_a_replay_has_the_same_alarms(runs: dict[str, Callable[[], Run]], how: str) -> None:
    """A replay has the same alarms, although the event log does not contain the outcome."""
    run = runs[how]()
    live, replay = run.events(), replayed(run)
    assert [alarm["event_id"] for alarm in alarms(replay)] == [alarm["event_id"] for alarm in alarms(live)]
    found = [
        {
            e["event_id"]: (e["severity"], e["attributes"]["incident.role"])
            for e in events
            if "incident.id" in e["attributes"] and e["class_scope"] != "spark.application"
        }
        for events in (live, replay)
    ]
    assert found[0] == found[1]


def test_a_query_that_fails_three_times_and_commits_is_one_alert(lab: Lab) -> None:
    """A query that fails three times and then commits opens and closes one alert at Alertmanager and PagerDuty."""
    with Alertmanager() as alertmanager, Receiver() as pagerduty:
        alerts = {
            "events.reporters": "audit,alerts,page",
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
        shown = f"{ERROR} – incidents: query 'book-payments' failed at batch 1 (incidents.py:"
        assert incident.key == "spark-events:incidents/query=book-payments/failure"
        assert incident.summary.startswith(shown)
        assert not incident.is_open
        eventually(lambda: len(alertmanager.notifications("incidents")) > 1)
        (opened, closed) = alertmanager.notifications("incidents")
        assert (opened, closed[0]) == (("firing", incident.summary), "resolved")
        assert closed[1].startswith("incidents: query 'book-payments' committed batch 1")
        assert alertmanager.active("incidents") == []
