"""Tests that each event about the work of a shared server's client names user and session, in body and attributes."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import START, application_start, decoded, query_progress, query_started

from spark_events import Event, Severity
from spark_events.translate.clients import client_of
from spark_events.translate.translation_config import BatchCommitConfig, TranslateConfig
from spark_events.translate.translator import Translator
from unit.translate.test_deadlines import HOUR, MINUTE, Driver, iso
from unit.translate.test_statements import ERROR, GROUP, SESSION, TAG, THRIFT_STARTED, job

THRIFT = ([THRIFT_STARTED], {"spark.jobGroup.id": GROUP, "spark.job.description": "select 1/0"}, {"group": GROUP})
CONNECT: Any = ([], {"spark.job.tags": TAG, "spark.job.description": "daily"}, {"tags": TAG})
#: The stage has the name of the job's call site, which the body contains once.
UNDESCRIBED: Any = ([], {"spark.job.tags": TAG, "callSite.short": "count at x.py:3"}, {"tags": TAG})
SERVERS = pytest.mark.parametrize(
    ("before", "properties", "execution"), [THRIFT, CONNECT, UNDESCRIBED], ids=["thrift", "connect", "call-site"]
)
FETCH = "org.apache.spark.shuffle.FetchFailedException: Failed to connect to h1\n\tat a.B.c(B.java:1)"


def assert_named(events: list[Event], count: int) -> None:
    """Check the number of events, and that each names the client, so that a person and a route can use it."""
    assert len(events) == count, [event.body for event in events]
    for event in events:
        assert "(user 'ada', session 839c8b37)" in event.body, event.body
        assert event.body.count("ada") == 1, event.body
        assert client_of(event.attributes) == "user 'ada', session 839c8b37"
        assert SESSION in event.attributes.values()


@SERVERS
def test_overdue_jobs_and_waiting_stages(before: Any, properties: dict[str, str], execution: Any) -> None:
    """The alarms, what follows from them, and their recoveries."""
    driver = Driver({"events.deadline.job": "1h", "events.deadline.resources": "5min"})
    for record in before:
        driver.tell(record)
    driver.tell({"kind": "job_start", "job_id": 3, "time": START, "properties": properties})
    stage = {"stage_id": 7, "attempt": 0, "name": "count at x.py:3", "tasks": 8, "running": 0, "finished": 0}
    driver.jobs, driver.idle_since = [[3, 7]], 1
    driver.stages = [{**stage, "time": START, "properties": properties}]
    driver.passes(HOUR)
    driver.jobs, driver.stages, driver.idle_since = [], [], 0
    driver.tell({"kind": "job_end", "job_id": 3, "time": driver.now})
    driver.passes(MINUTE)
    assert_named(driver.events, 5)


@pytest.mark.parametrize("rule", ["batch", "progress", "backlog.files"])
def test_overdue_queries(rule: str) -> None:
    driver = Driver({f"events.deadline.{rule}": "10" if "." in rule else "5min", "events.deadline.resources": "off"})
    driver.tell(query_started("r1", "q1", "clicks", timestamp=iso(driver.now), tags=TAG))
    driver.works()
    if "." in rule:
        driver.waits()
        driver.commits(1, sources=[{"metrics": {"numFilesOutstanding": "100"}}])
    driver.passes(20 * MINUTE)
    driver.commits(2, sources=[])
    driver.tell({"kind": "query_terminated", "id": "q1", "run_id": "r1"})
    assert_named(driver.events, 3)


@SERVERS
def test_failed_jobs_executions_and_retried_stages(before: Any, properties: dict[str, str], execution: Any) -> None:
    stage = {"stage_id": 7, "attempt": 0, "name": "count at x.py:3", "tasks": 2, "time": START}
    moment = {"execution_id": 5, "time": START + 1}
    records = [
        application_start(),
        *before,
        *job(properties),
        {"kind": "stage_submitted", **stage, "properties": properties},
        {"kind": "stage_completed", **stage, "failure_reason": FETCH},
        {"kind": "sql_execution_start", **moment, **execution},
        {"kind": "sql_execution_end", **moment, "error": ERROR},
    ]
    translator = Translator()
    events = [event for record in records for event in translator.translate(decoded(record))]
    assert_named([event for event in events if event.severity >= Severity.WARN], 3)


def test_slow_commits_of_a_query() -> None:
    """Commits that are merged with others name the client, too."""
    translator = Translator(TranslateConfig(batch_commit=BatchCommitConfig(max_duration=1.0, min_interval=60)))
    fast, slow = ({"addBatch": 1, "triggerExecution": millis} for millis in (5, 5_000))
    records = [
        application_start(),
        query_started("r1", "q1", "clicks", tags=TAG),
        *(query_progress(batch, durationMs=slow if batch == 3 else fast) for batch in range(5)),
    ]
    events = [event for record in records for event in translator.translate(decoded(record))]
    events += translator.tick(START + HOUR)
    commits = [event for event in events if event.name == "BatchCommitEvent"]
    assert any(event.severity is Severity.WARN for event in commits)
    assert any("batches" in event.body for event in commits)
    assert_named(commits, len(commits))
