"""Test of at-least-once delivery: sidecars are killed at random during a stream with short triggers."""

from __future__ import annotations

import contextlib
import json
import random
import time
from pathlib import Path

import psutil
import pytest
from spark.harness import Lab, Run, two_lines

pytestmark = [
    pytest.mark.spark,
    pytest.mark.any_spark,
    pytest.mark.faults,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]

KILLS = 6
#: Pause between two kills, in seconds. This sleep does not wait for a condition.
PAUSES = (0.2, 1.0, 3.0)


def kill_sidecars(run: Run, seed: int) -> None:
    """Kill several sidecars, each a random time after the previous kill."""
    chance = random.Random(seed)
    for _ in range(KILLS):
        time.sleep(chance.choice(PAUSES))
        (pid, *_) = run.wait_for("a sidecar", run.sidecars)
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()


def test_every_commit_is_reported_or_counted(lab: Lab) -> None:
    folder = lab.folder / "killed"
    settings = {
        **two_lines(),
        "events.dispatcher.type": "async-queued",
        "events.reporter.audit.type": "file",
        "events.reporter.audit.path": str(folder / "events.jsonl"),
        "events.reporter.audit.delivery.guarantee": "at-least-once",
        "events.reporter.audit.spool.directory": str(folder / "spool"),
    }
    folder.mkdir()
    run = lab.start("triggers.py", defaults=settings)
    run.wait_until_announced("streaming")
    seed = random.randrange(1_000_000)
    kill_sidecars(run, seed)
    run.command("stop")
    run.wait()
    assert run.process.returncode == 0, (seed, run.tail())
    reported, lost = reported_and_lost(folder / "events.jsonl")
    batches = run.truth() + 1
    missing = set(range(batches)) - reported
    assert batches > 20
    assert len(missing) <= lost, (seed, sorted(missing), lost)
    # The queue of 1,024 records is large enough for pauses of up to 5 s. Therefore no record is lost.
    assert not missing, (seed, sorted(missing), lost)


def reported_and_lost(path: Path) -> tuple[set[int], int]:
    """Return the batch ids of the reported commits, and the value of ``lost`` in the last report."""
    batches: set[int] = set()
    lost = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            event = json.loads(line)
            attributes = event["attributes"]
            if event["name"] == "BatchCommitEvent":
                first = attributes.get("spark.batch.first_id", attributes["spark.batch.id"])
                batches.update(range(first, attributes["spark.batch.id"] + 1))
            elif event["name"] == "DispatcherReportEvent":
                lost = attributes["spark.events.lost"]
    return batches, lost
