"""Tests of the status change if a real cluster loses an executor with its task output."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from spark.harness import PATIENT, PLAIN_EVENT_LOG, Lab, Run, file_reporter, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.long, pytest.mark.timeout(1200)]

SETTINGS = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "1g",
    # Start both executors before the first task, so that each executor stores a part of the shuffle output.
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "10min",
    "spark.cores.max": "2",
    **PLAIN_EVENT_LOG,
}
ALL, NOT_ALL, FINISHED = "ALL_RUNNING_OR_FINISHED", "NOT_ALL_RUNNING_OR_FINISHED", "ALL_FINISHED"


def worker(run: Run, task: int) -> int:
    """Return the process of the executor that first ran a task."""
    path = run.folder / "here" / str(task)
    return int(path.read_text(encoding="utf-8").split()[0]) if path.exists() and path.stat().st_size else 0


def edges(run: Run) -> list[dict[str, Any]]:
    """Return the reported status changes of the first stage."""
    return run.named("AllSubtasksStatusChangeEvent", spark_stage_id=0, spark_stage_attempt=0)


@pytest.fixture(scope="module")
def run(lab: Lab) -> Run:
    """Return the finished job.

    While the job ran, the test killed the executor of a finished task of the first stage.
    """
    defaults = {**two_lines(), **PATIENT, **SETTINGS, **file_reporter(Path("{folder}/events.jsonl"), "async-queued")}
    run = lab.start("lost_output.py", defaults=defaults)
    run.wait_for("the last task", lambda: worker(run, 2))
    run.wait_until_announced("half")
    run.wait_for("the edge that is reported before", lambda: edges(run))
    stands = psutil.Process(worker(run, 2))
    lost = [executor for executor in run.executors() if executor not in stands.parents()]
    assert len(lost) == 1
    # Wait, so that the time of the loss differs from the end of the task.
    before = time.time()
    run.wait_for("time to pass", lambda: time.time() > before + 2)
    run.signal(lost[0].pid, signal.SIGKILL)
    run.wait_for("the lost task to run again", lambda: len(edges(run)) >= 3)
    run.command("go")
    assert run.wait() == 0, run.tail()
    return run


@pytest.fixture(scope="module")
def log(run: Run) -> Path:
    """Return Spark's event log."""
    (path,) = run.folder.glob("app-*")
    return path


def test_the_status_change_has_the_time_of_the_loss(run: Run, log: Path) -> None:
    """The status change has the timestamp of the loss, although Spark's event contains the earlier end of the task."""
    reported = edges(run)
    assert [edge["attributes"]["spark.status.new"] for edge in reported] == [ALL, NOT_ALL, ALL, FINISHED]
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    (resubmitted,) = [one for one in lines if one.get("Task End Reason", {}).get("Reason") == "Resubmitted"]
    (removed,) = [one["Timestamp"] for one in lines if one["Event"] == "SparkListenerExecutorRemoved"][:1]
    launched = [
        one["Task Info"]["Launch Time"]
        for one in lines
        if one["Event"] == "SparkListenerTaskStart" and one["Task Info"]["Index"] == resubmitted["Task Info"]["Index"]
    ]
    assert reported[1]["observed_ts_millis"] in (removed, launched[1])
    assert reported[1]["observed_ts_millis"] > resubmitted["Task Info"]["Finish Time"] + 2_000
    times = [edge["observed_ts_millis"] for edge in reported]
    assert times == sorted(times)


def test_a_replay_has_the_same_status_changes(run: Run, log: Path) -> None:
    """A replay yields the same status changes with the same timestamps and ids; only `sequence` may differ.

    Two Spark threads report the loss of the executor and the loss of its output. Therefore the listener and the
    event log may receive these two events in different orders.
    """
    program = "import sys; from spark_events.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "replay", str(log), "--name", "AllSubtasksStatusChangeEvent"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    live = run.named("AllSubtasksStatusChangeEvent")
    assert len(live) >= 6
    replayed = [json.loads(line) for line in done.stdout.splitlines()]
    for event in [*live, *replayed]:
        del event["sequence"]
    assert replayed == live
