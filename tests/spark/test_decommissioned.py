"""Test that the decommissioning of an executor is reported once, although Spark reports its end twice."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from spark.harness import PATIENT, PLAIN_EVENT_LOG, TWO_EXECUTORS, Lab, file_reporter, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SETTINGS = {
    **TWO_EXECUTORS,
    "spark.decommission.enabled": "true",
    **PLAIN_EVENT_LOG,
}


def test_a_decommissioned_executor_is_lost_once(lab: Lab) -> None:
    """SIGPWR is the signal by which Kubernetes decommissions an executor."""
    reporter = file_reporter(Path("{folder}/events.jsonl"), "async-queued")
    run = lab.start("decommissioned.py", defaults={**two_lines(), **PATIENT, **SETTINGS, **reporter})
    run.wait_until_announced("done")

    def removals() -> list[dict[str, Any]]:
        (log,) = run.folder.glob("app-*")
        lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
        found = [json.loads(line) for line in lines if "SparkListenerExecutorRemoved" in line]
        return found if len(found) > 1 else []

    executor = run.executors()[0]
    run.signal(executor.pid, signal.SIGPWR)
    first, second = run.wait_for("both reports of Spark", removals)
    run.command("end")
    assert run.wait() == 0, run.tail()
    assert run.own_messages == []
    assert first["Executor ID"] == second["Executor ID"]
    assert first["Removed Reason"].startswith("Executor decommission")
    (lost,) = run.named("ExecutorStatusChangeEvent", spark_executor_id=first["Executor ID"], spark_status_new="LOST")
    assert lost["attributes"]["spark.executor.loss"] == "DECOMMISSIONED"
    assert lost["body"].endswith("was lost: it was decommissioned")
