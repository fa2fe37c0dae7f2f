"""Tests of the summaries of stages and of the application: thresholds, sentences and sums."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import (
    ROOT,
    START,
    application_end,
    application_start,
    decoded,
    event,
    query_progress,
    query_started,
)
from hypothesis import given
from hypothesis import strategies as st
from property.applications import Application, applications

from spark_events import Budget, Event, Severity
from spark_events.config import Settings
from spark_events.dispatch.entries import priority_of
from spark_events.enrichment.driver.micro_batch import MicroBatch
from spark_events.enrichment.driver.reports import enrichment_event
from spark_events.enrichment.engine.statistics import EngineCounts, counted
from spark_events.enrichment.worker.report import PartitionReport
from spark_events.errors import ConfigError
from spark_events.records.event_log.log_files import find_logs
from spark_events.records.event_log.log_reader import EventLogReader
from spark_events.records.types import StageTotals
from spark_events.reporters.log_reporter import LogReporter
from spark_events.translate.deadlines.deadline_config import DeadlineConfig
from spark_events.translate.summaries.stage_problems import KINDS, problems, took
from spark_events.translate.summaries.summary_config import SummaryConfig
from spark_events.translate.translation_config import TranslateConfig, read
from spark_events.translate.translator import Translator

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
GIB = 1 << 30
LOGS = ROOT / "tests/unit/records/fixtures"
#: Totals of a 100 s stage without a problem.
SOUND: dict[str, Any] = {
    "tasks": 200,
    "task_ms": 350 * SECOND,
    "run_ms": 300 * SECOND,
    "started": START,
    "ended": START + 100 * SECOND,
    "duration_p50_ms": 2 * SECOND,
    "duration_p95_ms": 3 * SECOND,
    "duration_max_ms": 4 * SECOND,
    "slowest_task": 17,
    "slowest_executor": "7",
    "slowest_host": "h7",
}
CORES = 400 * SECOND


def kinds(
    changes: dict[str, Any], core_ms: int | None = CORES, tasks: int = 200, config: SummaryConfig | None = None
) -> list[str]:
    found = problems(tasks, StageTotals(**{**SOUND, **changes}), core_ms, config or SummaryConfig())
    return [problem.kind for problem in found]


def settings(**given: str) -> SummaryConfig:
    """Return the configuration for these settings, where ``__`` stands for a dot and ``_`` for a hyphen."""
    names = {key.replace("__", ".").replace("_", "-"): value for key, value in given.items()}
    return read(Settings.of({f"events.summary.{key}": value for key, value in names.items()})).summary


def submitted(stage: int = 3, attempt: int = 0, time: int = START, **fields: Any) -> dict[str, Any]:
    about = {"stage_id": stage, "attempt": attempt, "name": "csv at etl.py:9", "tasks": 200, "time": time}
    return {"kind": "stage_submitted", "at": time, **about, **fields}


def completed(stage: int = 3, attempt: int = 0, totals: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    given = {**SOUND, **(totals or {})}
    about = {"stage_id": stage, "attempt": attempt, "name": "csv at etl.py:9", "tasks": 200}
    return {"kind": "stage_completed", "at": given["ended"], "time": given["ended"], **about, "totals": given, **fields}


def executor(number: int = 1, cores: int = 4, time: int = START - SECOND) -> dict[str, Any]:
    about = {"executor_id": str(number), "host": f"h{number}", "cores": cores}
    return {"kind": "executor_added", "at": time, "time": time, **about}


def summaries(*records: dict[str, Any], config: TranslateConfig | None = None) -> list[Event]:
    translator = Translator(config)
    started = application_start(app_name="etl", at=START - MINUTE, time=START - MINUTE)
    events = [made for record in (started, *records) for made in translator.translate(decoded(record))]
    return [made for made in events if made.name in ("StageSummaryEvent", "ApplicationSummaryEvent")]


# --- thresholds ---------------------------------------------------------------------------------

#: For each problem: totals that just reach its threshold, and totals that just miss it.
LIMITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "skew": (
        {"duration_p50_ms": 6 * SECOND, "duration_max_ms": 30 * SECOND},
        {"duration_p50_ms": 6 * SECOND + 1, "duration_max_ms": 30 * SECOND},
    ),
    "spill": ({"spill_disk_bytes": 128 << 20}, {"spill_disk_bytes": (128 << 20) - 1}),
    "gc": ({"gc_ms": 60 * SECOND}, {"gc_ms": 60 * SECOND - 1}),
    "one-big-partition": ({"largest_input_bytes": 5 * GIB + 1}, {"largest_input_bytes": 5 * GIB}),
    "memory-tight": (
        {"spill_disk_bytes": 1, "gc_ms": 30 * SECOND},
        {"spill_disk_bytes": 1, "gc_ms": 30 * SECOND - 1},
    ),
    "shuffle-fetch-wait": ({"fetch_wait_ms": 60 * SECOND}, {"fetch_wait_ms": 60 * SECOND - 1}),
    "idle-cores": ({"task_ms": 200 * SECOND - 1}, {"task_ms": 200 * SECOND}),
}


@pytest.mark.parametrize("kind", LIMITS)
def test_a_problem_begins_at_its_threshold(kind: str) -> None:
    """At the documented default, a stage has exactly this problem. A stage that just misses the default has none."""
    has, has_not = LIMITS[kind]
    assert kinds(has) == [kind]
    assert kinds(has_not) == []


def test_a_sound_stage_has_no_problem() -> None:
    """Control: the totals that the other tests change have no problem."""
    assert kinds({}) == []


@pytest.mark.parametrize(("tasks", "median", "found"), [(5_001, 499, True), (5_000, 499, False), (5_001, 500, False)])
def test_tiny_tasks_are_many_and_short(tasks: int, median: int, found: bool) -> None:
    """A stage has tiny tasks if it has more than 5,000 tasks and a median below 500 ms."""
    assert kinds({"duration_p50_ms": median, "duration_max_ms": median}, tasks=tasks) == ["tiny-tasks"] * found


def test_a_stage_without_a_successful_task_has_no_tiny_tasks() -> None:
    """Without tasks, the median is 0, which does not mean that the tasks are tiny."""
    short = {"duration_p50_ms": 0, "duration_max_ms": 0}
    assert kinds(short, tasks=6_000) == ["tiny-tasks"]
    assert kinds(short | {"slowest_task": -1}, tasks=6_000) == []


def test_a_slow_task_is_not_skew_if_it_is_short() -> None:
    """A task of 29.999 s, 100 times the median, is not skew, but a task of 30 s is."""
    assert kinds({"duration_p50_ms": 300, "duration_max_ms": 29_999}) == []
    assert kinds({"duration_p50_ms": 300, "duration_max_ms": 30_000}) == ["skew"]


def test_a_memory_problem_needs_both_symptoms() -> None:
    """Garbage collection without a spill, or a spill without garbage collection, is not memory-tight."""
    assert kinds({"gc_ms": 30 * SECOND}) == []
    assert kinds({"spill_disk_bytes": 1}) == []


EVERYTHING: dict[str, Any] = {
    "duration_p50_ms": 400,
    "duration_max_ms": 90 * SECOND,
    "spill_disk_bytes": 3 * GIB,
    "gc_ms": 120 * SECOND,
    "fetch_wait_ms": 90 * SECOND,
    "largest_input_bytes": 6 * GIB,
    "task_ms": 100 * SECOND,
    "scheduler_delay_ms": 10 * SECOND,
}


def test_a_stage_can_have_all_problems_the_most_expensive_first() -> None:
    """All kinds of problems may occur together. They are sorted by the lost time."""
    found = problems(6_000, StageTotals(**{**SOUND, **EVERYTHING}), CORES, SummaryConfig(), 10 * SECOND)
    assert {problem.kind for problem in found} == set(KINDS)
    lost = {problem.kind: problem.lost_ms for problem in found}
    assert list(lost.values()) == sorted(lost.values(), reverse=True)
    # Of the 90 s with executors: 40 % garbage collection, 30 % fetch wait, 75 % idle cores, 10 % overhead of tasks.
    assert {kind: lost[kind] for kind in ("gc", "shuffle-fetch-wait", "idle-cores", "tiny-tasks", "spill")} == {
        "gc": 36 * SECOND,
        "shuffle-fetch-wait": 27 * SECOND,
        "idle-cores": 67_500,
        "tiny-tasks": 9 * SECOND,
        "spill": 0,
    }
    assert lost["skew"] == 90 * SECOND - 400


@pytest.mark.parametrize("millis", [50, 9_999])
def test_a_short_stage_has_no_problem(millis: int) -> None:
    """In a stage that is shorter than events.summary.min-duration, the same totals cause no problem."""
    assert kinds({**EVERYTHING, "ended": START + millis}, tasks=6_000) == []
    assert len(kinds({**EVERYTHING, "ended": START + 10_000}, tasks=6_000)) == len(KINDS) - 1


def test_a_stage_of_unknown_duration_has_no_problem() -> None:
    assert kinds({**EVERYTHING, "started": 0}) == []


@pytest.mark.parametrize(
    ("key", "value", "changes"),
    [
        ("skew__ratio", "6", {"duration_p50_ms": 6_000, "duration_max_ms": 35_999}),
        ("skew__min_duration", "1min", {"duration_p50_ms": 1, "duration_max_ms": 59_999}),
        ("spill__min_size", "1g", {"spill_disk_bytes": GIB - 1}),
        ("gc__percent", "50", {"gc_ms": 149_999}),
        ("one_big_partition__size", "8g", {"largest_input_bytes": 8 * GIB}),
        ("memory_tight__gc_percent", "19", {"gc_ms": 56_000, "spill_disk_bytes": 1}),
        ("shuffle_fetch_wait__percent", "30", {"fetch_wait_ms": 89_999}),
        ("idle_cores__percent", "100", {"task_ms": 0}),
        ("min_duration", "2min", EVERYTHING),
    ],
)
def test_thresholds_are_settings(key: str, value: str, changes: dict[str, Any]) -> None:
    """If a setting changes the threshold, a problem at the default threshold is not reported."""
    assert kinds(changes)
    assert kinds(changes, config=settings(**{key: value})) == []


def test_the_thresholds_of_tiny_tasks_are_settings() -> None:
    config = settings(tiny_tasks__number="10", tiny_tasks__duration="3s")
    assert kinds({"duration_p50_ms": 2_999}, tasks=11, config=config) == ["tiny-tasks"]
    assert kinds({"duration_p50_ms": 3_000}, tasks=11, config=config) == []
    assert kinds({"duration_p50_ms": 2_999}, tasks=10, config=config) == []


@pytest.mark.parametrize("value", ["-1", "1e3", "free", "0.05 EUR", "1,5"])
def test_a_wrong_price_is_an_error_in_the_settings(value: str) -> None:
    """The message about an invalid setting contains the key, the value and the allowed values."""
    given = Settings.of({"events.summary.core-hour-price": value})
    read(given)
    with pytest.raises(ConfigError, match=r"events\.summary\.core-hour-price.*a decimal number"):
        given.check()


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        *((0, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (59_999, "59 s"), (60_000, "1 min"), (250_000, "4 min 10 s")),
        *((3_599_999, "59 min 59 s"), (3_600_000, "1 h 0 min"), (4_200_000, "1 h 10 min")),
    ],
)
def test_durations_have_two_units(millis: int, text: str) -> None:
    """A duration has at most two units. The cases lie just below and at each change of units."""
    assert took(millis) == text


# --- the event of a stage -----------------------------------------------------------------------

SKEWED = {"ended": START + 250 * SECOND, "duration_p50_ms": 10 * SECOND, "duration_max_ms": 230 * SECOND}


def test_the_sentence_of_a_slow_stage() -> None:
    """The body contains the application, the stage, the problem and its cause."""
    properties = {"spark.job.description": "nightly", "spark.sql.execution.id": "5"}
    totals = {**SKEWED, "task_ms": 900 * SECOND, "spill_disk_bytes": 3 * GIB + GIB // 4}
    [summary] = summaries(executor(), submitted(properties=properties), completed(totals=totals))
    assert summary.body == (
        "etl: stage 3 [csv at etl.py:9] took 4 min 10 s with 200 tasks (nightly); one of 200 tasks took 3 min 50 s on"
        " executor 7, 23 times the median of 10 s (skew); its tasks spilled 3.25 GiB to disk (spill)"
    )
    assert summary.severity is Severity.WARN
    assert summary.class_scope == "spark.stage"
    assert {key: value for key, value in summary.attributes.items() if key.startswith("problem.")} == {
        "problem.skew": "one of 200 tasks took 3 min 50 s on executor 7, 23 times the median of 10 s",
        "problem.spill": "its tasks spilled 3.25 GiB to disk",
    }
    assert summary.attributes["spark.stage.lost_ms"] == 220 * SECOND
    assert summary.attributes["spark.stage.duration_ms"] == 250 * SECOND
    assert summary.attributes["spark.stage.core_ms"] == 1_000 * SECOND
    assert summary.observed_ts_millis == START + 250 * SECOND


def test_the_sentence_of_a_sound_stage() -> None:
    """A stage without a problem is DEBUG, and its body contains the duration."""
    [summary] = summaries(submitted(), completed(totals={"ended": START + 12_345}))
    assert summary.body == "etl: stage 3 [csv at etl.py:9] took 12 s with 200 tasks"
    assert summary.severity is Severity.DEBUG
    assert "spark.stage.lost_ms" not in summary.attributes


def test_a_failed_attempt_has_a_summary_too() -> None:
    """Each attempt has its own event, after the event of its failure."""
    reason = "org.apache.spark.shuffle.FetchFailedException: Failed to connect to h1"
    failed = completed(failure_reason=reason, failed=1, totals={"failed": 1, "retried_ms": 7})
    again = [submitted(attempt=1), completed(attempt=1)]
    first, second = summaries(submitted(), failed, *again)
    assert first.body == "etl: stage 3 [csv at etl.py:9] failed after 1 min 40 s with 200 tasks"
    assert second.body == "etl: stage 3, attempt 1 [csv at etl.py:9] took 1 min 40 s with 200 tasks"
    assert (first.attributes["spark.stage.tasks_failed_attempts"], first.attributes["spark.stage.retried_ms"]) == (1, 7)
    assert first.event_id != second.event_id


def test_a_summary_opens_no_incident() -> None:
    """A summary is neither an alarm nor a consequence, and no alarm delays it."""
    for record in (completed(totals=SKEWED), completed(totals=EVERYTHING)):
        [summary] = summaries(submitted(), record, config=TranslateConfig())
        assert summary.severity is Severity.WARN
        assert not [key for key in summary.attributes if key.startswith(("incident.", "failure."))]


def test_a_stage_without_totals_has_no_summary() -> None:
    """A stage without totals has no summary: the listener was added while the stage ran, or the shim is older.

    A repeated end of a stage causes no second summary.
    """
    assert summaries(submitted(), completed() | {"totals": None}) == []
    assert len(summaries(submitted(), completed(), completed())) == 1


@pytest.mark.parametrize("streaming", [False, True])
def test_stages_of_micro_batches_are_reported_only_if_configured(streaming: bool) -> None:
    """events.streaming-stages.enabled also applies to summaries."""
    properties = {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "4"}
    config = TranslateConfig(streaming_stages=streaming)
    assert len(summaries(submitted(properties=properties), completed(), config=config)) == streaming


def test_a_debug_summary_is_shed_first() -> None:
    """A full mailbox sheds summaries without a problem first. The reporter `log` omits these summaries."""
    [summary] = summaries(submitted(), completed())
    job_change = msgspec.structs.replace(event(severity=Severity.DEBUG), name="JobStatusChangeEvent")
    assert priority_of(summary) < priority_of(event(severity=Severity.INFO)) < priority_of(job_change)
    assert LogReporter.min_severity is Severity.INFO


# --- idle cores ---------------------------------------------------------------------------------

IDLE = {"task_ms": 100 * SECOND}


def is_idle(*records: dict[str, Any]) -> bool:
    found = summaries(*records)[-1]
    return "problem.idle-cores" in found.attributes


def test_a_task_occupies_the_cores_of_its_setting() -> None:
    """With two cores per task, tasks of 150 s occupy 300 of 400 core-seconds; with one core, 150."""
    assert kinds({"task_ms": 150 * SECOND, "cpus": 2}) == []
    assert kinds({"task_ms": 150 * SECOND, "cpus": 1}) == ["idle-cores"]


def test_cores_count_while_their_executor_exists() -> None:
    removed = {"kind": "executor_removed", "executor_id": "2", "at": START, "time": START + 20 * SECOND}
    late = executor(3, 2, START + 90 * SECOND)
    [summary] = summaries(executor(), executor(2, 8), submitted(), removed, late, completed())
    assert summary.attributes["spark.stage.core_ms"] == (4 * 100 + 8 * 20 + 2 * 10) * SECOND


def test_idle_cores_are_found_in_a_stage_that_runs_alone() -> None:
    """Control for the following tests: if a single stage leaves cores idle, this is a problem."""
    assert is_idle(executor(), submitted(), completed(totals=IDLE))


def test_a_stage_that_shares_the_executors_is_not_judged() -> None:
    """If another stage may have used the cores, idle cores are not a problem, whichever stage starts or ends first."""
    for others in ([submitted(4)], [submitted(4), completed(4)]):
        assert not is_idle(executor(), submitted(), *others, completed(totals=IDLE))
        assert not is_idle(executor(), *others[:1], submitted(), *others[1:], completed(totals=IDLE))
    assert is_idle(executor(), submitted(4), completed(4), submitted(), completed(totals=IDLE))


def test_a_stage_beside_a_streaming_query_is_not_judged() -> None:
    """If micro-batches run, idle cores are unknown, because stages of micro-batches are not recorded."""
    assert not is_idle(executor(), query_started(), submitted(), completed(totals=IDLE))


def test_unknown_cores_are_not_judged() -> None:
    """After a restart of the sidecar, or if the listener was added after the executors, the cores are unknown."""
    assert not is_idle(submitted(), completed(totals=IDLE))
    successor = Translator()
    for record in (application_start(), executor()):
        successor.restore(decoded(record))
    events = [made for record in (submitted(), completed(totals=IDLE)) for made in successor.translate(decoded(record))]
    assert events[-1].name == "StageSummaryEvent"
    assert not {"problem.idle-cores", "spark.stage.core_ms"} & events[-1].attributes.keys()


@pytest.mark.parametrize(
    ("first", "text"), [(30, "waited 30 s for executors"), (95, "waited 1 min 35 s for executors")]
)
def test_a_wait_for_executors_is_no_idle_time(first: int, text: str) -> None:
    """Cores are idle only while they exist; the time before the first executor is named."""
    at = START + first * SECOND
    records = [submitted(), executor(time=at), completed(totals={"task_ms": (100 - first) * 4 * SECOND * 3 // 4})]
    [summary] = summaries(*records)
    assert {kind: summary.attributes[kind] for kind in summary.attributes if kind.startswith("problem.")} == {
        "problem.waiting-for-executors": text
    }
    assert summary.attributes["spark.stage.lost_ms"] == first * SECOND


def test_idle_cores_after_a_wait_count_from_the_first_executor() -> None:
    """Of 70 s with four cores, three quarters are idle: 52.5 s are lost, and 30 s by the wait."""
    records = [submitted(), executor(time=START + 30 * SECOND), completed(totals={"task_ms": 70 * SECOND})]
    [summary] = summaries(*records)
    assert summary.attributes["problem.idle-cores"] == "the cores of the executors were idle for 75% of their time"
    assert summary.attributes["spark.stage.lost_ms"] == 52_500


def test_a_short_wait_or_an_unknown_number_of_cores_is_no_wait() -> None:
    assert not is_waiting(submitted(), executor(time=START + 9 * SECOND), completed())
    assert not is_waiting(submitted(), completed())
    assert not is_waiting(executor(), submitted(), completed())


def is_waiting(*records: dict[str, Any]) -> bool:
    return "problem.waiting-for-executors" in summaries(*records)[-1].attributes


# --- comparisons --------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [1, 200, 6_000])
@pytest.mark.parametrize("of", [1, 1.0001, 2, 40])
@pytest.mark.parametrize("changed", [{}, {"spill_disk_bytes": GIB, "gc_ms": 90 * SECOND, "fetch_wait_ms": 80 * SECOND}])
def test_no_sentence_compares_equal_numbers(tasks: int, of: float, changed: dict[str, Any]) -> None:
    """A comparison whose two numbers are printed alike tells nothing."""
    totals = {"largest_input_bytes": round(6 * GIB * of), "median_input_bytes": 6 * GIB}
    totals |= {"duration_max_ms": round(31 * SECOND * of), "duration_p50_ms": 31 * SECOND, **changed}
    config = SummaryConfig(skew_ratio=1)
    for problem in problems(tasks, StageTotals(**{**SOUND, **totals}), CORES, config):
        numbers = re.findall(r"\d[\d.,]* (?:[KMGTP]iB|bytes?|ms|s|min \d+ s|h \d+ min)(?![a-z])", problem.text)
        assert len(numbers) == len(set(numbers)), problem.text
    kinds = {one.kind for one in problems(tasks, StageTotals(**{**SOUND, **totals}), CORES, config)}
    assert ({"skew", "one-big-partition"} <= kinds) is (of >= 2)


# --- SQL executions -----------------------------------------------------------------------------

SQL = {"spark.sql.execution.id": "5"}


def execution(**fields: Any) -> dict[str, Any]:
    insert = {"name": "Execute InsertIntoHadoopFsRelationCommand", "arguments": "file:/out/report, false, Parquet"}
    plan = [insert, {"name": "Scan parquet spark_catalog.default.orders"}]
    about = {"execution_id": 5, "time": START, "description": "nightly", "plan": plan}
    return {"kind": "sql_execution_start", "at": START, **about, **fields}


def test_events_name_what_a_sql_execution_reads_and_writes() -> None:
    """The summary of a stage and the events of a job contain description, sources and targets of their execution."""
    job = {"kind": "job_start", "at": START, "job_id": 1, "time": START, "properties": SQL}
    end = {"kind": "job_end", "at": START, "job_id": 1, "time": START, "failure": {"chain": [{"type": "a.B"}]}}
    translator = Translator()
    records = [application_start(), execution(), job, submitted(properties=SQL), completed(), end]
    events = [made for record in records for made in translator.translate(decoded(record))]
    expected = {
        "spark.sql.execution.id": "5",
        "spark.sql.description": "nightly",
        "spark.sql.reads": '["spark_catalog.default.orders"]',
        "spark.sql.writes": '["file:/out/report"]',
    }
    about = [made for made in events if made.name == "StageSummaryEvent" or made.class_scope == "spark.job"]
    assert len(about) == 4
    for made in about:
        assert expected.items() <= made.attributes.items(), made


def test_an_unknown_execution_has_only_its_id() -> None:
    """Control: the start of another execution has no effect."""
    [summary] = summaries(execution(execution_id=6), submitted(properties=SQL), completed())
    assert summary.attributes["spark.sql.execution.id"] == "5"
    assert not {"spark.sql.description", "spark.sql.reads", "spark.sql.writes"} & summary.attributes.keys()


def test_a_long_description_is_cut() -> None:
    """No attribute of a SQL execution is longer than 4,096 characters."""
    [summary] = summaries(execution(description="x" * 9_000), submitted(properties=SQL), completed())
    assert summary.attributes["spark.sql.description"] == "x" * 4_096


# --- the event of the application ---------------------------------------------------------------


def application_totals(**fields: Any) -> dict[str, Any]:
    sums = {"tasks": 500, "failed": 3, "killed": 1, "retried_ms": 240 * SECOND, "run_ms": 7 * HOUR, "input_bytes": 9}
    about = {"time": START + HOUR, "final": True, "jobs": 20, "jobs_failed": 2, "stages": 30, "stages_failed": 4}
    about |= {"busy_ms": 6 * HOUR, "core_ms": 8 * HOUR, "peak_driver_heap_bytes": 5, "peak_executor_heap_bytes": 6}
    return {"kind": "application_totals", "at": START + HOUR, **about, "totals": sums, **fields}


def test_the_sentence_of_an_application() -> None:
    """The body contains jobs, core-hours, cost and the time lost to retries; the attributes contain all sums."""
    [summary] = summaries(application_totals(), config=TranslateConfig(summary=settings(core_hour_price="0.25")))
    assert summary.body == (
        "Application 'etl' has ended: 2 of 20 jobs failed, its tasks used 6.00 of 8.00 core-hours (25% idle),"
        " its core-hours cost 2.00, 4 task attempts failed or were killed after 4 min in total"
    )
    assert summary.severity is Severity.INFO
    expected = {
        "spark.summary.final": True,
        "spark.summary.core_hours": 8.0,
        "spark.summary.core_hours_used": 6.0,
        "spark.summary.core_hours_idle": 2.0,
        "spark.summary.cost": 2.0,
        "spark.summary.core_hour_price": 0.25,
        "spark.summary.retried_ms": 240 * SECOND,
        "spark.summary.tasks_failed_attempts": 3,
        "spark.summary.peak_driver_heap_bytes": 5,
        "spark.summary.input_bytes": 9,
    }
    assert expected.items() <= summary.attributes.items()


def test_small_core_hours_keep_two_digits() -> None:
    """The summary of an application that ran a few seconds does not contain 0.00 core-hours."""
    [summary] = summaries(application_totals(busy_ms=3_600, core_ms=12_345))
    assert "its tasks used 0.001 of 0.0034 core-hours (71% idle)" in summary.body


def test_unknown_numbers_are_left_out() -> None:
    """Without a price, the cost is missing. Without cores and peaks, core-hours, cost and peak are missing."""
    [plain] = summaries(application_totals())
    assert "spark.summary.cost" not in plain.attributes
    unknown = application_totals(core_ms=0, peak_driver_heap_bytes=0, peak_executor_heap_bytes=0)
    [summary] = summaries(unknown, config=TranslateConfig(summary=settings(core_hour_price="1")))
    assert "its tasks used 6.00 core-hours" in summary.body
    assert (
        not {
            *("spark.summary.core_hours", "spark.summary.core_hours_idle", "spark.summary.cost"),
            *("spark.summary.peak_driver_heap_bytes", "spark.summary.peak_executor_heap_bytes"),
        }
        & summary.attributes.keys()
    )


def test_interim_summaries_differ_and_the_last_has_one_id() -> None:
    """Interim summaries are identified by their time. The final summary has one id, live and in a replay."""
    first, second = (application_totals(final=False, time=START + minute) for minute in (1, 2))
    events = summaries(first, second, application_totals(), application_totals(time=START + HOUR + 5))
    assert len({made.event_id for made in events}) == 3
    assert events[0].body.startswith("Application 'etl' runs: ")


def failing(number: int, reason: str, at: int) -> list[dict[str, Any]]:
    """Build a job that fails with its stage."""
    about = {"at": at, "time": at}
    aborted = (
        f"Job aborted due to stage failure: Task 0 in stage {number}.0 failed 4 times, most recent failure: Lost task"
        f" 0.3 in stage {number}.0 (TID 7) (h executor 2): {reason}\nDriver stacktrace:"
    )
    return [
        {"kind": "job_start", "job_id": number, **about},
        submitted(number, time=at),
        completed(number, failure_reason=aborted, task_failure=reason) | about,
        {
            "kind": "job_end",
            "job_id": number,
            **about,
            "failure": {"chain": [{"type": "org.apache.spark.SparkException", "message": aborted}], "trace": aborted},
        },
    ]


def test_a_failure_of_several_levels_counts_once() -> None:
    """If a stage, its job and the application fail for one reason, they count as one failure per job."""
    disk, value = "java.io.IOException: No space left on device", "java.lang.NumberFormatException: x"
    records = [*failing(1, disk, START), *failing(2, disk, START + 1), *failing(3, value, START + 2)]
    end = application_end("PROGRAM_FAILED", exit_code=1)
    counts = failures_of(summaries(*records, end, application_totals())[-1])
    assert counts.pop("DISK_FULL") == 2
    assert list(counts.values()) == [1]


def test_failures_of_two_jobs_count_twice_in_any_order() -> None:
    """If two stages and their jobs fail for the same cause, these are two failures, in any order."""
    one, other = (failing(number, "java.io.IOException: No space left on device", START) for number in (1, 2))
    mixed = [record for pair in zip(one, other, strict=True) for record in pair]
    assert failures_of(summaries(*mixed, application_totals())[-1]) == {"DISK_FULL": 2}
    # Control: the same two failures, without interleaving.
    assert failures_of(summaries(*one, *other, application_totals())[-1]) == {"DISK_FULL": 2}


def failures_of(summary: Event) -> dict[str, Any]:
    prefix = "spark.summary.failures."
    return {key.removeprefix(prefix): count for key, count in summary.attributes.items() if key.startswith(prefix)}


def queries_of(summary: Event) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for key, value in summary.attributes.items():
        if key.startswith("spark.query."):
            name, _, number = key.removeprefix("spark.query.").rpartition(".")
            found.setdefault(name, {})[number] = value
    return found


@given(durations=st.lists(st.integers(1, 10_000_000), min_size=1, max_size=60))
def test_numbers_of_a_query_equal_a_simple_computation(durations: list[int]) -> None:
    """Batches and rows are exact.

    The quantiles p50 and p99 differ from the exact values by at most 0.55 % plus rounding.
    """
    records = [
        query_progress(batch, numInputRows=batch + 1, durationMs={"addBatch": 1, "triggerExecution": each})
        for batch, each in enumerate(durations)
    ]
    [summary] = summaries(query_started(), *records, records[-1], application_totals())
    numbers = queries_of(summary)["clicks"]
    assert numbers["batches"] == len(durations)
    assert numbers["rows"] == sum(range(len(durations) + 1))
    ordered = sorted(durations)
    for name, share in (("duration_p50_ms", 50), ("duration_p99_ms", 99)):
        exact = ordered[-(-len(ordered) * share // 100) - 1]
        assert abs(numbers[name] - exact) <= min(0.5 + 0.0055 * exact, max(0.5, 0.012 * exact))


def test_a_trigger_without_data_is_not_a_batch() -> None:
    """Only committed batches count as batches."""
    idle = query_progress(1, durationMs={"latestOffset": 1})
    [summary] = summaries(query_started(), query_progress(0), idle, query_progress(1), application_totals())
    assert queries_of(summary)["clicks"]["batches"] == 2


def test_twenty_queries_have_numbers_and_other_queries_have_one_sum() -> None:
    """The number of attributes is bounded, regardless of the number of queries."""
    records = [query_progress(0, f"r{number}", f"q{number}", name=f"query {number}") for number in range(25)]
    [summary] = summaries(*records, application_totals())
    found = queries_of(summary)
    assert set(found) == {f"query {number}" for number in range(20)} | {"(others)"}
    assert [found[name]["batches"] for name in ("query 0", "query 19", "(others)")] == [1, 1, 5]
    assert sum(numbers["rows"] for numbers in found.values()) == 25 * 5


def test_the_overdue_time_of_a_query() -> None:
    """Overdue time counts from the limit to the recovery, or to the summary if the work is still overdue."""
    config = TranslateConfig(deadline=DeadlineConfig(progress=60.0, resources=None))
    answer = {
        "kind": "inspection",
        "seq": 9,
        "queries": [{"run_id": "r1", "busy_since": START, "frames": ["a.B.c(D:1)"]}],
    }
    began = 1_795_263_270_000  # the time of `query_started`
    late = {**answer, "at": began + 5 * MINUTE, "asked": began + 5 * MINUTE}
    back = query_progress(0, timestamp="2026-11-21T12:20:30.000Z") | {"at": began + 6 * MINUTE}
    translator = Translator(config)
    made = [e for r in (application_start(), query_started(), late) for e in translator.translate(decoded(r))]
    overdue = next(e for e in made if e.name == "DeadlineStatusChangeEvent")
    [during] = translator.translate(decoded(application_totals(final=False, time=began + 5 * MINUTE)))
    assert queries_of(during)["clicks"]["overdue_ms"] == began + 5 * MINUTE - overdue.observed_ts_millis
    recovered = next(e for e in translator.translate(decoded(back)) if e.name == "DeadlineStatusChangeEvent")
    [after] = translator.translate(decoded(application_totals(time=began + HOUR)))
    lasted = recovered.observed_ts_millis - overdue.observed_ts_millis
    assert lasted > 0
    assert queries_of(after)["clicks"]["overdue_ms"] == lasted


def test_usage_and_cost_of_enrichments_are_summed() -> None:
    """Usage and cost come from the EnrichmentEvents that the driver creates; other numbers are ignored."""
    counts = EngineCounts()
    counts.usage = 10.0
    report = PartitionReport(0, 5, 0, (), counted(counts, []), {})
    budget = Budget(9000, cost=len, price_per_1000=25)
    made = enrichment_event("fn", MicroBatch("q", 1), [report], 1.0, None, budget)
    records = [{"kind": "added", "at": START, "event": {**made, "id": str(number)}} for number in range(3)]
    [summary] = summaries(*records, application_totals())
    enriched = {key: value for key, value in summary.attributes.items() if key.startswith("spark.summary.enrich")}
    assert enriched == {"spark.summary.enrich.cost": 0.75, "spark.summary.enrich.fn.usage": 30}


def spent_by(*functions: str, **numbers: float) -> dict[str, Any]:
    """Return the summary's numbers of enrichments after one batch of each function."""
    spent = {f"spark.enrich.{name}": number for name, number in numbers.items()}
    own = {"name": "EnrichmentEvent", "class_scope": "spark_events.enrich"}
    records = [
        {"kind": "added", "at": START, "event": {"id": str(number), **own, "attributes": attributes}}
        for number, function in enumerate(functions)
        for attributes in [{"spark.enrich.function": function, **spent}]
    ]
    prefix = "spark.summary.enrich."
    [summary] = summaries(*records, application_totals())
    return {key.removeprefix(prefix): value for key, value in summary.attributes.items() if key.startswith(prefix)}


