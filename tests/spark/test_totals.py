"""Tests that the live totals, from the shim's records, equal the totals replayed from the event log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from spark.harness import SMALL_SPARK, Lab, two_lines
from spark.sidecar_double import make, records

from spark_events.records import types as r
from spark_events.records.event_log.log_files import find_logs
from spark_events.records.event_log.log_reader import EventLogReader

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

#: Fields that only live records contain: the time of receipt, and the memory from executors' heartbeats.
ONLY_LIVE = ("seq", "at", *(name for name in r.ApplicationTotals.__struct_fields__ if name.startswith("peak_")))
Both = tuple[list[Any], list[Any]]


@pytest.fixture(scope="module")
def both(lab: Lab) -> Both:
    """Records of one run: the records that the shim sent, and the records of a replay."""
    double, log = lab.folder / "double", lab.folder / "log"
    log.mkdir()
    settings = {
        **two_lines(),
        **make(double, "talks"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(log),
        "spark.eventLog.compress": "false",
        # Record all stages, and send totals after each job and stage.
        "events.streaming-stages.enabled": "true",
        "events.summary.interval": "1ms",
    }
    run = lab.run("totals.py", defaults=settings, small={**SMALL_SPARK, "spark.master": "local[2,3]"})
    assert run.process.returncode == 0, run.tail()
    live = [r.decode(json.dumps(one).encode()) for one in records(double)]
    (found,) = find_logs(log)
    complaints: list[str] = []
    replayed = list(EventLogReader(found, complaints.append, 0.001).records())
    assert complaints == []
    return live, replayed


def of(kind: type, of_all: list[Any]) -> list[dict[str, Any]]:
    """Return the records of a kind, without the fields that only live records contain."""
    found = [msgspec.to_builtins(record) for record in of_all if type(record) is kind]
    return [{name: value for name, value in one.items() if name not in ONLY_LIVE} for one in found]


def test_totals_of_stages_are_equal(both: Both) -> None:
    live, replayed = (of(r.StageCompleted, one) for one in both)
    assert [one["totals"] for one in live] == [one["totals"] for one in replayed]
    # Control: the stages have the properties that the test compares.
    sums = {name: sum(one["totals"][name] for one in live) for name in r.TaskTotals.__struct_fields__}
    assert sums["failed"] >= 2
    zero = {name for name, value in sums.items() if value == 0}
    assert zero <= {
        "killed",
        "speculative",
        "speculative_won",
        "getting_result_ms",
        "gc_ms",
        "spill_memory_bytes",
        "spill_disk_bytes",
    } | {*("fetch_wait_ms", "result_serialize_ms", "scheduler_delay_ms")}
    (uneven,) = [one["totals"] for one in live if one["tasks"] == 12]
    assert (uneven["tasks"], uneven["failed"]) == (13, 1)
    assert 0 <= uneven["slowest_task"] < 12
    # The last task sleeps for 550 ms.
    assert 500 <= uneven["duration_max_ms"] <= uneven["ended"] - uneven["started"]


def test_totals_of_the_application_are_equal(both: Both) -> None:
    live, replayed = (of(r.ApplicationTotals, one) for one in both)
    assert live == replayed
    assert [one["final"] for one in live] == [False] * (len(live) - 1) + [True]
    last, stages = live[-1], of(r.StageCompleted, both[0])
    assert (last["jobs_failed"], last["stages_failed"], last["cores_now"]) == (1, 1, 2)
    assert last["stages"] == len(stages)
    assert last["totals"]["run_ms"] == sum(one["totals"]["run_ms"] for one in stages)
    assert 0 < last["busy_ms"] == last["totals"]["task_ms"] <= last["core_ms"]


def test_starts_of_sql_executions_are_equal(both: Both) -> None:
    """The starts of SQL executions are equal, and contain the paths that the executions read and write."""
    live, replayed = (of(r.SqlExecutionStart, one) for one in both)
    assert live == replayed
    found = [record for record in both[0] if type(record) is r.SqlExecutionStart]
    names = [([Path(name).name for name in one.reads], [Path(name).name for name in one.writes]) for one in found]
    assert ([], ["in"]) in names
    assert (["in"], ["out"]) in names
