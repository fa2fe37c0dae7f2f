"""Tests of jobs and stage attempts: in streams, only failures are reported by default; in batch applications, all."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import START, decoded, query_started

from spark_events import Event, Severity
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

FAILED = {"chain": [{"type": "java.io.IOException", "message": "disk"}]}
BATCH = {"callSite.short": "collect at /app/job.py:9", "spark.job.description": "nightly\nreport"}
STREAM = {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "7"}
FETCH = "org.apache.spark.shuffle.FetchFailedException: no block\n\tat a.B.c(B.java:1)"


def job_start(**properties: str) -> dict[str, Any]:
    return {"kind": "job_start", "job_id": 4, "time": START, "properties": properties}


def job_end(number: int = 4, failure: Any = None) -> dict[str, Any]:
    return {"kind": "job_end", "job_id": number, "time": START + 5, "failure": failure}


def stage(kind: str, attempt: int = 0, **fields: Any) -> dict[str, Any]:
    about = {"stage_id": 2, "attempt": attempt, "name": "collect at /app/job.py:9", "tasks": 3, "time": START}
    return {"kind": kind, **about, **fields}


def edge(status: str, attempt: int = 0, **fields: Any) -> dict[str, Any]:
    counts = {"running": 3, "finished": 0, "failed": 0}
    return {"kind": "stage_tasks", "stage_id": 2, "attempt": attempt, "status": status, "tasks": 3} | {
        "time": START,
        **counts,
        **fields,
    }


def translate(*records: dict[str, Any], **config: Any) -> list[Event]:
    translator = Translator(TranslateConfig(**config))
    translator.translate(decoded(query_started()))
    events = [event for record in records for event in translator.translate(decoded(record))]
    return [event for event in events if event.class_scope != "spark.executor"]


def test_a_batch_job_is_reported_from_start_to_end() -> None:
    """A batch job causes two status changes, at its start and its end, with the origin of the job."""
    started, finished = translate(job_start(**BATCH), job_end())
    assert started.body == "Job 4 (nightly report) started"
    assert (finished.attributes["spark.status.old"], finished.attributes["spark.status.new"]) == ("RUNNING", "FINISHED")
    assert finished.attributes["spark.job.call_site"] == "collect at /app/job.py:9"
    assert finished.attributes["spark.job.id"] == 4


def test_a_batch_job_that_fails_has_a_status_and_a_failure() -> None:
    _, status, failure = translate(job_start(), job_end(failure=FAILED))
    assert (status.attributes["spark.status.new"], status.severity) == ("FAILED", Severity.INFO)
    assert failure.body == "Job 4 failed: java.io.IOException: disk"
    assert failure.attributes["failure.will_retry"] is False


def test_jobs_of_a_micro_batch_are_quiet_unless_they_fail() -> None:
    """Jobs of a micro-batch are reported only if they fail, because a stream runs hundreds of jobs per hour."""
    assert translate(job_start(**STREAM), job_end()) == []
    status, failure = translate(job_start(**STREAM), job_end(failure=FAILED))
    assert (status.attributes["spark.status.old"], status.attributes["spark.status.new"]) == ("RUNNING", "FAILED")
    assert failure.body == "Job 4 (query 'clicks', batch 7) failed: java.io.IOException: disk"
    assert failure.attributes["spark.streaming.query.run_id"] == "r1"


def test_jobs_of_a_micro_batch_can_be_switched_on() -> None:
    """With events.streaming-jobs.enabled, jobs of micro-batches are reported like other jobs."""
    events = translate(job_start(**STREAM), job_end(), streaming_jobs=True)
    assert [event.attributes["spark.status.new"] for event in events] == ["RUNNING", "FINISHED"]


def test_job_is_reported_once() -> None:
    """A repeated start or end of a job causes no second event."""
    assert len(translate(job_start(), job_start(), job_end(), job_end(), job_start(), job_end(failure=FAILED))) == 2


def test_stage_edges_have_the_counts_of_the_shim() -> None:
    """Each status change of a stage contains the old status, the new status and the task counts of the shim."""
    records = [
        stage("stage_submitted", properties=BATCH),
        edge("ALL_RUNNING_OR_FINISHED"),
        edge("NOT_ALL_RUNNING_OR_FINISHED", running=2, failed=1, time=START + 1),
        edge("ALL_RUNNING_OR_FINISHED", time=START + 2),
        edge("ALL_FINISHED", running=0, finished=3, time=START + 3),
    ]
    events = translate(*records)
    assert [event.name for event in events] == ["AllSubtasksStatusChangeEvent"] * 4
    assert [event.attributes.get("spark.status.old") for event in events] == [
        None,
        "ALL_RUNNING_OR_FINISHED",
        "NOT_ALL_RUNNING_OR_FINISHED",
        "ALL_RUNNING_OR_FINISHED",
    ]
    assert events[1].attributes["spark.stage.tasks_failed_attempts"] == 1
    assert events[3].body.startswith("All 3 tasks of stage 2 [collect at /app/job.py:9] have finished")
    assert len({event.event_id for event in events}) == 4


def test_repeated_or_unrelated_status_changes_make_no_event() -> None:
    """A status change is ignored if the status is unchanged, or if the stage was not submitted or has finished."""
    submitted, over = stage("stage_submitted"), stage("stage_completed")
    assert translate(edge("ALL_FINISHED")) == []
    assert len(translate(submitted, edge("ALL_FINISHED"), edge("ALL_FINISHED"))) == 1
    assert translate(submitted, over, edge("ALL_FINISHED")) == []


def test_stages_of_a_micro_batch_are_quiet_unless_switched_on() -> None:
    """Stages of a micro-batch are reported only with events.streaming-stages.enabled."""
    records = [stage("stage_submitted", properties=STREAM), edge("ALL_FINISHED")]
    assert translate(*records) == []
    assert len(translate(*records, streaming_stages=True)) == 1


@pytest.mark.parametrize(
    ("reason", "severity", "will_retry"),
    [
        (FETCH, Severity.WARN, True),
        (f"Job aborted due to stage failure: x {FETCH}", Severity.INFO, False),
        ("java.io.IOException: disk\n\tat a.B.c(B.java:1)", Severity.INFO, False),
    ],
    ids=["fetch-failed", "aborted", "other"],
)
def test_failed_attempt_reports_whether_spark_retries(reason: str, severity: Severity, will_retry: bool) -> None:
    """A failed attempt that Spark retries is a warning. The last failed attempt is an error."""
    over = stage("stage_completed", failure_reason=reason, task_failure=reason, failed=1)
    (event,) = translate(stage("stage_submitted"), over)
    assert (event.name, event.severity) == ("JobFailureEvent", severity)
    assert (event.attributes["spark.entity"], event.attributes["failure.will_retry"]) == ("stage", will_retry)
    assert ("will be retried by Spark" in event.body) is will_retry


@pytest.mark.parametrize("reason", [None, "Stage cancelled because SparkContext was shut down", "Job 4 cancelled"])
def test_stage_ended_by_another_failure_is_not_reported(reason: str | None) -> None:
    """A stage that ended because of another failure is not reported, because the job's event contains the cause."""
    assert translate(stage("stage_submitted"), stage("stage_completed", failure_reason=reason)) == []


def test_a_lost_executor_is_named_with_its_reason() -> None:
    """The event of a stage that failed because of a lost executor contains the reason for the loss."""
    gone = {"kind": "executor_removed", "executor_id": "1", "time": START, "reason": "killed by the kernel"}
    lost = (
        "Job aborted due to stage failure: Task 0 in stage 2.0 failed 4 times, most recent failure: "
        "Lost task 0.3 in stage 2.0 (TID 7) (10.0.0.9 executor 1): "
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)"
    )
    (event,) = translate(gone, stage("stage_submitted"), stage("stage_completed", failure_reason=lost, failed=1))
    assert event.attributes["failure.executor.id"] == "1"
    assert event.attributes["failure.executor.reason"] == "killed by the kernel"
