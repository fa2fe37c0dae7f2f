"""Test that a stage that exclusions keep from running is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spark.harness import PATIENT, PLAIN_EVENT_LOG, Lab, file_reporter, replay, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SETTINGS = {
    # Two workers; dynamic allocation begins with the executor of one of them.
    "spark.master": "local-cluster[2,2,1024]",
    "spark.executor.memory": "1g",
    # Otherwise, dynamic allocation assumes one core, and requests both executors at once.
    "spark.executor.cores": "2",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    # Longer than the test takes on a busy machine.
    "spark.dynamicAllocation.executorIdleTimeout": "600s",
    "spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout": "600s",
    "spark.excludeOnFailure.enabled": "true",
    **PLAIN_EVENT_LOG,
}


def schedulable(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [event for event in events if event["name"] == "ExecutorStatusChangeEvent"]
    return [event for event in found if "SCHEDULABLE" in event["attributes"].get("spark.status.new", "")]


def test_a_stage_waits_for_an_executor_that_is_not_excluded(lab: Lab) -> None:
    reporter = file_reporter(Path("{folder}/events.jsonl"), "async-queued")
    run = lab.start("unschedulable.py", defaults={**two_lines(), **PATIENT, **SETTINGS, **reporter})
    run.wait_until_announced("done")
    run.command("end")
    assert run.wait() == 0, run.tail()
    assert run.own_messages == []
    reported = schedulable(run.events())
    assert [event["body"] for event in reported] == [
        "unschedulable: stage 0 cannot be scheduled: all executors are excluded for one of its tasks; dynamic "
        "allocation requests another executor, and Spark aborts the stage if the task cannot start in time",
        "unschedulable: stage 0 can be scheduled again",
    ]
    assert [event["severity"] for event in reported] == ["WARN", "INFO"]
    assert {event["attributes"]["spark.stage.id"] for event in reported} == {0}
    # The new executor lies between the two events.
    names = [event["attributes"].get("spark.status.new") for event in run.named("ExecutorStatusChangeEvent")]
    assert names == ["ADDED", "UNSCHEDULABLE", "ADDED", "SCHEDULABLE"]
    (log,) = run.folder.glob("app-*")
    path = run.folder / "replayed.jsonl"
    done = replay(run, log, settings={f"spark.{key}": value for key, value in file_reporter(path).items()})
    assert done.returncode == 0, done.stderr
    # Spark does not log these events.
    assert schedulable(run.events(path)) == []
