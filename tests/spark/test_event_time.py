"""Tests that the events of one real run equal Spark's data: idle inputs, late rows, stages, coalesced commits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from spark.harness import PATIENT, Lab, Run, file_reporter, replay, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

SETTINGS = {
    # The idle timeout exceeds the delays of a busy machine, so a source that delivers rows is never reported as idle.
    "events.watermark.idle-timeout": "8s",
    # The interval is long enough for several batches, even on a slow machine.
    "events.batch-commit.min-interval": "20s",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": "{folder}",
    "spark.eventLog.compress": "false",
    "spark.local.dir": "{folder}/local",
    "spark.stage.maxConsecutiveAttempts": "2",
}


@pytest.fixture(scope="module")
def run(lab: Lab) -> Run:
    """Return the finished job with idle inputs, late rows and retried stages."""
    reporter = file_reporter(Path("{folder}/events.jsonl"), "async-queued")
    found = lab.run("event_time.py", defaults={**two_lines(), **PATIENT, **SETTINGS, **reporter})
    assert found.process.returncode == 0, found.tail()
    assert found.own_messages == []
    return found


@pytest.fixture(scope="module")
def spark_log(run: Run) -> list[dict[str, Any]]:
    """Return Spark's event log."""
    return run.event_log()


def edges(run: Run, query: str, subject: str, index: int | None = None) -> list[dict[str, Any]]:
    """Return the status changes of a query or of one of its sources."""
    reported = run.named(
        "WatermarkStatusChangeEvent", spark_streaming_query_name=query, spark_watermark_subject=subject
    )
    return [event for event in reported if event["attributes"].get("spark.source.index") == index]


def statuses(reported: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["attributes"]["spark.status.old"], event["attributes"]["spark.status.new"]) for event in reported]


@pytest.mark.parametrize("policy", ["min", "max"])
def test_a_silent_source_is_idle_until_it_has_rows(run: Run, policy: str) -> None:
    """A source without rows becomes IDLE once and ACTIVE once. The events contain Spark's configured policy."""
    reported = edges(run, policy, "source", 1)
    assert statuses(reported) == [("ACTIVE", "IDLE"), ("IDLE", "ACTIVE")]
    assert {event["attributes"]["spark.watermark.policy"] for event in reported} == {policy}
    idle, active = reported
    assert idle["observed_ts_millis"] - idle["attributes"]["spark.watermark.idle_since_millis"] >= 8_000
    assert (
        active["attributes"]["spark.watermark.idle_since_millis"]
        == idle["attributes"]["spark.watermark.idle_since_millis"]
    )


def test_under_min_the_silent_source_holds_the_watermark_back(run: Run) -> None:
    """With the policy min, a source without rows holds back the watermark. Both events name the source."""
    source, query = edges(run, "min", "source", 1)[0], edges(run, "min", "query")[0]
    assert statuses([query]) == [("ACTIVE", "IDLE")]
    for event in (source, query):
        assert event["severity"] == "WARN"
        assert event["attributes"]["spark.watermark.held_back_by"].startswith("source 1 (FileStreamSource[")
        assert event["attributes"]["spark.watermark.time"] == "2026-01-01T00:01:30.000Z"
    assert query["attributes"]["spark.watermark.idle_rows_read"] > 0
    assert query["attributes"]["spark.watermark.lag_ms"] > 10_000
    assert statuses(edges(run, "min", "query"))[1:] == [("IDLE", "ACTIVE")]


def test_under_max_the_watermark_advances_and_late_rows_are_dropped(run: Run) -> None:
    """With the policy max, the watermark advances without the idle source. Later rows of this source are dropped."""
    assert edges(run, "max", "query") == []
    idle, active = edges(run, "max", "source", 1)
    assert (idle["severity"], idle["attributes"].get("spark.watermark.held_back_by")) == ("INFO", None)
    dropped = run.truth()["max"]["dropped"]
    assert dropped > 0
    assert (active["severity"], active["attributes"]["spark.watermark.rows_dropped_late"]) == ("WARN", dropped)
    assert f"{dropped:,} row{' was' if dropped == 1 else 's were'} dropped as late" in active["body"]


def test_an_active_source_is_never_idle(run: Run) -> None:
    assert edges(run, "min", "source", 0) == edges(run, "max", "source", 0) == []


@pytest.mark.parametrize("policy", ["min", "max"])
def test_coalesced_commits_cover_every_batch_once(run: Run, policy: str) -> None:
    batches: list[int] = []
    reported = run.named("BatchCommitEvent", spark_streaming_query_name=policy)
    for event in reported:
        attributes = event["attributes"]
        last = attributes["spark.batch.id"]
        covered = list(range(attributes.get("spark.batch.first_id", last), last + 1))
        assert attributes["spark.batch.count"] == len(covered)
        batches += covered
    assert batches == run.commits(f"{policy}/checkpoint")
    assert len(reported) < len(batches)


