"""Tests of cancelled work: it has not failed, and it is no second problem."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fakes import START, application_start, decoded

from spark_events import Event, Severity
from spark_events.records.cancellation import is_cancellation
from spark_events.translate.incidents.incident_config import AlarmConfig
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

GROUP = "125ab4aa-d020-472f-b9e4-e767e78a8c20"
INTERRUPTED = "java.lang.InterruptedException\n\tat java.base/java.util.concurrent.LinkedBlockingQueue.take(L.java:435)"
IN_GROUP = f"Job 0 cancelled part of cancelled job group {GROUP}"
OF_THRIFT = "[SPARK_JOB_CANCELLED] Job 0 cancelled The corresponding Thriftserver query has failed. SQLSTATE: XXKDA"
SIBLING = "[SPARK_JOB_CANCELLED] Job 5 cancelled The corresponding broadcast query has failed. SQLSTATE: XXKDA"
ABORTED = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: x"
TIMED_OUT = {"kind": "statement_timed_out", "statement_id": GROUP, "time": START + 2}


def started(number: int, execution: int = 1, group: str | None = None) -> dict[str, Any]:
    properties = {"spark.sql.execution.id": str(execution), "spark.job.description": "select 1"}
    properties |= {} if group is None else {"spark.jobGroup.id": group}
    return {"kind": "job_start", "job_id": number, "time": START, "properties": properties}


def ended(number: int, message: str) -> dict[str, Any]:
    failure = {"chain": [{"type": "org.apache.spark.SparkException", "message": message}]}
    return {"kind": "job_end", "job_id": number, "time": START + 3, "failure": failure}


def sql(error: str, number: int = 1) -> dict[str, Any]:
    return {"kind": "sql_execution_end", "execution_id": number, "root_id": number, "time": START + 2, "error": error}


def events(*records: dict[str, Any], config: TranslateConfig | None = None) -> list[Event]:
    translator = Translator(config or TranslateConfig())
    return [one for record in (application_start(), *records) for one in translator.translate(decoded(record))]


def problems(found: list[Event]) -> list[Event]:
    return [event for event in found if event.severity >= Severity.WARN]


@pytest.mark.parametrize("cancelled", [IN_GROUP, OF_THRIFT])
@pytest.mark.parametrize("timeout_first", [True, False])
def test_a_statement_timeout_is_one_problem(cancelled: str, timeout_first: bool) -> None:
    """Spark reports the interrupted execution and the timeout in any order; only the timeout is a problem."""
    middle = [TIMED_OUT, sql(INTERRUPTED)] if timeout_first else [sql(INTERRUPTED), TIMED_OUT]
    found = events(started(0, group=GROUP), *middle, ended(0, cancelled))
    (timeout,) = problems(found)
    assert timeout.body == "shop: SQL statement (select 1) was cancelled by its query timeout"
    assert timeout.attributes["error.type"] == "QUERY_TIMEOUT"
    assert found[-1].attributes["spark.status.new"] == "CANCELLED"
    assert {one.attributes["incident.id"] for one in found if "incident.id" in one.attributes} == {timeout.event_id}
    assert "incident.id" in found[-1].attributes


def test_a_timeout_without_a_running_job_is_reported() -> None:
    (timeout,) = problems(events(TIMED_OUT))
    assert timeout.body == "shop: SQL statement was cancelled by its query timeout"


@pytest.mark.parametrize("error", [INTERRUPTED, "java.nio.channels.ClosedByInterruptException", IN_GROUP, OF_THRIFT])
def test_a_cancelled_execution_is_no_problem(error: str) -> None:
    """A user or a program that cancels a statement interrupts its thread."""
    assert problems(events(started(0), sql(error), ended(0, IN_GROUP))) == []


@pytest.mark.parametrize("sibling", [SIBLING, ABORTED])
@pytest.mark.parametrize("order", ["job first", "execution first", "sibling first"])
@pytest.mark.parametrize("are_alarms", [True, False])
def test_what_ends_with_a_failed_execution_is_no_second_problem(sibling: str, order: str, are_alarms: bool) -> None:
    """One failed job, its execution and a sibling job are one incident, whatever the order of the records."""
    stage = {"kind": "stage_completed", "stage_id": 1, "attempt": 0, "name": "s", "tasks": 1, "time": START + 1}
    records = {
        "job first": [ended(4, ABORTED), sql(ABORTED), ended(5, sibling)],
        "execution first": [sql(ABORTED), ended(5, sibling), ended(4, ABORTED)],
        "sibling first": [ended(5, sibling), sql(ABORTED), ended(4, ABORTED)],
    }
    begun = [{**started(4), "stages": [1]}, started(5), {**stage, "failure_reason": ABORTED, "task_failure": "E: x"}]
    alarms = AlarmConfig(jobs=re.compile("select") if are_alarms else None)
    found = events(*begun, *records[order], config=TranslateConfig(alarms=alarms))
    (problem,) = problems(found)
    assert problem.attributes["spark.job.id"] == 4
    assert (problem.severity is Severity.ERROR) is are_alarms
    of_jobs = [one.attributes for one in found if one.attributes.get("spark.status.new") in ("FAILED", "CANCELLED")]
    assert sorted(int(one["spark.job.id"]) for one in of_jobs) == [4, 5]
    failures = [one.attributes for one in found if one.name == "JobFailureEvent"]
    assert {one["incident.id"] for one in (*of_jobs, *failures)} == {problem.event_id}


def test_a_job_cancelled_after_a_failure_in_the_driver_joins_it() -> None:
    found = events(started(5), sql("[PATH_ALREADY_EXISTS] Path file:/out already exists."), ended(5, SIBLING))
    (problem,) = problems(found)
    assert problem.attributes["spark.entity"] == "sql"
    assert found[-1].attributes["incident.id"] == problem.event_id


def test_jobs_that_fail_in_two_executions_are_two_problems() -> None:
    found = events(started(4), started(5, execution=2), ended(4, ABORTED), ended(5, ABORTED))
    assert len({event.attributes["incident.id"] for event in problems(found)}) == 2


def test_a_cancelled_stage_has_not_failed() -> None:
    stage = {"stage_id": 4, "attempt": 0, "name": "s", "tasks": 1, "time": START + 1}
    submitted = {"kind": "stage_submitted", **stage, "properties": {}}
    totals = {"started": START, "ended": START + 1}
    completed = {"kind": "stage_completed", **stage, "failure_reason": IN_GROUP, "totals": totals}
    assert events(submitted, completed)[-1].body == "shop: stage 4 [s] was cancelled after 1 ms with 1 task"


@pytest.mark.parametrize(
    ("message", "cancelled"),
    [
        (IN_GROUP, True),
        (OF_THRIFT, True),
        ("org.apache.spark.SparkException: Job 3 cancelled because SparkContext was shut down", True),
        (ABORTED, False),
        (f"{ABORTED}\n{IN_GROUP}", False),
        ("", False),
    ],
)
def test_messages_of_cancelled_work(message: str, cancelled: bool) -> None:
    assert is_cancellation(message) is cancelled


def test_the_summary_counts_cancelled_jobs_apart() -> None:
    record = {"kind": "application_totals", "time": START + 9, "jobs": 7, "jobs_failed": 1, "jobs_cancelled": 5}
    (summary,) = events(record)[1:]
    assert summary.body.startswith("Application 'shop' runs: 1 of 7 jobs failed and 5 jobs were cancelled, ")
    assert summary.attributes["spark.summary.jobs_cancelled"] == 5
