"""IDLE and ACTIVE are about watermarks: edges, after a timeout, with who holds back whom."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import application_start, decoded, query_progress, query_started, query_terminated

from spark_events import Event, Severity
from spark_events.translate.config import TranslateConfig, WatermarkConfig
from spark_events.translate.translator import Translator

NOON = 1_795_262_400_000  # 2026-11-21T12:00:00Z


class Query:
    """A query with a watermark; triggers come at seconds after noon, IDLE after ten of them."""

    def __init__(self, idle_timeout: float = 10.0) -> None:
        self._translator = Translator(TranslateConfig(watermark=WatermarkConfig(idle_timeout=idle_timeout)))
        self._batch = -1
        for record in (application_start(), query_started()):
            self._translator.translate(decoded(record))

    def batch(self, second: int, watermark: str | None, *rows: int, offsets: Any = None) -> list[Event]:
        """A batch with so many rows from each source."""
        self._batch += 1
        sources = [
            {"description": f"S{i}", "numInputRows": count, "endOffset": offsets if offsets is not None else 0}
            for i, count in enumerate(rows)
        ]
        record = query_progress(
            self._batch,
            timestamp=f"2026-11-21T12:{second // 60:02d}:{second % 60:02d}.000Z",
            durationMs={"addBatch": 1, "triggerExecution": 0},
            eventTime={} if watermark is None else {"watermark": f"2026-11-21T{watermark}.000Z"},
            sources=sources,
        )
        return self._watermarks(self._translator.translate(decoded(record)))

    def tick(self, second: int) -> list[Event]:
        return self._watermarks(self._translator.tick(NOON + 1000 * second))

    def end(self) -> list[Event]:
        return self._watermarks(self._translator.translate(decoded(query_terminated())))

    @property
    def next_deadline(self) -> int | None:
        return self._translator.next_deadline

    @staticmethod
    def _watermarks(events: list[Event]) -> list[Event]:
        return [event for event in events if event.name == "WatermarkStatusChangeEvent"]


def edges(events: list[Event]) -> list[tuple[Any, Any, Any]]:
    """Subject, index of the source, new status."""
    return [
        (e.attributes["watermark.subject"], e.attributes.get("source.index"), e.attributes["status.new"])
        for e in events
    ]


@pytest.fixture
def query() -> Query:
    """Two triggers, a second apart, have shown its period."""
    made = Query()
    assert made.batch(0, "11:00:00", 5) == []
    assert made.batch(1, "11:00:01", 5) == []
    return made


def test_a_watermark_that_moves_is_no_event(query: Query) -> None:
    """ACTIVE is what it is anyway."""
    for second in range(2, 30):
        assert query.batch(second, f"11:00:{second:02d}", 5) == []


def test_what_stands_still_is_idle_once_and_since_when(query: Query) -> None:
    """After the timeout, not before; once, however long it lasts; with the moment since when."""
    assert query.tick(10) == []
    told = query.tick(12)
    assert sorted(edges(told), key=str) == [("query", None, "IDLE"), ("source", 0, "IDLE")]
    assert {event.attributes["idle.since_millis"] for event in told} == {NOON + 1000}
    assert {event.attributes["status.old"] for event in told} == {"ACTIVE"}
    assert query.tick(500) == []


def test_what_moves_again_is_active(query: Query) -> None:
    """The edge back, and from then on the whole timeout again."""
    query.tick(12)
    told = query.batch(20, "11:00:20", 5)
    assert sorted(edges(told), key=str) == [("query", None, "ACTIVE"), ("source", 0, "ACTIVE")]
    assert query.tick(25) == []


def test_time_is_asked_for_when_it_is_needed(query: Query) -> None:
    """The sidecar must wake up for an edge though no record comes."""
    assert query.next_deadline == NOON + 11_000
    query.tick(12)
    assert query.next_deadline is None


def test_a_query_without_a_watermark_is_never_idle() -> None:
    """No event time, no idleness."""
    query = Query()
    for second in (0, 1, 2):
        query.batch(second, None, 5)
    assert query.next_deadline is None
    assert query.tick(10_000) == []


def test_a_silent_source_that_holds_the_watermark_back_is_a_warning() -> None:
    """The others bring rows, the watermark stands still: the event says who is to blame."""
    query = Query()
    query.batch(0, "11:00:00", 5, 5)
    query.batch(1, "11:00:01", 5, 5)
    told = [event for second in range(2, 20) for event in query.batch(second, "11:00:01", 5, 0)]
    source = next(e for e in told if e.attributes["watermark.subject"] == "source")
    assert (source.severity, source.attributes["source.index"]) == (Severity.WARN, 1)
    assert source.attributes["source.description"] == "S1"
    own = next(e for e in told if e.attributes["watermark.subject"] == "query")
    assert (own.severity, own.attributes["watermark.held_back_by"]) == (Severity.WARN, "source 1 (S1)")


def test_a_query_without_any_rows_is_idle_without_a_warning(query: Query) -> None:
    """Night-time is no fault: nobody is held back."""
    told = [event for second in range(2, 20) for event in query.batch(second, "11:00:01", 0)]
    assert {event.severity for event in told} == {Severity.INFO}
    assert all("watermark.held_back_by" not in event.attributes for event in told)


def test_a_partition_of_its_own_can_be_idle() -> None:
    """Kafka's offsets tell of each partition."""
    query = Query()
    for second in range(20):
        told = query.batch(second, f"11:00:{second:02d}", 5, offsets={"t": {"0": second, "1": 7}})
        if told:
            break
    (event,) = told
    assert event.attributes["watermark.subject"] == "partition"
    assert event.attributes["source.partition"] == "t-1"
    assert event.attributes["status.new"] == "IDLE"


def test_a_trigger_that_comes_seldom_is_not_idleness() -> None:
    """Several periods must pass as well, however short the timeout is."""
    query = Query(idle_timeout=10.0)
    for second in (0, 30, 60):
        assert query.batch(second, f"11:00:{second // 2:02d}", 5) == []
    assert query.tick(149) == []
    assert edges(query.tick(151)) != []


def test_a_query_that_is_over_falls_idle_no_more(query: Query) -> None:
    """Behind its end a query has no watermark."""
    assert query.end() == []
    assert query.next_deadline is None
    assert query.tick(10_000) == []
