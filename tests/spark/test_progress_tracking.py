"""Tests that a commit event proves a commit only if Spark has written the batch's entry in ``commits/``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spark.harness import PATIENT, Lab, Run, file_reporter, replay, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def run(lab: Lab) -> Run:
    """Return the finished job with its queries."""
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": "{folder}", "spark.eventLog.compress": "false"}
    reporter = file_reporter(Path("{folder}/events.jsonl"), "async-queued")
    found = lab.run("progress_tracking.py", defaults={**two_lines(), **PATIENT, **log, **reporter})
    assert found.process.returncode == 0, found.tail()
    assert found.own_messages == []
    return found


def batches(events: list[dict[str, Any]], query: str, committed: bool | None) -> list[int]:
    """Return the batches of a query whose event has this value of ``spark.batch.committed``."""
    return [
        event["attributes"]["spark.batch.id"]
        for event in events
        if event["attributes"]["spark.streaming.query.name"] == query
        and event["attributes"].get("spark.batch.committed") is committed
    ]


@pytest.mark.parametrize("query", ["synchronous", "files"])
def test_a_commit_is_proven_if_spark_writes_it_before_its_report(run: Run, query: str) -> None:
    """The query with a file sink runs while another query tracks its progress asynchronously."""
    reported = run.named("BatchCommitEvent")
    assert batches(reported, query, True) == run.commits(query)
    assert len(run.commits(query)) >= 5
    assert not [event for event in reported if batches([event], query, False)]


def test_a_batch_that_may_not_be_committed_is_no_proof(run: Run) -> None:
    """Spark reports all batches alike, but commits only some."""
    reported = run.named("BatchCommitEvent", spark_streaming_query_name="asynchronous")
    processed = batches(reported, "asynchronous", False)
    assert len(processed) == len(reported)
    assert processed == list(range(len(processed)))
    assert set(run.commits("asynchronous")) < set(processed)
    assert all("' processed batch " in event["body"] for event in reported)


@pytest.mark.parametrize("query", ["asynchronous", "entries"])
def test_each_entry_is_reported_with_the_batches_that_it_commits(run: Run, query: str) -> None:
    """The events end with the last entry, and contain each batch up to it once."""
    written = [event["attributes"] for event in run.named("CommitWrittenEvent", spark_streaming_query_name=query)]
    assert {found["spark.batch.id"] for found in written} <= set(run.commits(query))
    assert written[-1]["spark.batch.id"] == max(run.commits(query))
    covered = [
        batch for found in written for batch in range(found["spark.batch.first_id"], found["spark.batch.id"] + 1)
    ]
    assert covered == list(range(max(run.commits(query)) + 1))


def test_synchronous_queries_have_no_entries_of_their_own(run: Run) -> None:
    """The event of their batch is the proof, also while another query tracks its progress asynchronously."""
    named = {event["attributes"]["spark.streaming.query.name"] for event in run.named("CommitWrittenEvent")}
    assert named == {"asynchronous", "entries"}


def test_a_replay_claims_no_proof_that_the_log_does_not_contain(run: Run) -> None:
    """The event log does not show how a query tracks its progress; only the sink decides."""
    (log,) = run.folder.glob("*local-*")
    settings = {"events.reporters": "audit", "events.reporter.audit.type": "file"}
    path = run.folder / "replayed.jsonl"
    done = replay(run, log, settings={**settings, "events.reporter.audit.path": str(path)})
    assert done.returncode == 0, done.stderr
    assert not [event for event in run.events(path) if event["name"] == "CommitWrittenEvent"]
    replayed = [event for event in run.events(path) if event["name"] == "BatchCommitEvent"]
    assert batches(replayed, "files", True) == run.commits("files")
    for query in ("synchronous", "asynchronous", "entries"):
        live = run.named("BatchCommitEvent", spark_streaming_query_name=query)
        assert batches(replayed, query, None) == [event["attributes"]["spark.batch.id"] for event in live]
