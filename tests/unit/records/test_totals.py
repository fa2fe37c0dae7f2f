"""Tests of the totals that a replay computes. ``TotalsTest.java`` tests the shim with the same cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_events.records import types as r
from spark_events.records.event_log.handlers import LogRecord
from spark_events.records.event_log.log_files import find_logs
from spark_events.records.event_log.log_reader import EventLogReader
from spark_events.records.event_log.sketch import Sketch
from spark_events.translate.event_log import replayed
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

T = 1_000_000
MEMORY = ("JVMHeapMemory", "JVMOffHeapMemory", "ProcessTreePythonRSSMemory")


def line(event: str, **fields: Any) -> dict[str, Any]:
    return {"Event": f"SparkListener{event}", **{name.replace("_", " "): value for name, value in fields.items()}}


def stage(number: int, completed: int | None = None) -> dict[str, Any]:
    times = {"Submission Time": T} | ({} if completed is None else {"Completion Time": completed})
    return {"Stage ID": number, "Stage Attempt ID": 0, "Stage Name": "s", "Number of Tasks": 100, **times}


def submitted(number: int = 0) -> dict[str, Any]:
    return line("StageSubmitted", Stage_Info=stage(number), Properties={})


def completed(number: int, time: int) -> dict[str, Any]:
    return line("StageCompleted", Stage_Info=stage(number, time))


def ended(index: int, millis: int, reason: str, run: int | None, *, speculative: bool = False) -> dict[str, Any]:
    info = {
        "Task ID": index,
        "Index": index,
        "Attempt": 1,
        "Launch Time": T,
        "Executor ID": f"e{index}",
        "Host": "h",
        "Speculative": speculative,
        "Getting Result Time": 0,
        "Finish Time": T + millis,
        "Failed": reason not in ("Success", "Resubmitted"),
        "Killed": False,
        "Accumulables": [{"ID": 1}],
    }
    known = {} if run is None else {"Task Metrics": metrics(run)}
    about = {"Stage_ID": 0, "Stage_Attempt_ID": 0, "Task_Type": "ResultTask", "Task_End_Reason": {"Reason": reason}}
    return line("TaskEnd", **about, Task_Info=info, Task_Executor_Metrics={"JVMHeapMemory": 1_000 + index}) | known


def copied(index: int) -> dict[str, Any]:
    """Return the start of a speculative copy."""
    info = {"Task ID": 100 + index, "Index": index, "Attempt": 1, "Launch Time": T, "Executor ID": "e"}
    return line("TaskStart", Stage_ID=0, Stage_Attempt_ID=0, Task_Info={**info, "Speculative": True})


def metrics(run: int) -> dict[str, Any]:
    return {
        "Executor Run Time": run,
        "Executor CPU Time": 700_000,
        "Peak Execution Memory": run,
        "Shuffle Read Metrics": {"Remote Bytes Read": 3, "Local Bytes Read": 4},
        "Input Metrics": {"Bytes Read": 10 * run},
    }


def read(folder: Path, *lines: dict[str, Any], interval: float = 0.0) -> list[LogRecord]:
    path = folder / "local-1"
    first = [
        line("EnvironmentUpdate", Spark_Properties={"spark.task.cpus": "2"}),
        line("ApplicationStart", App_Name="a", Timestamp=T, User="u"),
    ]
    path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in (*first, *lines)))
    (log,) = find_logs(path)
    complaints: list[str] = []
    found = list(EventLogReader(log, complaints.append, interval).records())
    assert complaints == []
    return found


def of(records: list[LogRecord], kind: type) -> list[Any]:
    return [record for record in records if type(record) is kind]


def end(time: int) -> dict[str, Any]:
    return line("ApplicationEnd", Timestamp=time)


def test_attempts_are_counted_once(tmp_path: Path) -> None:
    """Failed, speculative and late attempts are counted, including attempts without metrics."""
    records = read(
        tmp_path,
        submitted(),
        ended(0, 100, "Success", 60),
        copied(1),
        # The original of this copy ends first, and the copy ends after the stage, or never.
        copied(0),
        ended(1, 300, "Success", 250, speculative=True),
        ended(2, 40, "UnknownReason", None),
        # When Spark resubmits a task, Spark repeats the end event of an earlier attempt.
        ended(0, 100, "Resubmitted", 60),
        completed(0, T + 400),
        ended(3, 500, "Success", 1),
        end(T + 900),
    )
    (stage_end,), (application,) = of(records, r.StageCompleted), of(records, r.ApplicationTotals)
    assert stage_end.totals == r.StageTotals(
        tasks=3,
        failed=1,
        speculative=2,
        speculative_won=1,
        task_ms=440,
        retried_ms=40,
        run_ms=310,
        cpu_ms=1,
        scheduler_delay_ms=90,
        input_bytes=3_100,
        shuffle_read_bytes=14,
        peak_execution_memory=250,
        started=T,
        ended=T + 400,
        duration_p50_ms=100,
        duration_p95_ms=300,
        duration_max_ms=300,
        slowest_task=1,
        slowest_attempt=1,
        slowest_executor="e1",
        slowest_host="h",
        largest_input_bytes=2_507,
        median_input_bytes=607,
        cpus=2,
    )
    assert (application.final, application.stages, application.stages_failed, application.busy_ms) == (
        True,
        1,
        0,
        1_880,
    )
    totals = application.totals
    assert (totals.tasks, totals.task_ms, totals.run_ms, totals.cpu_ms) == (4, 940, 311, 2)
    assert (application.peak_executor_heap_bytes, application.peak_driver_heap_bytes) == (1_003, 0)


def test_quantiles_are_those_of_the_shim(tmp_path: Path) -> None:
    """Quantiles equal the quantiles of the shim. TotalsTest.java contains the same numbers."""
    value, tasks = 1, []
    for index in range(99):
        value = value * 48_271 % 2_147_483_647
        tasks.append(ended(index, value >> (index % 31), "Success", value))
    (record,) = of(read(tmp_path, submitted(), *tasks, completed(0, T)), r.StageCompleted)
    totals = record.totals
    found = (totals.duration_p50_ms, totals.duration_p95_ms, totals.duration_max_ms, totals.median_input_bytes)
    assert found == (48_128, 329_252_864, 1_500_063_655, 11_005_853_696)


@pytest.mark.parametrize(
    ("fastest", "slowest", "skewed"), [(6_000, 30_000, True), (6_000, 29_999, False), (4_000, 29_750, False)]
)
def test_a_task_of_five_times_the_median_is_skewed(tmp_path: Path, fastest: int, slowest: int, skewed: bool) -> None:
    """A stage is skewed if its slowest task took at least five times the median, although the histogram is inexact.

    With a median of 6 s, a replay reports 30 s as skew, but not 29.999 s.
    """
    tasks = [ended(index, fastest if index < 2 else 6_000, "Success", 1) for index in range(10)]
    read(tmp_path, submitted(), *tasks, ended(10, slowest, "Success", 1), completed(0, T + 30_000))
    (log,) = find_logs(tmp_path / "local-1")
    made = replayed(EventLogReader(log, pytest.fail), Translator(TranslateConfig()))
    (event,) = (event for events in made for event in events if event.name == "StageSummaryEvent")
    text = "one of 100 tasks took 30 s on executor e10, 5 times the median of 6 s"
    assert event.attributes.get("problem.skew") == (text if skewed else None)


def test_cores_are_integrated(tmp_path: Path) -> None:
    """Core time sums each executor's cores times the time from its addition to its removal or the end."""
    info = {"Host": "h", "Total Cores": 4}
    records = read(
        tmp_path,
        line("ExecutorAdded", Timestamp=T + 100, Executor_ID="1", Executor_Info=info),
        line("ExecutorAdded", Timestamp=T + 200, Executor_ID="2", Executor_Info=info),
        line("ExecutorRemoved", Timestamp=T + 300, Executor_ID="1", Removed_Reason="lost"),
        end(T + 400),
    )
    (totals,) = of(records, r.ApplicationTotals)
    assert (totals.core_ms, totals.cores_now) == (400 + 800 + 400, 4)