def test_cost_is_summed_and_usage_is_summed_per_function() -> None:
    """Functions have different units of usage, such as tokens and characters, but one currency for the cost."""
    found = spent_by("embed", "translate", "embed", cost=0.25, usage=10, rows=5)
    assert found == {"cost": 0.75, "embed.usage": 20, "translate.usage": 10}
    assert spent_by("embed", rows=5) == {}


def test_twenty_functions_have_their_own_usage() -> None:
    """The number of attributes is bounded, regardless of the number of functions."""
    found = spent_by(*(f"f{number}" for number in range(25)), "f0", usage=1)
    assert len(found) == 21
    assert (found["f0.usage"], found["f19.usage"], found["(others).usage"]) == (2, 1, 5)


# --- event logs ---------------------------------------------------------------------------------


COMPLETED = "SparkListenerStageCompleted"


def attempt_of(line: dict[str, Any]) -> tuple[int, int]:
    return line["Stage ID"], line["Stage Attempt ID"]


@pytest.mark.parametrize("log", sorted(LOGS.glob("*.jsonl")), ids=lambda log: log.stem)
def test_summaries_of_an_event_log_equal_its_lines(log: Path) -> None:
    """A replay's sums equal the sums that this test computes from the log's lines about tasks and executors."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    tasks = [line for line in lines if line["Event"] == "SparkListenerTaskEnd"]
    translator = Translator(TranslateConfig(streaming_stages=True))
    complaints: list[str] = []
    [found] = find_logs(log)
    records = EventLogReader(found, complaints.append).records()
    events = [made for record in records for made in translator.translate(record)]
    assert complaints == []
    [total] = [made.attributes for made in events if made.name == "ApplicationSummaryEvent"]
    assert total["spark.summary.task_attempts"] == len(tasks)
    assert total["spark.summary.run_ms"] == sum(line["Task Metrics"]["Executor Run Time"] for line in tasks)
    ends = [line["Timestamp"] for line in lines if line["Event"] == "SparkListenerApplicationEnd"]
    added = [(line["Timestamp"], line["Executor Info"]["Total Cores"]) for line in lines if "Executor Info" in line]
    hours = sum(cores * (ends[0] - time) for time, cores in added) / HOUR
    assert total["spark.summary.core_hours"] == pytest.approx(hours)
    stages = [made.attributes for made in events if made.name == "StageSummaryEvent"]
    assert len(stages) == sum(line["Event"] == COMPLETED for line in lines) > 0
    for stage in stages:
        key = stage["spark.stage.id"], stage["spark.stage.attempt"]
        # Tasks may end after their stage has failed. Only the application's totals include these tasks.
        end = next(
            i for i, line in enumerate(lines) if line["Event"] == COMPLETED and attempt_of(line["Stage Info"]) == key
        )
        own = [line for line in lines[:end] if line in tasks and attempt_of(line) == key]
        infos = [line["Task Info"] for line in own]
        assert stage["spark.stage.task_attempts"] == len(own)
        assert stage["spark.stage.task_ms"] == sum(info["Finish Time"] - info["Launch Time"] for info in infos)
        assert stage["spark.stage.gc_ms"] == sum(line["Task Metrics"]["JVM GC Time"] for line in own)
        assert stage["spark.stage.tasks_failed_attempts"] == sum(info["Failed"] for info in infos)
        good = [info["Finish Time"] - info["Launch Time"] for info in infos if not info["Failed"]]
        assert stage.get("spark.stage.duration_max_ms") == max(good, default=None)


# --- live and replay ----------------------------------------------------------------------------


@given(application=applications(), delay=st.integers(0, 2_000))
def test_live_and_replayed_summaries_are_equal(application: Application, delay: int) -> None:
    """Live and replayed summaries are equal, although a driver's records are numbered and arrive late."""
    config = TranslateConfig(streaming_stages=True)
    live, replay = Translator(config), Translator(config)
    lines = [*application.records, application_totals()]
    seen, read_later = [], []
    for number, record in enumerate(lines, 1):
        late = {"seq": number, **record, "at": record["at"] + delay}
        live.tick(record["at"])
        seen += live.translate(decoded(late))
        read_later += replay.translate(decoded(record))
    names = ("StageSummaryEvent", "ApplicationSummaryEvent")
    ours = [(e.event_id, e.body, dict(e.attributes)) for e in seen if e.name in names]
    assert ours == [(e.event_id, e.body, dict(e.attributes)) for e in read_later if e.name in names]
    assert ours
