"""Tests of the root cause and label of real failures, in live and replayed events."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spark.harness import PATIENT, PLAIN_EVENT_LOG, Lab, Run, file_reporter, line_of, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

CRASHED = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
#: Beginning of the root cause and label of each failure, by job description.
FAILURES = {
    "segfault": (CRASHED, "SYSTEM"),
    "killed": (CRASHED, "SYSTEM"),
    "misleading": ("misleading.<locals>.PaymentError: payment failed", "USER"),
    "orc as parquet": ("java.lang.RuntimeException: file:", "USER"),
    "parquet as orc": ("org.apache.orc.FileFormatException: Malformed ORC file", "USER"),
    "another schema": ("org.apache.spark.sql.execution.datasources.SchemaColumnConvertNotSupportedException", "USER"),
    "beside a healthy stage": ("ZeroDivisionError: integer division or modulo by zero", "USER"),
}
LOCATIONS = {"misleading": "# the misleading error", "beside a healthy stage": "# the broken error"}
#: Settings with two attempts per task, and slots for the tasks of two stages.
SPARK = {
    "spark.master": "local[4,2]",
    "spark.local.dir": "{folder}/local",
    **PLAIN_EVENT_LOG,
}


@pytest.fixture(scope="module")
def run(lab: Lab) -> Run:
    """Return the finished job with all kinds of failures."""
    defaults = {**two_lines(), **PATIENT, **SPARK, **file_reporter(Path("{folder}/events.jsonl"))}
    found = lab.run("failures.py", defaults=defaults)
    assert found.process.returncode == 0, found.tail()
    assert "succeeded" not in found.truth().values()
    return found


@pytest.fixture(scope="module", params=["live", "replayed"])
def events(request: pytest.FixtureRequest, run: Run) -> list[dict[str, Any]]:
    """Return the events of the run, live from the listener or replayed from the event log."""
    if request.param == "live":
        return run.events()
    (log,) = [path for path in run.folder.glob("local-*") if path.suffix != ".crc"]
    program = "import sys; from spark_events.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "replay", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]


def failures(events: list[dict[str, Any]], entity: str, description: str) -> list[dict[str, Any]]:
    return [
        event["attributes"]
        for event in events
        if event["name"] == "JobFailureEvent"
        and event["attributes"]["spark.entity"] == entity
        and event["attributes"].get("spark.job.description") == description
    ]


@pytest.mark.parametrize("description", FAILURES)
def test_a_failed_job_has_its_root_cause_and_label(events: list[dict[str, Any]], description: str) -> None:
    """A failed job's event contains the first error, its line in the user's code, and the responsible party's label."""
    cause, label = FAILURES[description]
    found = failures(events, "job", description)
    attributes = found[0]
    assert attributes["failure.root_cause"].startswith(cause)
    assert attributes["failure.label.type"] == label
    if description in LOCATIONS:
        assert f"failures.py:{line_of('failures.py', LOCATIONS[description])} in " in attributes["failure.location"]
    else:
        assert "failure.location" not in attributes


@pytest.mark.parametrize("description", FAILURES)
def test_only_the_failed_stage_is_reported(events: list[dict[str, Any]], description: str) -> None:
    """Each failed job has one failed stage with the same cause. A stage that retried a task has no failure event."""
    cause, label = FAILURES[description]
    (attributes,) = failures(events, "stage", description)
    assert attributes["failure.root_cause"].startswith(cause)
    assert attributes["failure.label.type"] == label


def test_a_cancelled_job_is_no_failure(events: list[dict[str, Any]]) -> None:
    assert failures(events, "job", "cancelled") == []
    found = [event for event in events if event["attributes"].get("spark.status.new") == "CANCELLED"]
    assert [event["severity"] for event in found if event["attributes"]["spark.job.description"] == "cancelled"] == [
        "INFO"
    ]


def test_a_fetch_failure_names_the_executor(events: list[dict[str, Any]]) -> None:
    """The event of a fetch failure contains the executor of the missing shuffle output and the retry of the stage."""
    (attributes,) = failures(events, "stage", "missing shuffle output")
    assert attributes["failure.will_retry"] is True
    assert attributes["failure.executor.id"] == "driver"
    assert attributes["error.type"] == "org.apache.spark.shuffle.FetchFailedException"
    assert attributes["failure.root_cause"].startswith("org.apache.spark.shuffle.FetchFailedException: ")
