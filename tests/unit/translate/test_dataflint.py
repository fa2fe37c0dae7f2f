"""Tests that compare problems of stages with DataFlint's rules, as docs/guides/why-slow.md describes them.

This module implements DataFlint's rules on the tasks of an event log, without spark-events' code.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from fakes import ROOT

from spark_events.records.event_log.log_files import find_logs
from spark_events.records.event_log.log_reader import EventLogReader
from spark_events.translate.event_log import replayed
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

FIXTURES = sorted((ROOT / "tests/unit/records/fixtures").glob("*.jsonl"))
COMPARED = {"skew", "spill", "tiny-tasks", "one-big-partition"}
GIB, MIB = 1 << 30, 1 << 20
T = 1_700_000_000_000
SECOND = 1_000


def by_dataflint(path: Path) -> dict[int, set[str]]:
    """Return the kinds of alerts by stage."""
    runs: dict[int, list[int]] = defaultdict(list)
    durations: dict[int, list[int]] = defaultdict(list)
    found: dict[int, set[str]] = defaultdict(set)
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["Event"] == "SparkListenerTaskEnd" and line["Task End Reason"]["Reason"] == "Success":
            stage, metrics, info = line["Stage ID"], line["Task Metrics"], line["Task Info"]
            runs[stage].append(metrics["Executor Run Time"])
            durations[stage].append(info["Finish Time"] - info["Launch Time"])
            read = metrics["Shuffle Read Metrics"]
            sizes = (
                metrics["Input Metrics"]["Bytes Read"],
                metrics["Output Metrics"]["Bytes Written"],
                read["Remote Bytes Read"] + read["Local Bytes Read"],
                metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"],
            )
            if max(sizes) > 5 * GIB:
                found[stage].add("one-big-partition")
    for stage, times in runs.items():
        if max(times) > 10 * statistics.median(times) and max(times) > 5 * SECOND:
            found[stage].add("skew")
        if len(times) > 5_000 and statistics.median(durations[stage]) < 500:
            found[stage].add("tiny-tasks")
    return {stage: found[stage] for stage in runs}


def by_us(path: Path) -> dict[int, set[str]]:
    """Return the problems of each stage whose kinds DataFlint also detects or shows."""
    (log,) = find_logs(path)
    found: dict[int, set[str]] = {}
    for events in replayed(EventLogReader(log, pytest.fail), Translator(TranslateConfig(streaming_stages=True))):
        for event in events:
            if event.name == "StageSummaryEvent":
                kinds = {key.removeprefix("problem.") for key in event.attributes if key.startswith("problem.")}
                found[int(str(event.attributes["spark.stage.id"]))] = kinds & COMPARED
    return found


def task(millis: int, *, read: int = 0, written: int = 0, spilled: int = 0) -> tuple[int, dict[str, Any]]:
    """Return the duration and the metrics of a task."""
    return millis, {
        "Executor Run Time": millis,
        "Disk Bytes Spilled": spilled,
        "Shuffle Read Metrics": {"Remote Bytes Read": 0, "Local Bytes Read": 0},
        "Shuffle Write Metrics": {"Shuffle Bytes Written": 0},
        "Input Metrics": {"Bytes Read": read},
        "Output Metrics": {"Bytes Written": written},
    }


def log_of(path: Path, stages: list[tuple[int, list[tuple[int, dict[str, Any]]]]]) -> Path:
    """Write an event log of stages, each with its duration and its tasks."""
    lines: list[dict[str, Any]] = [
        {"Event": "SparkListenerApplicationStart", "App Name": "a", "App ID": "app-1", "Timestamp": T, "User": "u"}
    ]
    for number, (duration, tasks) in enumerate(stages):
        stage = {"Stage ID": number, "Stage Attempt ID": 0, "Stage Name": "s", "Number of Tasks": len(tasks)}
        stage |= {"Submission Time": T}
        lines.append({"Event": "SparkListenerStageSubmitted", "Stage Info": stage, "Properties": {}})
        for index, (millis, metrics) in enumerate(tasks):
            info = {"Task ID": index, "Index": index, "Launch Time": T, "Finish Time": T + millis, "Failed": False}
            about = {"Stage ID": number, "Stage Attempt ID": 0, "Task End Reason": {"Reason": "Success"}}
            lines.append({"Event": "SparkListenerTaskEnd", **about, "Task Info": info, "Task Metrics": metrics})
        lines.append({"Event": "SparkListenerStageCompleted", "Stage Info": stage | {"Completion Time": T + duration}})
    path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in lines))
    return path


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_both_find_nothing_in_short_jobs(path: Path) -> None:
    """In the event logs of short real jobs, neither DataFlint's rules nor spark-events find a problem."""
    theirs, ours = by_dataflint(path), by_us(path)
    assert ours
    assert not any(theirs.values())
    assert not any(ours.values())


@pytest.mark.parametrize(
    ("duration", "tasks", "theirs", "ours"),
    [
        pytest.param(40, [*[task(3_000)] * 10, task(40_000)], {"skew"}, {"skew"}, id="skew"),
        pytest.param(20, [task(100)] * 5_001, {"tiny-tasks"}, {"tiny-tasks"}, id="tiny tasks"),
        pytest.param(
            20,
            [task(9_000, read=6 * GIB), *[task(9_000)] * 2],
            {"one-big-partition"},
            {"one-big-partition"},
            id="big partition",
        ),
        pytest.param(20, [task(9_000)] * 9, set(), set(), id="nothing"),
        # The differences that docs/guides/why-slow.md documents.
        pytest.param(30, [*[task(6_000)] * 10, task(30_000)], set(), {"skew"}, id="a factor of 5"),
        pytest.param(20, [*[task(500)] * 10, task(8_000)], {"skew"}, set(), id="a slowest task below 30 s"),
        pytest.param(5, [task(100)] * 5_001, {"tiny-tasks"}, set(), id="a stage below 10 s"),
        pytest.param(20, [task(9_000, read=6 * GIB)], {"one-big-partition"}, set(), id="no other partition"),
        pytest.param(20, [task(9_000, written=6 * GIB)], {"one-big-partition"}, set(), id="written data"),
        pytest.param(20, [task(9_000, spilled=200 * MIB)], set(), {"spill"}, id="spill"),
    ],
)
def test_problems_and_documented_differences(
    tmp_path: Path, duration: int, tasks: list[tuple[int, dict[str, Any]]], theirs: set[str], ours: set[str]
) -> None:
    """For the same tasks, both find the same problems, except for the differences in docs/guides/why-slow.md."""
    path = log_of(tmp_path / "app-1", [(duration * SECOND, tasks)])
    assert (by_dataflint(path), by_us(path)) == ({0: theirs}, {0: ours})


def test_a_log_with_several_problems(tmp_path: Path) -> None:
    """Each stage of one log has its own problems: a skewed and spilling stage, an uneven stage, and a good stage."""
    skewed = [*[task(3_000)] * 10, task(60_000, spilled=GIB)]
    uneven = [*[task(9_000)] * 10, task(50_000)]
    path = log_of(tmp_path / "app-1", [(60_000, skewed), (50_000, uneven), (20_000, [task(9_000)] * 3)])
    assert by_dataflint(path) == {0: {"skew"}, 1: set(), 2: set()}
    assert by_us(path) == {0: {"skew", "spill"}, 1: {"skew"}, 2: set()}
