"""Tests of idle watermarks: status changes after a timeout, and sources that hold back a watermark."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

import pytest
from fakes import application_end, application_start, decoded, query_progress, query_started, query_terminated

from spark_events import Event, Severity
from spark_events.translate.deadlines.deadline_config import DeadlineConfig
from spark_events.translate.translation_config import TranslateConfig, WatermarkConfig
from spark_events.translate.translator import Translator

NOON = 1_795_262_400_000  # 2026-11-21T12:00:00Z


def iso(seconds: float) -> str:
    """Return a time in Spark's format, given in seconds after noon."""
    return datetime.fromtimestamp(NOON / 1000 + seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class Query:
    """Query with a watermark and an idle timeout of 10 s. All times are seconds after noon."""

    def __init__(self, idle_timeout: float = 10.0, policy: str | None = None) -> None:
        watermark, deadline = WatermarkConfig(idle_timeout=idle_timeout), DeadlineConfig(resources=None)
        self.translator = Translator(TranslateConfig(watermark=watermark, deadline=deadline))
        self.number = -1
        self.send(application_start(time=NOON))
        self.send(query_started())
        self._properties = {"sql.streaming.queryId": "q1"}
        if policy is not None:
            self._properties["spark.sql.streaming.multipleWatermarkPolicy"] = policy
            self.job(0)

    def send(self, record: dict[str, Any], seen_at: int = 0) -> list[Event]:
        """Translate a record. Without ``seen_at``, the record lacks the shim's timestamp, as in a replay."""
        events = self.translator.translate(decoded({**record, "at": seen_at}))
        return [event for event in events if event.name == "WatermarkStatusChangeEvent"]

    def job(self, second: float, batch: int | None = None) -> list[Event]:
        """Start a job; by default, a job of the next batch."""
        number = self.number + 1 if batch is None else batch
        properties = {**self._properties, "streaming.sql.batchId": str(number)}
        self.job_number = getattr(self, "job_number", 0) + 1
        time = NOON + round(second * 1000)
        return self.send({"kind": "job_start", "job_id": self.job_number, "time": time, "properties": properties})

    def batch(
        self,
        second: float,
        watermark: float | None,
        *rows: int,
        newest: float | None = None,
        took: float = 0,
        late: int = 0,
        offsets: Sequence[Any] = (),
    ) -> list[Event]:
        """Commit a batch with these rows per source. Watermark and newest event time are in seconds after noon."""
        self.number += 1
        event_time = {} if watermark is None else {"watermark": iso(watermark)}
        if newest is not None:
            event_time["max"] = iso(newest)
        sources = [
            {"description": f"S{i}", "numInputRows": count, "endOffset": offsets[i] if offsets else 0}
            for i, count in enumerate(rows)
        ]
        return self.send(
            query_progress(
                self.number,
                timestamp=iso(second),
                durationMs={"addBatch": 1, "triggerExecution": round(took * 1000)},
                eventTime=event_time,
                stateOperators=[{"numRowsDroppedByWatermark": late}],
                sources=sources,
            )
        )

    def nothing(self, second: float) -> list[Event]:
        """Report a trigger without new data."""
        return self.send({"kind": "query_idle", "id": "q1", "run_id": "r1", "timestamp": iso(second)})

    def tick(self, second: float) -> list[Event]:
        events = self.translator.tick(NOON + round(1000 * second))
        return [event for event in events if event.name == "WatermarkStatusChangeEvent"]

    def end(self) -> list[Event]:
        return self.send(query_terminated())

    @property
    def next_due(self) -> int | None:
        return self.translator.next_due


def edges(events: list[Event]) -> list[tuple[Any, Any, Any]]:
    """Return the subject, source index and new status of each event."""
    return [
        (
            e.attributes["spark.watermark.subject"],
            e.attributes.get("spark.source.index"),
            e.attributes["spark.status.new"],
        )
        for e in events
    ]


def about(events: list[Event], subject: str, index: int | None = None) -> Event:
    """Return the one event about a subject."""
    (found,) = [
        event
        for event in events
        if (event.attributes["spark.watermark.subject"], event.attributes.get("spark.source.index")) == (subject, index)
    ]
    return found


@pytest.fixture
def query() -> Query:
    """Return a query with a known trigger period of one second and its last trigger at second 2."""
    made = Query()
    for second in range(3):
        assert made.batch(second, second - 11, 5, newest=second) == []
    return made


# --- status changes -----------------------------------------------------------------------------


def test_an_advancing_watermark_makes_no_event(query: Query) -> None:
    """A new query is ACTIVE, so an advancing watermark causes no event."""
    for second in range(3, 100):
        assert query.batch(second, second - 11, 5, newest=second) == []


def test_unchanged_watermark_is_reported_idle_once(query: Query) -> None:
    """An unchanged watermark causes one IDLE event after the timeout, with the time of its last change."""
    assert query.tick(11.9) == []
    reported = query.tick(12)
    assert sorted(edges(reported), key=str) == [("query", None, "IDLE"), ("source", 0, "IDLE")]
    assert {event.attributes["spark.watermark.idle_since_millis"] for event in reported} == {NOON + 2000}
    assert {event.observed_ts_millis for event in reported} == {NOON + 12_000}
    assert {event.attributes["spark.status.old"] for event in reported} == {"ACTIVE"}
    assert query.tick(500) == []


def test_watermark_that_moves_again_is_active(query: Query) -> None:
    """When the watermark advances again, the event contains the duration of the pause, and the timeout restarts."""
    query.tick(12)
    reported = query.batch(20, 10, 5, newest=20)
    assert sorted(edges(reported), key=str) == [("query", None, "ACTIVE"), ("source", 0, "ACTIVE")]
    assert {event.attributes["spark.watermark.idle_duration_ms"] for event in reported} == {18_000}
    assert {event.attributes["spark.watermark.idle_since_millis"] for event in reported} == {NOON + 2000}
    assert query.tick(29.9) == []
    assert len(query.tick(30)) == 2


def test_body_is_understandable_without_attributes(query: Query) -> None:
    """The body of a watermark event names the subject, the query and the duration."""
    reported = query.tick(12)
    assert about(reported, "source", 0).body == "shop: source 0 (S0) of query 'clicks' has had no new data for 10 s"
    assert about(reported, "query").body == (
        "shop: the watermark of query 'clicks' has not moved from 2026-11-21T11:59:51.000Z for 10 s"
    )
    reported = query.batch(20, 10, 5, late=3)
    assert about(reported, "source", 0).body == (
        "shop: source 0 (S0) of query 'clicks' is active again after 18 s; 3 rows were dropped as late"
    )


def test_deadline_is_set_for_the_next_event(query: Query) -> None:
    """The translator has a deadline for its next event, so the sidecar wakes up even without a record."""
    assert query.next_due == NOON + 12_000
    query.tick(12)
    assert query.next_due is None


@pytest.mark.parametrize("hours", [1, 24 * 400])
def test_a_clock_that_is_set_ahead_makes_no_source_idle(query: Query, hours: int) -> None:
    """After a step of the clock, the idle timeout counts the time that really passed."""
    step = hours * 3_600
    assert query.tick(7) == []
    query.translator.clock_stepped(step * 1000, NOON + (7 + step) * 1000)
    assert query.next_due == NOON + (12 + step) * 1000
    assert query.tick(11.9 + step) == []
    assert sorted(edges(query.tick(12 + step)), key=str) == [("query", None, "IDLE"), ("source", 0, "IDLE")]


def test_repeated_idle_reports_make_one_event(query: Query) -> None:
    reported = [event for second in range(3, 60) for event in query.nothing(second)]
    assert sorted(edges(reported), key=str) == [("query", None, "IDLE"), ("source", 0, "IDLE")]
    assert {event.observed_ts_millis for event in reported} == {NOON + 12_000}


@pytest.mark.parametrize("density", [0.25, 1.0, 7.0, 1000.0])
def test_events_do_not_depend_on_the_frequency_of_ticks(density: float) -> None:
    """Events, their ids and their order do not depend on the frequency of ticks or on whether any occur."""

    def story(step: float | None) -> list[tuple[str, int]]:
        query, reported, now = Query(), [], 0.0
        moments: list[tuple[float, Any]] = [
            *[(s, lambda s=s: query.batch(s, s - 11, 5, 5, newest=s)) for s in range(4)],
            *[(s, lambda s=s: query.batch(s, -7, 5, 0, newest=s)) for s in range(4, 40)],
            (70, lambda: query.job(70)),
            (70.5, lambda: query.batch(70.5, 0, 5, 5, newest=70, took=30)),
            *[(s, lambda s=s: query.nothing(s)) for s in range(110, 150, 10)],
            (150, lambda: query.batch(150, 60, 5, 0, newest=150)),
        ]
        for moment, act in moments:
            while step is not None and now + step < moment:
                now += step
                reported += query.tick(now)
            reported += act()
        reported += query.tick(1000)
        return [(event.event_id, event.observed_ts_millis) for event in reported]

    plain = story(None)
    assert len(plain) >= 7
    assert story(density) == plain
    assert len(set(plain)) == len(plain)


# --- sources that hold back the watermark -------------------------------------------------------


def two_sources(policy: str | None = None) -> tuple[Query, list[Event]]:
    """Return a query and its events. Source 1 stops delivering rows at second 3.

    Afterwards, the watermark advances only under ``max``.
    """
    query = Query(policy=policy)
    for second in range(3):
        query.batch(second, second - 11, 5, 5, newest=second)
    reported = []
    for second in range(3, 30):
        watermark = second - 11 if policy == "max" else -8
        reported += query.batch(second, watermark, 5, 0, newest=second)
    return query, reported


@pytest.mark.parametrize("policy", [None, "min", "MIN"])
def test_a_silent_source_that_holds_back_the_watermark_is_a_warning(policy: str | None) -> None:
    """If other sources deliver rows but the watermark stalls, a warning names the silent source and the lag."""
    _, reported = two_sources(policy)
    source, own = about(reported, "source", 1), about(reported, "query")
    assert (source.severity, own.severity) == (Severity.WARN, Severity.WARN)
    assert source.attributes["spark.watermark.held_back_by"] == "source 1 (S1)"
    assert own.attributes["spark.watermark.held_back_by"] == "source 1 (S1)"
    assert own.attributes["spark.watermark.policy"] == "min"
    assert own.attributes["spark.watermark.idle_since_millis"] == NOON + 3000
    assert own.attributes["spark.watermark.lag_ms"] == 21_000
    assert own.body == (
        "shop: the watermark of query 'clicks' has not moved from 2026-11-21T11:59:52.000Z for 10 s"
        " while 50 rows were read, held back by source 1 (S1), 21 s behind the newest event"
    )
    assert source.body == (
        "shop: source 1 (S1) of query 'clicks' has had no new data for 10 s"
        " and holds back the watermark at 2026-11-21T11:59:52.000Z, 20 s behind the newest event"
    )
    assert len(reported) == 2


@pytest.mark.parametrize("returning", [0, 3])
@pytest.mark.parametrize("jump", [0, 40])
def test_a_back_dated_event_states_the_numbers_of_its_time(returning: int, jump: int) -> None:
    """The timeout passes at 21 s, and the batch that shows it begins at 25 s: its rows and event times came later.

    The source that held back the watermark is named, even if this batch contains its first new rows.
    """
    query = Query()
    for second in (0, 5, 10):
        query.batch(second, second - 11, 5, 5, newest=second, took=1)
    for second in (15, 20):
        assert query.batch(second, -1, 5, 0, newest=second, took=1) == []
    own = about(query.batch(25, -1, 7, returning, newest=25 + jump, took=1, late=2), "query")
    assert own.observed_ts_millis == NOON + 21_000
    assert own.body == (
        "shop: the watermark of query 'clicks' has not moved from 2026-11-21T11:59:59.000Z for 10 s while 10 rows were"
        " read, held back by source 1 (S1), 21 s behind the newest event"
    )
    assert own.attributes["spark.watermark.idle_rows_read"] == 10
    assert own.attributes["spark.watermark.held_back_by"] == "source 1 (S1)"


def follows(second: int) -> float:
    """Return a watermark that follows the event times."""
    return second - 11


@dataclasses.dataclass(frozen=True)
class Story:
    """Batches, one per second, whose first three contain rows of the sources that have delivered rows before.

    Attributes:
        rows: rows per source from the fourth batch on.
        before: rows per source in the first three batches.
        watermark: the watermark by second, in seconds after noon.
        newest: the newest event time by second, in seconds after noon; None: batches without event times.
        idle: severity of the event of each idle subject, and the sources that it names because they hold back the
            watermark.
        policy: the setting of the query; None: not set.
        body: what the body of the query's event contains.
        without: attribute that the events lack.
    """

    rows: tuple[int, ...]
    idle: dict[str, tuple[Severity, str | None]]
    before: tuple[int, ...] = (5, 5)
    watermark: Callable[[int], float] = lambda second: min(second - 11, -8)
    newest: Callable[[int], float | None] = lambda second: second
    policy: str | None = None
    body: str = ""
    without: str = ""


INFO, WARN = Severity.INFO, Severity.WARN
ONE = "source 1 (S1)"
STORIES = {
    # The fastest source determines the watermark, so a source without rows holds nothing back.
    "under max": Story((5, 0), {"source 1": (INFO, None)}, watermark=follows, policy="max"),
    # The watermark is 1970 until every source has delivered a row.
    "never had rows": Story(
        (5, 0),
        {"query": (WARN, ONE), "source 1": (WARN, ONE)},
        before=(5, 0),
        watermark=lambda second: -NOON / 1000,
        without="spark.watermark.lag_ms",
    ),
    # Until the watermark stops, slower sources hold it back.
    "named once the watermark stops": Story(
        (5, 0),
        {"source 1": (INFO, None), "query": (WARN, ONE)},
        watermark=lambda second: -110 + second if second < 3 else min(-110 + 5 * second, -10),
    ),
    "two sources": Story(
        (5, 0, 0),
        {
            "query": (WARN, "source 1 (S1), source 2 (S2)"),
            "source 1": (WARN, ONE),
            "source 2": (WARN, "source 2 (S2)"),
        },
        before=(5, 5, 5),
    ),
    "a union with one watermark": Story((5, 0), {"source 1": (INFO, None)}, watermark=follows),
    "event times do not advance": Story(
        (5, 0),
        {"query": (WARN, None), "source 1": (INFO, None)},
        newest=lambda second: min(second, 2),
        body="while 50 rows were read",
    ),
    "no rows at all": Story(
        (0, 0),
        dict.fromkeys(("query", "source 0", "source 1"), (INFO, None)),
        newest=lambda second: second if second < 3 else None,
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_the_sources_that_hold_back_the_watermark(story: Story) -> None:
    query = Query(policy=story.policy)
    reported = []
    for second in range(60):
        rows = story.before if second < 3 else story.rows
        reported += query.batch(second, story.watermark(second), *rows, newest=story.newest(second))
    assert {new for _, _, new in edges(reported)} == {"IDLE"}
    found = {}
    for event in reported:
        index = event.attributes.get("spark.source.index")
        name = event.attributes["spark.watermark.subject"] if index is None else f"source {index}"
        found[name] = (event.severity, event.attributes.get("spark.watermark.held_back_by"))
        assert event.attributes["spark.watermark.policy"] == (story.policy or "min")
        assert name != "query" or story.body in event.body
        assert story.without not in event.attributes
    assert found == story.idle
    assert len(reported) == len(story.idle)


def test_one_row_before_silence_is_not_a_warning() -> None:
    """A source with a single row causes no warning, because its effect on the watermark is unknown."""
    query = Query()
    for second in range(3):
        query.batch(second, second - 11, 5, newest=second)
    query.batch(3, -8, 5, newest=3)
    assert {event.severity for event in query.tick(100)} == {Severity.INFO}


def test_source_that_does_not_return_is_named() -> None:
    """If one of two idle sources delivers rows, the query is ACTIVE, then IDLE because of the other source."""
    query = Query()
    for second in range(3):
        query.batch(second, second - 11, 5, 5, newest=second)
    query.batch(3, -8, 0, 0)
    assert len(query.tick(3600)) == 3
    reported = query.batch(3600, -8, 5, 0, newest=3600)
    assert sorted(edges(reported), key=str) == [("query", None, "ACTIVE"), ("source", 0, "ACTIVE")]
    assert about(reported, "query").body == (
        "shop: the watermark of query 'clicks' is active again after 59 min: rows arrive,"
        " but it is still at 2026-11-21T11:59:52.000Z"
    )
    reported = [e for s in range(3601, 3630) for e in query.batch(s, -8, 5, 0, newest=s)]
    assert edges(reported) == [("query", None, "IDLE")]
    assert reported[0].severity is Severity.WARN
    assert reported[0].attributes["spark.watermark.held_back_by"] == "source 1 (S1)"
    assert reported[0].attributes["spark.watermark.idle_since_millis"] == NOON + 3000


# --- late rows ----------------------------------------------------------------------------------


def test_late_rows_of_a_returning_input_are_a_warning() -> None:
    """Under ``max``, if a source delivers rows again and they are dropped as late, the source's event is a warning."""
    query, _ = two_sources("max")
    (back,) = query.batch(30, 20, 5, 40, newest=30, late=40)
    assert edges([back]) == [("source", 1, "ACTIVE")]
    assert (back.severity, back.attributes["spark.watermark.rows_dropped_late"]) == (Severity.WARN, 40)
    assert "40 rows were dropped as late" in back.body


def test_earlier_late_rows_are_not_counted_on_return() -> None:
    """When a source delivers rows again, only rows that the current batch dropped are counted."""
    query = Query(policy="max")
    for second in range(3):
        query.batch(second, second - 11, 5, 5, newest=second)
    for second in range(3, 30):
        query.batch(second, second - 11, 5, 0, newest=second, late=7)
    (back,) = query.batch(30, 20, 5, 5, newest=30)
    assert (back.severity, back.attributes["spark.watermark.rows_dropped_late"]) == (Severity.INFO, 0)


# --- partitions ---------------------------------------------------------------------------------


def kafka(*offsets: int) -> dict[str, dict[str, int]]:
    return {"t": {str(partition): offset for partition, offset in enumerate(offsets)}}


def test_partitions_become_idle_separately() -> None:
    """Kafka partitions become idle separately. A single partition without rows does not hold back the watermark."""
    query, reported = Query(), []
    for second in range(60):
        moving = kafka(second, min(second, 10), min(second, 25))
        reported += query.batch(second, second - 11, 5, newest=second, offsets=[moving])
    assert [(e.attributes["spark.source.partition"], e.attributes["spark.status.new"]) for e in reported] == [
        ("t-1", "IDLE"),
        ("t-2", "IDLE"),
    ]
    assert [e.observed_ts_millis - NOON for e in reported] == [20_000, 35_000]
    assert {e.severity for e in reported} == {Severity.INFO}
    assert reported[0].body == "shop: partition t-1 of source 0 (S0) of query 'clicks' has had no new data for 10 s"
    (back,) = query.batch(60, 50, 5, newest=60, offsets=[kafka(60, 11, 25)])
    assert (back.attributes["spark.source.partition"], back.attributes["spark.status.new"]) == ("t-1", "ACTIVE")


def test_a_removed_partition_is_not_idle() -> None:
    """A partition that is missing in the offsets is not idle. A new partition is tracked from its first offset."""
    query, reported = Query(), []
    for second in range(30):
        offsets = kafka(second, second) if second < 5 else kafka(second)
        reported += query.batch(second, second - 11, 5, newest=second, offsets=[offsets])
    assert reported == []
    for second in range(30, 45):
        reported += query.batch(second, second - 11, 5, newest=second, offsets=[kafka(second, 7)])
    assert [
        (e.attributes["spark.source.partition"], e.attributes["spark.watermark.idle_since_millis"]) for e in reported
    ] == [("t-1", NOON + 30_000)]


# --- pauses that are not idleness ---------------------------------------------------------------


def test_a_query_without_a_watermark_is_never_idle() -> None:
    """A query without event time has no idle status."""
    query = Query()
    for second in (0, 1, 2):
        query.batch(second, None, 5)
    query.nothing(100)
    assert query.next_due is None
    assert query.tick(10_000) == []


@pytest.mark.parametrize("first", [1, 25, 299])
@pytest.mark.parametrize("dense", [False, True])
def test_rare_triggers_make_no_event(first: int, dense: bool) -> None:
    """Triggers every five minutes, all with data, cause no event despite a timeout of one minute.

    The first gap may be shorter than the interval, because later triggers fire at multiples of the interval.
    """
    query, reported = Query(idle_timeout=60), []
    for at in (0, *[first + 300 * n for n in range(12)]):
        if dense:
            reported += [e for s in range(max(0, at - 300), at) for e in query.tick(s)]
        query.job(at + 1)
        reported += query.batch(at, at - 310, 5, newest=at, took=20)
    assert reported == []


def test_one_rare_trigger_without_data_makes_a_source_idle() -> None:
    """After the timeout, one trigger without data makes a source idle. The event has the time of the timeout."""
    query = Query(idle_timeout=60)
    for at in range(0, 1500, 300):
        assert query.batch(at, at - 310, 5, 5, newest=at) == []
    reported = query.batch(1500, 1190, 5, 0, newest=1500)
    assert edges(reported) == [("source", 1, "IDLE")]
    assert reported[0].observed_ts_millis == NOON + 1_260_000


def test_silence_is_idle_after_three_trigger_periods() -> None:
    """Without idle reports, a query becomes idle only after three trigger periods, even with a short timeout."""
    query = Query(idle_timeout=60)
    for at in range(0, 1500, 300):
        query.batch(at, at - 310, 5, newest=at)
    assert query.tick(1200 + 899) == []
    assert len(query.tick(1200 + 900)) == 2


def test_a_running_batch_is_not_idle(query: Query) -> None:
    """While a batch runs, no source becomes idle, because Spark does not check for data."""
    query.job(2.5)
    assert query.next_due is None
    assert query.tick(500) == []
    assert query.batch(3, -7, 5, newest=3, took=600) == []


def test_rows_that_arrive_during_a_batch_are_in_the_next_batch() -> None:
    """A source without rows in a long batch is idle only if the next batch also contains no rows from this source."""
    query = Query()
    for second in range(3):
        query.batch(second, second - 11, 5, 5, newest=second)
    query.job(3)
    assert query.batch(3, -7, 5, 0, newest=3, took=600) == []
    query.job(603.5)
    assert query.tick(1100) == []
    assert query.batch(603.2, -6, 5, 5, newest=4, took=600) == []


def test_silence_counts_again_after_a_long_batch() -> None:
    """If no batch follows a long batch, the query becomes idle after the timeout."""
    query = Query()
    for second in range(3):
        query.batch(second, second - 11, 5, newest=second)
    query.job(3)
    query.batch(3, -7, 5, newest=3, took=600)
    assert sorted(edges(query.tick(613)), key=str) == [("query", None, "IDLE"), ("source", 0, "IDLE")]


@pytest.mark.parametrize(("timeout", "patience"), [(10, 600), (120, 1200)])
def test_a_query_without_any_report_becomes_idle_eventually(timeout: int, patience: int) -> None:
    """Until its trigger period is known, a query becomes idle only after ten timeouts and at least ten minutes."""
    query = Query(idle_timeout=timeout)
    query.batch(0, -10, 5, newest=0)
    assert query.tick(patience - 1) == []
    assert len(query.tick(patience)) == 2


def test_an_idle_report_is_sufficient_proof() -> None:
    """After an idle report, only the timeout must elapse, because Spark checked for data and found none."""
    query = Query()
    query.batch(0, -10, 5, newest=0)
    assert query.nothing(9) == []
    reported = query.nothing(19)
    assert sorted(edges(reported), key=str) == [("query", None, "IDLE"), ("source", 0, "IDLE")]
    assert {event.observed_ts_millis for event in reported} == {NOON + 10_000}


# --- ends and restarts --------------------------------------------------------------------------


def test_a_finished_query_does_not_become_idle(query: Query) -> None:
    assert query.end() == []
    assert query.next_due is None
    assert query.batch(3, -7, 5) == []
    assert query.nothing(4) == []
    assert query.tick(10_000) == []


@pytest.mark.parametrize(
    ("until", "idle"),
    [(None, False), (11.9, False), (12, True), (12.9, True), (13.1, False)],
    ids=["end of the log", "too early", "in time", "near", "silence"],
)
def test_an_end_without_a_time_follows_earlier_idle_events(query: Query, until: float | None, idle: bool) -> None:
    """An end event without a timestamp follows the idle events that were due before the next line of the log."""
    assert query.nothing(11) == []
    end = query_terminated(at=NOON + 11_000, until=None if until is None else NOON + round(1000 * until))
    *reported, over = query.translator.translate(decoded(end))
    assert edges(reported) == ([("source", 0, "IDLE"), ("query", None, "IDLE")] if idle else [])
    assert {event.observed_ts_millis for event in reported} == ({NOON + 12_000} if idle else set())
    assert over.attributes["spark.status.new"] == "FINISHED"
    assert over.observed_ts_millis == NOON + (12_000 if idle else 11_000)


def test_a_finished_application_does_not_become_idle(query: Query) -> None:
    query.send(application_end(time=NOON + 5000))
    assert query.next_due is None
    assert query.tick(10_000) == []


def test_restart_without_a_known_end_starts_over(query: Query) -> None:
    """If a query restarts without a known end, the earlier run ends, and the new run has its own events."""
    query.send(query_started("r2"))
    assert query.next_due is None
    assert query.tick(1000) == []
    progress = query_progress(3, "r2", timestamp=iso(1000), eventTime={"watermark": iso(0)})
    query.send(progress)
    (own,) = query.tick(2000)
    assert own.attributes["spark.streaming.query.run_id"] == "r2"


def test_repeated_or_late_progress_changes_nothing(query: Query) -> None:
    query.tick(12)
    for number in (2, 1, 0):
        query.number = number - 1
        assert query.batch(13, 100, 5, newest=100) == []


def test_a_clock_ahead_of_the_records_repeats_no_event(query: Query) -> None:
    """If the clock is ahead of the records, the events stay in order, and each event has its own id."""
    reported = []
    for second in range(3, 60, 3):
        reported += query.tick(second + 50)
        reported += query.batch(second, second - 11, 5, newest=second)
    assert len({event.event_id for event in reported}) == len(reported)
    for subject in ("query", "source"):
        own = [event for event in reported if event.attributes["spark.watermark.subject"] == subject]
        statuses = [event.attributes["spark.status.new"] for event in own]
        assert statuses == ["IDLE", "ACTIVE"] * (len(statuses) // 2)
        times = [event.observed_ts_millis for event in own]
        assert times == sorted(times)


DAY = 86_400


def test_clock_set_back_does_not_delay_events(query: Query) -> None:
    # The tracker cannot distinguish a clock that is a day ahead from a day that has passed.
    assert len(query.batch(DAY + 3, -8, 5, newest=3)) == 4
    assert query.nothing(5) == []
    reported = query.nothing(16)
    assert edges(reported) == [("source", 0, "IDLE"), ("query", None, "IDLE")]
    assert {event.observed_ts_millis for event in reported} == {NOON + 15_000}
    assert "for 10 s" in about(reported, "query").body


def test_clock_set_back_redates_idle_subjects(query: Query) -> None:
    """If the clock is set back, idle events have the new times. If a time repeats, the event ids still differ."""
    reported = query.tick(100)
    assert edges(reported) == [("source", 0, "IDLE"), ("query", None, "IDLE")]
    reported += query.batch(DAY, 0, 5, newest=20)
    back = query.batch(1, 0, 0)
    back += query.nothing(12)
    assert edges(back) == [("source", 0, "IDLE"), ("query", None, "IDLE")]
    assert {event.observed_ts_millis for event in back} == {NOON + 11_000}
    reported += back + query.batch(13, 1, 5, newest=30)
    assert reported[-1].attributes["spark.watermark.idle_duration_ms"] == 12_000
    assert len({event.event_id for event in reported}) == len(reported) == 8


def test_the_clock_waits_for_late_records() -> None:
    """If records arrive late, the clock is compared with the times of the records that have arrived."""
    query = Query()
    for second in range(3):
        query.batch(second, second - 11, 5, newest=second)
    delayed = {"kind": "query_idle", "id": "q1", "run_id": "r1", "timestamp": iso(3)}
    query.send(delayed, seen_at=NOON + 8_000)
    assert query.next_due == NOON + 17_000
    assert query.tick(16) == []
    reported = query.tick(17)
    assert {event.observed_ts_millis for event in reported} == {NOON + 12_000}
