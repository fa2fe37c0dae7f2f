"""Tests of coalesced commits: at most one event with sums per query and interval, except for slow batches."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from fakes import (
    START,
    application_end,
    application_start,
    decoded,
    query_progress,
    query_started,
    query_terminated,
)

from spark_events import Event, Severity
from spark_events.translate.translation_config import BatchCommitConfig, TranslateConfig
from spark_events.translate.translator import Translator


def at(second: float) -> str:
    return datetime.fromtimestamp(START / 1000 + second, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def batch(number: int, second: float, took: int = 10, **progress: Any) -> dict[str, Any]:
    """Return a batch with its commit at the given number of seconds after the start."""
    durations = {"addBatch": 5, "triggerExecution": took}
    fields = {"numInputRows": 5, "durationMs": durations, **progress}
    return query_progress(number, timestamp=at(second - took / 1000), **fields)


class Stream:
    def __init__(self, interval: float = 60, limit: float | None = None, enabled: bool = True) -> None:
        config = BatchCommitConfig(enabled=enabled, min_interval=interval, max_duration=limit)
        self.translator = Translator(TranslateConfig(batch_commit=config))
        self.send(application_start(), query_started())

    def send(self, *records: dict[str, Any]) -> list[Event]:
        return [event for record in records for event in self.translator.translate(decoded(record))]

    def tick(self, second: float) -> list[Event]:
        return self.translator.tick(START + round(second * 1000))


def reported(events: list[Event]) -> list[tuple[Any, Any, Any]]:
    """Return the first batch, the last batch and the number of batches of each commit event."""
    return [
        (
            event.attributes.get("spark.batch.first_id"),
            event.attributes["spark.batch.id"],
            event.attributes["spark.batch.count"],
        )
        for event in events
        if event.name == "BatchCommitEvent"
    ]


def test_first_commit_is_immediate_and_the_rest_of_the_interval_is_one_event() -> None:
    """The first commit of an interval is reported at once. When the interval ends, one event reports all others."""
    stream = Stream()
    assert reported(stream.send(*[batch(n, n) for n in range(60)])) == [(None, 0, 1)]
    assert stream.translator.next_due == START + 60_000
    assert reported(stream.send(batch(60, 60))) == [(1, 59, 59)]
    assert stream.tick(119) == []
    assert reported(stream.tick(120)) == [(None, 60, 1)]
    assert stream.tick(10_000) == []


def test_numbers_are_summed_up_and_offsets_span_all_batches() -> None:
    """A coalesced event adds up rows, durations and state changes. All other values are those of the last batch."""
    operator = {"numRowsTotal": 7, "numRowsUpdated": 2, "numRowsRemoved": 1, "numRowsDroppedByWatermark": 3}
    stream = Stream()
    for n in range(4):
        stream.send(
            batch(
                n,
                n,
                sources=[{"description": "S", "startOffset": n, "endOffset": n + 1, "numInputRows": 5}],
                stateOperators=[{**operator, "numRowsTotal": 7 + n, "customMetrics": {"rocksdbBytesCopied": 100}}],
                eventTime={"watermark": at(n), "min": at(10 - n), "max": at(20 + n), "avg": at(15)},
            )
        )
    (event,) = stream.tick(60)
    assert event.attributes | {
        "spark.batch.count": 3,
        "spark.batch.first_id": 1,
        "spark.batch.id": 3,
        "spark.batch.rows_input": 15,
        "spark.batch.duration.trigger_execution_ms": 30,
        "spark.batch.duration.add_batch_ms": 15,
        "spark.batch.sources": '[{"description":"S","rows":15,"offset_from":"1","offset_to":"4"}]',
        "spark.state.rows_total": 10,
        "spark.state.rows_updated": 6,
        "spark.state.checkpointed_bytes": 300,
        "spark.state.rows_removed": 3,
        "spark.state.rows_dropped_by_watermark": 9,
        "spark.watermark.time": at(3),
        "spark.batch.event_time_min": at(7),
        "spark.batch.event_time_max": at(23),
    } == dict(event.attributes)
    assert "spark.batch.event_time_avg" not in event.attributes
    assert event.body == f"shop: query 'clicks' committed batches 1 to 3 in 30 ms: 15 rows, watermark {at(3)}"
    assert event.observed_ts_millis == START + 3000


def test_slow_batch_is_reported_at_once_and_separately() -> None:
    """A slow batch has its own event after the event of the held batches, so the warning identifies the slow batch."""
    stream = Stream(limit=1.0)
    events = stream.send(batch(0, 0), batch(1, 1), batch(2, 2), batch(3, 9, took=1_001), batch(4, 10))
    assert reported(events) == [(None, 0, 1), (1, 2, 2), (None, 3, 1)]
    assert [event.severity for event in events] == [Severity.INFO, Severity.INFO, Severity.WARN]
    assert events[2].body.endswith("(over the limit of 1000 ms)")
    assert reported(stream.tick(69)) == [(None, 4, 1)]


@pytest.mark.parametrize("end", [query_terminated(exception="a.B: x"), query_terminated(), application_end()])
def test_end_reports_held_commits_first(end: dict[str, Any]) -> None:
    """However a query or its application ends, its held batches are reported before the end event."""
    stream = Stream()
    events = stream.send(batch(0, 0), batch(1, 1), batch(2, 2), end)
    assert reported(events) == [(None, 0, 1), (1, 2, 2)]
    assert events[2].name == "JobStatusChangeEvent"


def test_a_lost_driver_s_held_commits_are_reported() -> None:
    stream = Stream()
    stream.send(batch(0, 0), batch(1, 1))
    events = stream.translator.driver_lost(START + 5_000, orderly=False)
    assert [event.name for event in events] == ["BatchCommitEvent", "JobStatusChangeEvent"]


def test_disabled_commits_keep_the_batch_of_failures() -> None:
    """events.batch-commit.enabled=false disables only commit events."""
    stream = Stream(enabled=False)
    events = stream.send(batch(0, 0), batch(1, 1), query_terminated(exception="a.B: x"))
    assert [event.name for event in events] == ["JobStatusChangeEvent", "JobFailureEvent"]
    assert events[1].attributes["spark.batch.id"] == 2


def test_merged_event_has_a_stable_event_id() -> None:
    """Equal batches have equal event ids, whether a record or the clock ended the interval."""
    by_record, by_clock = Stream(), Stream()
    first = by_record.send(*[batch(n, n) for n in range(5)], batch(5, 60))
    second = by_clock.send(*[batch(n, n) for n in range(5)]) + by_clock.tick(60) + by_clock.send(batch(5, 60))
    assert first == second
    assert len({event.event_id for event in first}) == 2


def test_a_clock_set_back_does_not_delay_merged_commits() -> None:
    """If the clock is set back, a merged event does not wait for its former deadline."""
    stream = Stream()
    assert reported(stream.send(batch(0, 7200), batch(1, 10), batch(2, 11))) == [(None, 0, 1), (None, 1, 1)]
    assert reported(stream.tick(70)) == [(None, 2, 1)]