@pytest.mark.parametrize(("interval", "found"), [(1.0, [(False, 1, 1, 1)]), (0.0, [])])
def test_totals_follow_the_interval(tmp_path: Path, interval: float, found: list[tuple[bool, int, int, int]]) -> None:
    """In a log in progress, the first end of a stage or job after each interval yields totals.

    They include running stages.
    """
    result = {"Result": "JobSucceeded"}
    records = read(
        tmp_path,
        submitted(0),
        submitted(1),
        ended(0, 100, "Success", None),
        completed(1, T + 999),
        line("JobEnd", Job_ID=0, Completion_Time=T + 1_000, Job_Result=result),
        line("JobEnd", Job_ID=1, Completion_Time=T + 1_999, Job_Result=result),
        interval=interval,
    )
    totals = of(records, r.ApplicationTotals)
    assert [(one.final, one.jobs, one.stages, one.totals.tasks) for one in totals] == found


def test_running_tasks_are_busy_until_their_stage_ends(tmp_path: Path) -> None:
    """A running task is busy until the time of the record. If its stage has ended, the task is counted when it ends."""
    start = {"Launch Time": T, "Executor ID": "e", "Host": "h", "Attempt": 0}
    started = [
        line("TaskStart", Stage_ID=0, Stage_Attempt_ID=0, Task_Info={"Task ID": index, "Index": index, **start})
        for index in (0, 1)
    ]
    jobs = [
        line("JobEnd", Job_ID=0, Completion_Time=T + after, Job_Result={"Result": "JobSucceeded"})
        for after in (1_000, 2_000)
    ]
    records = read(
        tmp_path,
        submitted(),
        *started,
        ended(0, 300, "Success", None),
        # The log does not contain the start of this task.
        ended(3, 40, "Success", None),
        jobs[0],
        completed(0, T + 1_500),
        jobs[1],
        ended(1, 2_500, "Success", None),
        end(T + 2_600),
        interval=1.0,
    )
    assert [totals.busy_ms for totals in of(records, r.ApplicationTotals)] == [2 * 1_340, 2 * 340, 2 * 2_840]


