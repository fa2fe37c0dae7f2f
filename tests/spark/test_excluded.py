"""Test that exclusions of executors are reported, live and in a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spark.harness import PATIENT, PLAIN_EVENT_LOG, TWO_EXECUTORS, Lab, file_reporter, replay, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SETTINGS = {
    **TWO_EXECUTORS,
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "1",
    "spark.excludeOnFailure.application.maxFailedTasksPerExecutor": "1",
    # Longer than a stage takes on a busy machine: after this time, Spark forgets a failure.
    "spark.excludeOnFailure.timeout": "20s",
    **PLAIN_EVENT_LOG,
}


def exclusions(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [event for event in events if event["name"] == "ExecutorStatusChangeEvent"]
    return [event for event in found if "spark.executor.scope" in event["attributes"]]


def test_an_executor_is_excluded_and_included_again(lab: Lab) -> None:
    """One failed task excludes its executor from the stage and from the application, until the timeout."""
    reporter = file_reporter(Path("{folder}/events.jsonl"), "async-queued")
    run = lab.start("excluded.py", defaults={**two_lines(), **PATIENT, **SETTINGS, **reporter})
    run.wait_for("the executor to be included again", lambda: len(exclusions(run.events())) == 3)
    run.command("end")
    assert run.wait() == 0, run.tail()
    assert run.own_messages == []
    stage, application, again = reported = exclusions(run.events())
    executor = stage["attributes"]["spark.executor.id"]
    assert [event["body"] for event in reported] == [
        f"excluded: executor {executor} was excluded from stage 0 after 1 failed task",
        f"excluded: executor {executor} was excluded from the application after 1 failed task",
        f"excluded: executor {executor} is no longer excluded",
    ]
    assert [event["severity"] for event in reported] == ["WARN", "WARN", "INFO"]
    assert (stage["attributes"]["spark.executor.scope"], stage["attributes"]["spark.stage.id"]) == ("stage", 0)
    assert application["attributes"]["spark.executor.scope"] == "application"
    assert again["attributes"]["spark.status.old"] == "EXCLUDED"
    (log,) = run.folder.glob("app-*")
    path = run.folder / "replayed.jsonl"
    settings = {"events.reporters": "audit", "events.reporter.audit.type": "file"}
    done = replay(run, log, settings={**settings, "events.reporter.audit.path": str(path)})
    assert done.returncode == 0, done.stderr
    replayed = exclusions(run.events(path))
    assert [event["event_id"] for event in replayed] == [event["event_id"] for event in reported]
    assert [event["body"] for event in replayed] == [event["body"] for event in reported]