def test_stages_match_spark_s_event_log(run: Run, spark_log: list[dict[str, Any]]) -> None:
    """Each successful stage attempt is reported from start to end, with Spark's number of tasks."""
    streaming = {
        (entry["Stage Info"]["Stage ID"], entry["Stage Info"]["Stage Attempt ID"])
        for entry in spark_log
        if entry["Event"].endswith("StageSubmitted") and "sql.streaming.queryId" in (entry["Properties"] or {})
    }
    completed = [entry["Stage Info"] for entry in spark_log if entry["Event"].endswith("StageCompleted")]
    expected = {
        (stage["Stage ID"], stage["Stage Attempt ID"]): stage["Number of Tasks"]
        for stage in completed
        if "Failure Reason" not in stage and (stage["Stage ID"], stage["Stage Attempt ID"]) not in streaming
    }
    reported = {
        (event["attributes"]["spark.stage.id"], event["attributes"]["spark.stage.attempt"]): event["attributes"]
        for event in run.named("AllSubtasksStatusChangeEvent", spark_status_new="ALL_FINISHED")
    }
    assert {key: attributes["spark.stage.tasks_finished"] for key, attributes in reported.items()} == expected
    assert len(expected) >= 5
    running = run.named("AllSubtasksStatusChangeEvent", spark_status_new="ALL_RUNNING_OR_FINISHED")
    assert {(e["attributes"]["spark.stage.id"], e["attributes"]["spark.stage.attempt"]) for e in running} >= set(
        reported
    )


def test_a_stage_with_missing_input_is_a_warning_about_its_retry(run: Run, spark_log: list[dict[str, Any]]) -> None:
    """Failed stage attempts equal the attempts in Spark's event log, with severity WARN, because the job finishes."""
    failed = [
        (entry["Stage Info"]["Stage ID"], entry["Stage Info"]["Stage Attempt ID"])
        for entry in spark_log
        if entry["Event"].endswith("StageCompleted") and "FetchFailed" in entry["Stage Info"].get("Failure Reason", "")
    ]
    reported = run.named("JobFailureEvent", spark_job_description="input lost")
    assert [(e["attributes"]["spark.stage.id"], e["attributes"]["spark.stage.attempt"]) for e in reported] == failed
    assert failed
    for event in reported:
        assert (event["severity"], event["attributes"]["failure.will_retry"]) == ("WARN", True)
        assert event["attributes"]["exception.type"].endswith("FetchFailedException")
        assert event["attributes"]["failure.label.type"] == "RESOURCE"
    truth = run.truth()
    assert truth["first"] == truth["second"] == 5
    jobs = run.named("JobStatusChangeEvent", spark_entity="job", spark_job_description="input lost")
    assert [job["attributes"]["spark.status.new"] for job in jobs] == ["RUNNING", "FINISHED"] * 2


def test_the_last_allowed_attempt_fails_its_job(run: Run) -> None:
    """If a stage fails its last allowed attempt, the job fails. The job allows two attempts per stage."""
    assert "allowable number of times: 2" in run.truth()["in vain"]
    reported = run.named("JobFailureEvent", spark_entity="stage", spark_job_description="in vain")
    assert [(e["severity"], e["attributes"]["failure.will_retry"]) for e in reported] == [
        ("WARN", True),
        ("INFO", False),
    ]
    (job,) = run.named("JobFailureEvent", spark_entity="job", spark_job_description="in vain")
    assert (job["severity"], job["attributes"]["incident.role"]) == ("WARN", "member")


def test_a_replay_has_timer_events_before_a_query_s_end(run: Run) -> None:
    """If a query becomes idle and stops between two progress events, its replay contains the IDLE event."""
    (log,) = run.folder.glob("*local-*")
    idle_timeout = {"events.watermark.idle-timeout": SETTINGS["events.watermark.idle-timeout"]}
    done = replay(run, log, "--name", "WatermarkStatusChangeEvent", settings=idle_timeout)
    assert done.returncode == 0, done.stderr
    live = run.named("WatermarkStatusChangeEvent", spark_streaming_query_name="silent")
    assert len(live) >= 2
    replayed = [json.loads(line) for line in done.stdout.splitlines()]
    again = [event for event in replayed if event["attributes"].get("spark.streaming.query.name") == "silent"]
    assert [{**event, "sequence": 0} for event in again] == [{**event, "sequence": 0} for event in live]
