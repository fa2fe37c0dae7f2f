"""Tests of the events of real-time mode, with a real Kafka broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark.harness import PATIENT, Lab, Run, file_reporter, spark_version, two_lines
from spark.kafka_topics import broker_with, kafka_jars

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(spark_version() < (4, 1), reason="real-time mode exists since Spark 4.1"),
]

_ROWS = 1_000


@pytest.fixture(scope="module")
def run(lab: Lab) -> Run:
    """Return the finished job with one query."""
    settings = {
        **two_lines(),
        **PATIENT,
        **file_reporter(Path("{folder}/events.jsonl"), "async-queued"),
        "spark.master": "local[4]",
        "spark.sql.streaming.realTimeMode.minBatchDuration": "1000",
        "spark.jars": kafka_jars(),
    }
    with broker_with({"clicks": (str(row).encode() for row in range(_ROWS)), "real-time": ()}) as broker:
        found = lab.run("kafka_modes.py", broker.servers, "clicks", "real-time", defaults=settings)
    assert found.process.returncode == 0, found.tail()
    assert found.own_messages == []
    return found


def test_the_query_starts_and_finishes(run: Run) -> None:
    changes = run.named("JobStatusChangeEvent", spark_streaming_query_name="real-time")
    assert [event["attributes"]["spark.status.new"] for event in changes] == ["RUNNING", "FINISHED"]


def test_batches_of_real_time_mode_are_no_proof(run: Run) -> None:
    """Without state, Spark tracks the progress of real-time mode asynchronously, without an option."""
    reported = run.named("BatchCommitEvent", spark_streaming_query_name="real-time")
    assert len(reported) >= 2
    assert {event["attributes"]["spark.batch.committed"] for event in reported} == {False}
    assert sum(event["attributes"]["spark.batch.rows_input"] for event in reported) == _ROWS
    # A batch lasts as long as the trigger says, with or without data.
    assert all(event["attributes"]["spark.batch.duration.trigger_execution_ms"] >= 5_000 for event in reported)


def test_the_commits_of_real_time_mode_are_reported_when_they_are_written(run: Run) -> None:
    """Together, the events cover each batch up to the last entry once."""
    written = [event["attributes"] for event in run.named("CommitWrittenEvent", spark_streaming_query_name="real-time")]
    covered = [batch for one in written for batch in range(one["spark.batch.first_id"], one["spark.batch.id"] + 1)]
    assert covered == list(range(max(run.commits("real-time")) + 1))