def test_a_lost_end_of_a_task_keeps_no_more_than_all_cores_busy(tmp_path: Path) -> None:
    """Tasks whose ends are missing count as running, but the used core time never exceeds the available core time."""
    start = {"Launch Time": T, "Executor ID": "e", "Host": "h", "Attempt": 0}
    records = read(
        tmp_path,
        line("ExecutorAdded", Timestamp=T, Executor_ID="e", Executor_Info={"Host": "h", "Total Cores": 2}),
        submitted(),
        *(
            line("TaskStart", Stage_ID=0, Stage_Attempt_ID=0, Task_Info={"Task ID": index, "Index": index, **start})
            for index in range(100)
        ),
        end(T + 1_000),
    )
    (totals,) = of(records, r.ApplicationTotals)
    assert (totals.busy_ms, totals.core_ms) == (2_000, 2_000)


def test_stage_executor_metrics_are_peaks(tmp_path: Path) -> None:
    """The totals include the peaks that Spark logs for stages, of the driver and of executors."""
    peaks = [
        line("StageExecutorMetrics", Executor_ID=one, Stage_ID=0, Executor_Metrics=dict.fromkeys(MEMORY, heap))
        for one, heap in (("driver", 7), ("1", 8), ("2", 5))
    ]
    (totals,) = of(read(tmp_path, *peaks, end(T)), r.ApplicationTotals)
    assert (totals.peak_driver_heap_bytes, totals.peak_executor_heap_bytes) == (7, 8)
    assert (totals.peak_driver_offheap_bytes, totals.peak_executor_offheap_bytes) == (7, 8)
    assert (totals.peak_driver_python_bytes, totals.peak_executor_python_bytes) == (7, 8)


