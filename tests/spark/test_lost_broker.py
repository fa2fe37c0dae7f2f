"""Test of an unreachable Kafka broker: the query hangs in its source, and an event names the source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reporters.peers.kafka import Kafka
from spark.harness import PATIENT, Lab, file_reporter, two_lines
from spark.kafka_topics import broker_with, kafka_jars

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

#: Package of Spark's Kafka source.
_KAFKA = "org.apache.spark.sql.kafka010."


@pytest.fixture
def broker() -> Iterator[Kafka]:
    """Yield a broker with a topic that contains one message."""
    with broker_with({"clicks": [b"1"]}) as broker:
        yield broker


def test_a_stopped_broker_is_reported_while_the_query_hangs(lab: Lab, broker: Kafka) -> None:
    settings = {
        **two_lines(),
        **PATIENT,
        **file_reporter(Path("{folder}/events.jsonl"), "async-queued"),
        "events.deadline.progress": "2s",
        "spark.jars": kafka_jars(),
    }
    run = lab.start("kafka_source.py", broker.servers, "clicks", defaults=settings)
    run.wait_until_announced("read")
    broker.stop()

    def overdue() -> dict[str, Any] | None:
        for event in run.named("DeadlineStatusChangeEvent", spark_deadline_rule="progress"):
            place = str(event["attributes"].get("spark.deadline.place"))
            stack = str(event["attributes"].get("spark.deadline.stack"))
            # The source lists the topic's partitions before it reads their offsets, and may hang in either.
            if any(line.startswith(_KAFKA) and place in line for line in stack.splitlines()):
                return event
        return None

    event = run.wait_for("the overdue query", overdue)
    assert event["attributes"]["spark.streaming.query.name"] == "clicks"
    assert event["attributes"]["spark.deadline.phase"] == "looking for new data"
    assert "looking for new data" in event["body"]
    run.end()
