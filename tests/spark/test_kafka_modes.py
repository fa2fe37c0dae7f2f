"""Tests of micro-batches and continuous mode, and of backlogs, with a real Kafka broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from reporters.peers.kafka import Kafka
from spark.harness import PATIENT, Lab, Run, file_reporter, two_lines
from spark.kafka_topics import broker_with, kafka_jars

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_MODES = ("micro-batch", "continuous")
_ROWS, _PER_BATCH = 1_000, 100


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    """Yield a broker with a topic of 1,000 rows, and a topic for the output of each query."""
    rows = (str(row).encode() for row in range(_ROWS))
    with broker_with({"clicks": rows, **dict.fromkeys(_MODES, ())}) as broker:
        yield broker


@pytest.fixture(scope="module")
def run(lab: Lab, broker: Kafka) -> Run:
    """Return the finished job with one query for each mode."""
    settings = {
        **two_lines(),
        **PATIENT,
        **file_reporter(Path("{folder}/events.jsonl"), "async-queued"),
        "events.deadline.backlog.records": "1",
        "spark.master": "local[4]",
        "spark.jars": kafka_jars(),
    }
    found = lab.run("kafka_modes.py", broker.servers, "clicks", *_MODES, defaults=settings)
    assert found.process.returncode == 0, found.tail()
    assert found.own_messages == []
    return found


@pytest.mark.parametrize("mode", _MODES)
def test_each_query_starts_and_finishes(run: Run, mode: str) -> None:
    changes = run.named("JobStatusChangeEvent", spark_streaming_query_name=mode)
    assert [event["attributes"]["spark.status.new"] for event in changes] == ["RUNNING", "FINISHED"]


def test_the_backlog_of_a_topic_is_what_spark_reports(run: Run) -> None:
    """The rows behind equal Spark's metric for the only partition; the time follows from the rows per second."""
    reported = run.named("BatchCommitEvent", spark_streaming_query_name="micro-batch")
    behind = [event["attributes"]["spark.source.0.backlog_records"] for event in reported]
    assert behind == [_ROWS - _PER_BATCH * batch for batch in range(1, len(behind) + 1)]
    sources = run.truth()[: len(behind)]
    assert behind == [int(source["metrics"]["maxOffsetsBehindLatest"]) for source in sources]
    for kind in ("input", "processed"):
        rates = [event["attributes"].get(f"spark.source.0.{kind}_rows_per_second") for event in reported]
        exact = [source.get(f"{kind}RowsPerSecond") for source in sources]
        # The events have one decimal.
        assert rates == [None if rate is None else pytest.approx(rate, abs=0.05 + 1e-9) for rate in exact]
    first, last = reported[0]["attributes"], reported[-1]["attributes"]
    took = first["spark.batch.duration.trigger_execution_ms"] / 1_000
    assert first["spark.source.0.backlog_seconds"] == pytest.approx(behind[0] / (_PER_BATCH / took), abs=0.1)
    assert last["spark.source.0.backlog_seconds"] == 0


def test_micro_batches_are_committed(run: Run) -> None:
    reported = run.named("BatchCommitEvent", spark_streaming_query_name="micro-batch", spark_batch_committed=True)
    assert [event["attributes"]["spark.batch.id"] for event in reported] == run.commits("micro-batch")


def test_epochs_of_continuous_queries_are_not_reported(run: Run) -> None:
    """Spark commits epochs, but reports no progress, so no event proves a commit."""
    assert len(run.commits("continuous")) >= 2
    assert run.truth("continuous") == 0
    assert run.named("BatchCommitEvent", spark_streaming_query_name="continuous") == []