@pytest.mark.parametrize(
    ("message", "executor", "heap"),
    [
        ("Lost task 0.3 in stage 2.0 (TID 5) (h executor 2): java.lang.OutOfMemoryError: Java heap space", "2", 5),
        ("Lost task 0.3 in stage 2.0 (TID 5) (h executor 9): java.lang.OutOfMemoryError: Java heap space", "9", 0),
        ("Lost task 0.3 in stage 2.0 (TID 5) (h executor driver): java.lang.OutOfMemoryError", "driver", 7),
        ("Job 0 cancelled because SparkContext was shut down", "", 8),
    ],
)
def test_the_peaks_of_a_failure_are_those_of_its_executor(
    tmp_path: Path, message: str, executor: str, heap: int
) -> None:
    peaks = [
        line("StageExecutorMetrics", Executor_ID=one, Stage_ID=0, Executor_Metrics=dict.fromkeys(MEMORY, heap))
        for one, heap in (("driver", 7), ("1", 8), ("2", 5))
    ]
    failed = {"Result": "JobFailed", "Exception": {"Message": message, "Stack Trace": []}}
    (job,) = of(read(tmp_path, *peaks, line("JobEnd", Job_ID=0, Completion_Time=T, Job_Result=failed)), r.JobEnd)
    assert job.peaks == r.MemoryPeaks(
        executor=executor, driver_heap=7, executor_heap=heap, executor_offheap=heap, executor_python=heap
    )


def test_a_stage_without_a_beginning_has_no_totals(tmp_path: Path) -> None:
    """A stage that began before the log has no totals, but the application's totals include its tasks."""
    records = read(tmp_path, ended(0, 5, "Success", 5), completed(0, T), end(T))
    assert of(records, r.StageCompleted)[0].totals is None
    assert of(records, r.ApplicationTotals)[0].totals.tasks == 1


def test_a_repeated_end_of_a_stage_counts_once(tmp_path: Path) -> None:
    """Spark reports the end of a failed barrier stage twice. The second end belongs to no known attempt."""
    failed = line("StageCompleted", Stage_Info=stage(0, T) | {"Failure Reason": "x"})
    (totals,) = of(read(tmp_path, submitted(), failed, failed, end(T)), r.ApplicationTotals)
    assert (totals.stages, totals.stages_failed) == (1, 1)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=50), st.sampled_from([50, 95, 100]))
def test_quantiles_are_at_most_0_8_percent_too_small(values: list[int], percent: int) -> None:
    """A quantile is never above the exact value, at most 1/128 below it, and never below the minimum."""
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    exact = sorted(values)[-(-percent * len(values) // 100) - 1]
    assert max(exact - exact // 128, min(values)) <= sketch.quantile(percent) <= exact


def test_a_sketch_without_values() -> None:
    """Without values, quantile and maximum are 0. A negative value, from a clock that was set back, is treated as 0."""
    sketch = Sketch()
    assert (sketch.quantile(50), sketch.max) == (0, 0)
    sketch.add(-5)
    assert (sketch.quantile(50), sketch.max) == (0, 0)


def test_cancelled_work_is_counted_apart(tmp_path: Path) -> None:
    """Work that was cancelled has not failed. The messages are those of TotalsTest.java."""
    messages = (
        "Job 0 cancelled part of cancelled job group 125ab4aa",
        "[SPARK_JOB_CANCELLED] Job 0 cancelled The corresponding Thriftserver query has failed. SQLSTATE: XXKDA",
        "Job aborted due to stage failure: x\nJob 0 cancelled",
    )
    lines = []
    for number, message in enumerate(messages):
        stage = {"Stage ID": number, "Stage Attempt ID": 0, "Stage Name": "s", "Number of Tasks": 1}
        stage |= {"Submission Time": T, "Completion Time": T}
        result = {"Result": "JobFailed", "Exception": {"Message": message, "Stack Trace": []}}
        lines += [
            line("StageSubmitted", Stage_Info=stage),
            line("StageCompleted", Stage_Info={**stage, "Failure Reason": message}),
            line("JobEnd", Job_ID=number, Completion_Time=T, Job_Result=result),
        ]
    *_, totals, _ = read(tmp_path, *lines, line("ApplicationEnd", Timestamp=T))
    assert isinstance(totals, r.ApplicationTotals)
    assert (totals.jobs, totals.jobs_failed, totals.jobs_cancelled) == (3, 1, 2)
    assert (totals.stages, totals.stages_failed, totals.stages_cancelled) == (3, 1, 2)
