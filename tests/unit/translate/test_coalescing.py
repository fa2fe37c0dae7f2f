"""Commits in bulk: at most one event a query in an interval, with the sums, hiding nothing."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from fakes import START, application_end, application_start, decoded, query_progress, query_started, query_terminated
from hypothesis import given
from hypothesis import strategies as st

from spark_events import Event, Severity
from spark_events.translate.batches import Batches
from spark_events.translate.config import BatchCommitConfig, TranslateConfig
from spark_events.translate.translator import Translator


def at(second: float) -> str:
    return datetime.fromtimestamp(START / 1000 + second, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def batch(number: int, second: float, took: int = 10, **progress: Any) -> dict[str, Any]:
    """A batch that is committed at a second after the start."""
    durations = {"addBatch": 5, "triggerExecution": took}
    fields = {"numInputRows": 5, "durationMs": durations, **progress}
    return query_progress(number, timestamp=at(second - took / 1000), **fields)


class Stream:
    def __init__(self, interval: float = 60, limit: float | None = None, enabled: bool = True) -> None:
        config = BatchCommitConfig(enabled=enabled, min_interval=interval, max_duration=limit)
        self.translator = Translator(TranslateConfig(batch_commit=config))
        self.tell(application_start(), query_started())

    def tell(self, *records: dict[str, Any]) -> list[Event]:
        return [event for record in records for event in self.translator.translate(decoded(record))]

    def tick(self, second: float) -> list[Event]:
        return self.translator.tick(START + round(second * 1000))


def told(events: list[Event]) -> list[tuple[Any, Any, Any]]:
    """First and last batch, and how many."""
    return [
        (
            event.attributes.get("batch.first.id"),
            event.attributes["spark.streaming.batch.id"],
            event.attributes["batches"],
        )
        for event in events
        if event.name == "BatchCommitEvent"
    ]


def test_the_first_commit_passes_and_the_others_of_its_interval_are_one_event() -> None:
    """One at once, one when the interval is over, whether a record or the clock says so."""
    stream = Stream()
    assert told(stream.tell(*[batch(n, n) for n in range(60)])) == [(None, 0, 1)]
    assert stream.translator.next_deadline == START + 60_000
    assert told(stream.tell(batch(60, 60))) == [(1, 59, 59)]
    assert stream.tick(119) == []
    assert told(stream.tick(120)) == [(None, 60, 1)]
    assert stream.tick(10_000) == []


def test_numbers_are_summed_up_and_offsets_span_all_batches() -> None:
    """Rows, durations and state changes add up; watermark, state and the end of the offsets are the last's."""
    operator = {"numRowsTotal": 7, "numRowsUpdated": 2, "numRowsRemoved": 1, "numRowsDroppedByWatermark": 3}
    stream = Stream()
    for n in range(4):
        stream.tell(
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
        "batches": 3,
        "batch.first.id": 1,
        "spark.streaming.batch.id": 3,
        "rows.input": 15,
        "duration.triggerExecution_ms": 30,
        "duration.addBatch_ms": 15,
        "source.0.rows": 15,
        "source.0.offset.from": "1",
        "source.0.offset.to": "4",
        "state.rows": 10,
        "state.rows.updated": 6,
        "state.checkpointed_bytes": 300,
        "state.rows.removed": 3,
        "state.rows.dropped_by_watermark": 9,
        "watermark": at(3),
        "event_time.min": at(7),
        "event_time.max": at(23),
    } == dict(event.attributes)
    assert "event_time.avg" not in event.attributes
    assert event.body == f"Query 'clicks' committed batches 1 to 3 in 30 ms: 15 rows, watermark {at(3)}"
    assert event.observed_ts_millis == START + 3000


def test_a_batch_that_took_too_long_is_told_at_once_and_by_itself() -> None:
    """What was held comes before it; a warning among others would not say which batch it was."""
    stream = Stream(limit=1.0)
    events = stream.tell(batch(0, 0), batch(1, 1), batch(2, 2), batch(3, 9, took=1_001), batch(4, 10))
    assert told(events) == [(None, 0, 1), (1, 2, 2), (None, 3, 1)]
    assert [event.severity for event in events] == [Severity.INFO, Severity.INFO, Severity.WARN]
    assert events[2].body.endswith("(over the limit of 1000 ms)")
    assert told(stream.tick(69)) == [(None, 4, 1)]


@pytest.mark.parametrize("end", [query_terminated(exception="a.B: x"), query_terminated(), application_end()])
def test_an_end_waits_for_nothing(end: dict[str, Any]) -> None:
    """What was held is told before the end, whatever the end is."""
    stream = Stream()
    events = stream.tell(batch(0, 0), batch(1, 1), batch(2, 2), end)
    assert told(events) == [(None, 0, 1), (1, 2, 2)]
    assert events[2].name == "JobStatusChangeEvent"


def test_a_driver_that_is_lost_leaves_nothing_held() -> None:
    """The last commits are told before the loss."""
    stream = Stream()
    stream.tell(batch(0, 0), batch(1, 1))
    events = stream.translator.driver_lost(START + 5_000, orderly=False)
    assert [event.name for event in events] == ["BatchCommitEvent", "JobStatusChangeEvent"]


def test_switched_off_no_commit_is_told_and_failures_know_the_batch_all_the_same() -> None:
    """events.batch-commit.enabled=false silences commits and nothing else."""
    stream = Stream(enabled=False)
    events = stream.tell(batch(0, 0), batch(1, 1), query_terminated(exception="a.B: x"))
    assert [event.name for event in events] == ["JobStatusChangeEvent", "JobFailureEvent"]
    assert events[1].attributes["spark.streaming.batch.id"] == 2


def test_an_event_of_many_batches_has_an_identifier_of_its_own_that_stays() -> None:
    """The same batches give the same identifiers, by the records or by the clock."""
    by_record, by_clock = Stream(), Stream()
    first = by_record.tell(*[batch(n, n) for n in range(5)], batch(5, 60))
    second = by_clock.tell(*[batch(n, n) for n in range(5)]) + by_clock.tick(60) + by_clock.tell(batch(5, 60))
    assert first == second
    assert len({event.event_id for event in first}) == 2


def test_the_record_of_what_is_held_is_not_acknowledged() -> None:
    """Its event is still to come."""
    stream = Stream()
    stream.tell({"seq": 3, **batch(0, 0)}, {"seq": 4, **batch(1, 1)}, {"seq": 5, **batch(2, 2)})
    assert stream.translator.held_record == 4
    stream.tick(60)
    assert stream.translator.held_record is None


def test_a_clock_that_was_set_back_holds_nothing_for_hours() -> None:
    """Nobody waits until it has caught up."""
    stream = Stream()
    assert told(stream.tell(batch(0, 7200), batch(1, 10), batch(2, 11))) == [(None, 0, 1), (None, 1, 1)]
    assert told(stream.tick(70)) == [(None, 2, 1)]


@given(st.lists(st.integers(0, 40)))
def test_a_set_of_batches_is_a_set(numbers: list[int]) -> None:
    """Each number is new exactly once, in whatever order they come."""
    known: set[int] = set()
    batches = Batches()
    for number in numbers:
        assert batches.add(number) is (number not in known)
        known.add(number)


def test_a_set_of_batches_with_gaps_stays_small() -> None:
    """Every second number, for long: the oldest gaps are closed, the newest stay."""
    batches = Batches()
    assert all(batches.add(number) for number in range(0, 10_000, 2))
    assert not batches.add(1)
    assert batches.add(9_997)
    assert not batches.add(9_998)
