"""Test that a query that stays behind a real Kafka broker is overdue, and then on time again."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark.harness import PATIENT, Lab, file_reporter, two_lines
from spark.kafka_topics import broker_with, kafka_jars

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(900)]


def test_a_backlog_becomes_overdue_and_is_caught_up(lab: Lab) -> None:
    settings = {
        **two_lines(),
        **PATIENT,
        **file_reporter(Path("{folder}/events.jsonl"), "async-queued"),
        "events.deadline.backlog.records": "150",
        "events.deadline.backlog.time": "1s",
        "spark.jars": kafka_jars(),
    }
    with broker_with({"clicks": (b"row" for _ in range(1_000))}) as broker:
        run = lab.start("kafka_backlog.py", broker.servers, "clicks", defaults=settings)
        overdue = run.wait_for("the alarm", lambda: run.named("DeadlineStatusChangeEvent", incident_role="alarm"))
        run.command("go")
        assert run.wait() == 0, run.tail()
    attributes = overdue[0]["attributes"]
    assert (overdue[0]["severity"], attributes["spark.deadline.rule"]) == ("WARN", "backlog.records")
    assert (attributes["spark.status.new"], attributes["spark.deadline.rows"]) == ("OVERDUE", 900)
    assert "source 0 of query 'clicks' has had more than 150 unread rows for 1" in overdue[0]["body"]
    last = run.named("DeadlineStatusChangeEvent")[-1]
    assert (last["severity"], last["attributes"]["incident.role"]) == ("INFO", "recovery")
    assert last["attributes"]["spark.status.new"] == "ON_TIME"
    assert last["body"].endswith(": 100 rows left")
