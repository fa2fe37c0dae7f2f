"""Tests of the progress of a batch, with a clock of the test."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from fakes import eventually

from spark_events import Auto, Budget, Limits
from spark_events.enrichment.driver.channel_server import opened_channel
from spark_events.enrichment.driver.micro_batch import MicroBatch
from spark_events.enrichment.driver.progress import Progress
from spark_events.enrichment.engine.loop import BackgroundLoop
from spark_events.enrichment.worker.channel_client import TaskAttempt

BATCH = MicroBatch("q", 7, run="r", spark_query="q")


def numbers(rows: int, **limited: float) -> dict[str, Any]:
    return {
        "rows": rows, "attempts": rows + 1, "retries": 1, "throttled": 0, "failures": 0, "in_flight": 4,
        "limited": limited,
    }  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(clock: Clock, limits: Limits | None = None) -> Progress:
    return Progress("lookup", BATCH, limits or Limits(), 30.0, clock)


def test_an_event_sums_the_tasks_and_describes_the_time_since_the_previous_event(clock: Clock) -> None:
    progress = made(clock)
    assert progress.event() is None
    progress.update(TaskAttempt(partition=0, task=1), numbers(100, service=9.0))
    progress.update(TaskAttempt(partition=1, task=2), numbers(200, upstream=1.0))
    clock.now += 30
    first = progress.event()
    assert first is not None
    assert first["body"] == (
        "Enriching with lookup on batch 7 of query q: 300 rows after 30 s (10.0 per second), calls in flight: 8, "
        "limited by service"
    )
    progress.update(TaskAttempt(partition=0, task=1), numbers(700, service=10.0, buffer=20.0))
    clock.now += 30
    second = progress.event()
    assert second is not None
    found = second["attributes"]
    assert found["spark.enrich.rows"] == 900
    assert found["spark.enrich.rows_per_second"] == 20
    assert found["spark.enrich.duration_ms"] == 60_000
    assert json.loads(found["spark.enrich.limited_by"]) == {"buffer": 20_000, "service": 1_000}
    assert found["spark.batch.id"] == 7
    assert found["spark.streaming.query.run_id"] == "r"


def test_the_latest_attempt_of_a_partition_counts(clock: Clock) -> None:
    """If an executor is lost, its rows are no longer done, and the rate is never negative."""
    progress = made(clock)
    progress.update(TaskAttempt(partition=0, task=1), numbers(100))
    clock.now += 30
    assert progress.event() is not None
    progress.update(TaskAttempt(partition=0, task=5), numbers(10))
    progress.update(TaskAttempt(partition=0, task=1), numbers(120))
    clock.now += 30
    event = progress.event()
    assert event is not None
    assert event["attributes"]["spark.enrich.rows"] == 10
    assert event["attributes"]["spark.enrich.rows_per_second"] == 0


def test_an_event_has_the_limits(clock: Clock) -> None:
    limits = Limits(
        max_in_flight=Auto(min=2, max=50), max_in_flight_job=40, rate_limit=20, budget=Budget(90_000, cost=len)
    )
    progress = made(clock, limits)
    progress.update(TaskAttempt(), numbers(1))
    event = progress.event()
    assert event is not None
    assert json.loads(event["attributes"]["spark.enrich.limits"]) == {
        "max_in_flight": [2, 50], "max_in_flight_job": 40, "rate_limit": 20, "budget": 90_000,
    }  # fmt: skip


def test_a_short_batch_posts_nothing(clock: Clock) -> None:
    posted: list[Any] = []
    progress = made(clock)
    with progress.reported(posted.append):
        progress.update(TaskAttempt(), numbers(1))
    assert posted == []


def test_tasks_report_while_they_run_and_at_their_end(loop: BackgroundLoop) -> None:
    posted: list[Any] = []
    ended, rows = threading.Event(), [5]
    progress = Progress("lookup", BATCH, Limits(), 0.06)
    with opened_channel("127.0.0.1", "127.0.0.1", None, progress) as channel, progress.reported(posted.append):
        assert channel is not None
        attempt = TaskAttempt(partition=3, task=1)
        with channel.address.listening(loop, attempt, ended.set, progress=lambda: numbers(rows[0])):
            eventually(lambda: posted and posted[-1]["attributes"]["spark.enrich.rows"] == 5)
            rows[0] = 8
        eventually(lambda: posted[-1]["attributes"]["spark.enrich.rows"] == 8)
    assert not ended.is_set()
