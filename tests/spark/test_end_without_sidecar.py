"""Test of a run whose sidecar dies for good: the driver stores the run's end, and the next run reports it."""

from __future__ import annotations

import psutil
import pytest
from spark.harness import Lab, Run, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1200)]


def test_the_next_run_reports_the_end_and_no_loss(lab: Lab) -> None:
    """The sidecar is killed and not restarted, and the driver ends in order: the next run reports no LOST event."""
    folder = lab.folder / "without-sidecar"
    folder.mkdir()
    settings = {
        **two_lines(),
        "events.sidecar.restarts.max": "0",
        "events.reporter.audit.type": "file",
        "events.reporter.audit.path": str(folder / "events.jsonl"),
        "events.reporter.audit.delivery.guarantee": "at-least-once",
        "events.reporter.audit.spool.directory": str(folder / "spool"),
    }
    first = _streaming(lab, settings)
    first.wait_for("the mark of the run", lambda: list((folder / "spool").rglob("start.json")))
    for pid in first.sidecars():
        psutil.Process(pid).kill()
    first.wait_for("the end of the sidecar", lambda: not first.sidecars())
    _stop(first)
    second = _streaming(lab, settings)
    late = second.wait_for(
        "the end of the first run",
        lambda: [event for event in second.events(folder / "events.jsonl") if "sidecar had died" in event["body"]],
    )
    _stop(second)
    changes = [
        event
        for event in second.events(folder / "events.jsonl")
        if event["name"] == "JobStatusChangeEvent" and event["attributes"].get("spark.entity") == "application"
    ]
    assert [event["attributes"]["spark.status.new"] for event in changes] == [
        "RUNNING",
        "RUNNING",
        # Work without a sidecar may have failed before stop().
        "ENDED",
        "FINISHED",
    ]
    assert late[0]["attributes"]["spark.app.id"] == changes[0]["attributes"]["spark.app.id"]
    assert list((folder / "spool").rglob("*.json")) == []


def _streaming(lab: Lab, settings: dict[str, str]) -> Run:
    run = lab.start("triggers.py", defaults=settings)
    run.wait_until_announced("streaming")
    return run


def _stop(run: Run) -> None:
    run.command("stop")
    run.wait()
    assert run.process.returncode == 0, run.tail()
