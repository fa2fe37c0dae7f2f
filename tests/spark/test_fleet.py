"""Test of a Spark job that reads many event logs into one Parquet folder, while an executor is killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fakes import ROOT
from spark.harness import Lab, Run

from spark_events.event import Event
from spark_events.fleet.replay_task import READ
from spark_events.records.event_log.log_files import find_logs
from spark_events.translate.replays import LogCounts, Selection, read_log
from spark_events.translate.translation_config import TranslateConfig

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.faults, pytest.mark.timeout(3600)]

FIXTURES = ROOT / "tests" / "unit" / "records" / "fixtures"
TEMPLATE = (FIXTURES / "batch_udf-4.3.jsonl").read_text(encoding="utf-8")
LOGS = 2_000
CLUSTER = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "1g",
    "spark.cores.max": "2",
    "spark.local.dir": "{folder}/local",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "true",
}


def text(number: int) -> str:
    """Return the log of an application of its own."""
    return TEMPLATE.replace("local-1795262884130", f"local-{1795262880000 + number}")


def write(folder: Path, number: int, content: str, suffix: str = "") -> Path:
    path = folder / f"local-{1795262880000 + number}{suffix}"
    path.write_text(content, encoding="utf-8")
    return path


def fleet(lab: Lab, table: Path, logs: Path) -> Run:
    return lab.start("", str(ROOT / "examples" / "fleet.py"), str(table), str(logs), defaults=CLUSTER)


def stored(table: Path) -> list[dict[str, object]]:
    rows = pq.read_table(table, columns=["event_id", "name", "severity", "body"]).to_pylist()
    assert len({row["event_id"] for row in rows}) == len(rows), "an event was written twice"
    return [dict(row) for row in rows]


def replayed(folder: Path) -> set[str]:
    """Return the ids of the events that one process reads from the same logs."""
    found: list[Event] = []
    for log in find_logs(folder):
        for events in read_log(log, TranslateConfig(), Selection(), LogCounts(), ends=not log.in_progress):
            found += events
    return {event.event_id for event in found}


def test_each_event_is_written_once(lab: Lab, tmp_path: Path) -> None:
    """An executor is killed in the first run, one log is damaged, and one grows until the second run.

    Each of three runs leaves the events that one process reads, once. The last run has nothing to read.
    """
    logs, table = tmp_path / "logs", tmp_path / "table"
    logs.mkdir()
    for number in range(LOGS):
        write(logs, number, text(number))
    first, *lines = text(LOGS).splitlines(keepends=True)
    damaged = write(logs, LOGS, "".join([first, *lines[:5], '{"Event":"SparkListenerJob\n', *lines[5:]]))
    half = TEMPLATE.splitlines(keepends=True)[:12]
    growing = write(logs, LOGS + 1, "".join(half).replace("local-1795262884130", "local-grows"), ".inprogress")
    foreign = logs / "application_1_0001"
    foreign.write_bytes(b"\x00not a log" * 100)
    cut_off = logs / "local-cut.zstd"
    cut_off.write_bytes((FIXTURES / "batch_udf-4.3.zstd").read_bytes()[:6_000])

    run = fleet(lab, table, logs)
    run.wait_for("the first tasks", lambda: len(list(run.folder.glob("local/**/shuffle_*.data"))) >= 5)
    victim = run.executors()[0].pid
    run.signal(victim, signal.SIGKILL)
    assert run.wait(1_800) == 0, run.tail()
    assert "Lost executor" in run.log
    rows = stored(table)
    assert {row["event_id"] for row in rows if row["name"] != READ} == replayed(logs)
    read = [row for row in rows if row["name"] == READ]
    assert len(read) == LOGS + 4
    problems = {str(row["body"]) for row in read if row["severity"] == "WARN"}
    assert len(problems) == 3
    for path in (damaged, foreign, cut_off):
        assert any(str(path) in problem for problem in problems), path

    growing.unlink()
    write(logs, LOGS + 1, TEMPLATE.replace("local-1795262884130", "local-grows"))
    write(logs, LOGS + 2, text(LOGS + 2))
    run = fleet(lab, table, logs)
    assert run.wait(1_800) == 0, run.tail()
    rows = stored(table)
    assert {row["event_id"] for row in rows if row["name"] != READ} == replayed(logs)
    assert sum(row["name"] == READ for row in rows) == LOGS + 6, "only the grown and the new log are read"

    run = fleet(lab, table, logs)
    assert run.wait(1_800) == 0, run.tail()
    assert len(stored(table)) == len(rows)
