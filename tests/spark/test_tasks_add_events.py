"""Test of events that tasks try to add."""

from __future__ import annotations

import pytest
from spark.harness import PATIENT, Lab, file_reporter, two_lines

from spark_events.jars import jar_path

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


def test_a_task_is_told_to_leave_events_to_the_driver(lab: Lab) -> None:
    """A task's event is not reported: Python raises an error, and the JVM of the executor logs one warning."""
    conf = {"spark.master": "local-cluster[1,1,1024]", "spark.executor.extraClassPath": str(jar_path())}
    defaults = {**two_lines(), **PATIENT, **file_reporter(lab.folder / "events.jsonl"), **conf}
    run = lab.run("tasks_add_events.py", defaults=defaults)
    assert run.process.returncode == 0, run.tail()
    truth = run.truth()
    assert truth["java"] == ["false"] * 4
    assert len(truth["python"]) == 2
    assert all("a task cannot add events" in error and "accumulator" in error for error in truth["python"])
    events = [event for event in run.events(lab.folder / "events.jsonl") if event["class_scope"] == "a.b"]
    assert [(event["name"], event["attributes"]["rows"]) for event in events] == [("FromTheDriver", 2)]
    (log,) = (run.folder / "spark-home" / "work").rglob("stderr")
    (warning,) = [line for line in log.read_text(encoding="utf-8").splitlines() if "[spark-events]" in line]
    assert "this JVM is an executor" in warning
    assert "accumulator" in warning
