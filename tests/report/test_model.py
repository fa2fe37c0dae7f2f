"""Tests of the numbers in the report, which are compared with simple computations over the same events."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from report.stories import HOUR, MINUTE, SECOND, START, ApplicationStory, Story, busy_day
from spark_events import Event, Severity
from spark_events.errors import SparkEventsError
from spark_events.event import Attributes, encode_lines
from spark_events.report.build import ReportOptions, build
from spark_events.report.notebook import inline_report
from spark_events.report.report_model import EventReport, SubjectReport
from spark_events.report.sources import Reading
from spark_events.report.table import EventTable
from spark_events.report.wording import when


def report_of(events: Sequence[Event], now: int | None = None, draw: bool = False, **options: Any) -> EventReport:
    """Return the report on the events. By default, ``now`` is about a year after the events."""
    with EventTable() as table, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events.jsonl")
        path.write_bytes(encode_lines(events))
        chosen = ReportOptions(**options)
        reading = Reading(table, chosen.since)
        reading.read(str(path))
        return build(table, chosen, now or START + 400 * 24 * HOUR, reading.summaries, reading.notes, draw)


def subject(report: EventReport, name: str) -> SubjectReport:
    return next(one for one in report.subjects if one.name == name)


class RunPlan(NamedTuple):
    """Run of an invented query: seconds since the previous run's start, duration, last status, commits, failures."""

    pause: int
    lasts: int
    ending: str
    commits: tuple[int, ...]
    failures: tuple[str, ...]


PLANS = st.builds(
    RunPlan,
    st.integers(1, 40),
    st.integers(1, 30),
    st.sampled_from(["FINISHED", "FAILED", "FAILED", "MISSING"]),
    st.lists(st.integers(1, 90_000), max_size=6).map(tuple),
    st.lists(st.sampled_from(["ValueError: a", "IOException: disk", "ValueError: b"]), max_size=3).map(tuple),
)


def story_of(plans: Sequence[RunPlan]) -> tuple[Story, list[tuple[int, int | None, str, int]]]:
    """Return the events of a query, and the start, end, status and last event of each run."""
    story, runs, at = Story(), [], START
    app = story.application("stream", "app-1")
    app.status("RUNNING", START)
    for number, plan in enumerate(plans):
        at += plan.pause * SECOND
        query = app.query("q", f"run-{number}", "the-query")
        query.status("RUNNING", at)
        last, end = at, at + plan.lasts * SECOND
        for index, took in enumerate(plan.commits):
            last = at + (index + 1) * plan.lasts * SECOND // (len(plan.commits) + 1)
            query.commit(last, took, rows=index, batches=1 + index % 2)
        for cause in plan.failures:
            query.failure(end, "query", cause)
            last = end
        if plan.ending != "MISSING":
            query.status(plan.ending, end)
            last = end
        runs.append((at, None if plan.ending == "MISSING" else end, plan.ending, last))
    return story, runs


def swept(runs: list[tuple[int, int | None, str, int]], until: int) -> tuple[int, int]:
    """Return uptime and downtime, computed from the state between consecutive changes."""
    latest = max(start for start, *_ in runs)
    settled = []
    for start, end, ending, last in runs:
        if end is None and latest > last:
            settled.append((start, last, "FAILED"))
        else:
            settled.append((start, until if end is None else end, ending))
    times = sorted({time for start, end, _ in settled for time in (start, end)} | {until})
    up = down = 0
    for left, right in itertools.pairwise(times):
        running = any(start <= left and right <= end for start, end, _ in settled)
        # Of two runs that end in the same millisecond, the failed one counts.
        ended = [(end, ending == "FAILED") for start, end, ending in settled if end <= left and start <= left]
        if running:
            up += right - left
        elif ended and max(ended)[1]:
            down += right - left
    return up, down


def quantile(values: list[float], part: float) -> float:
    """Return a quantile with linear interpolation."""
    values = sorted(values)
    place = part * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


@settings(max_examples=40)
@given(plans=st.lists(PLANS, min_size=1, max_size=8), data=st.data())
def test_numbers_equal_a_simple_computation(plans: list[RunPlan], data: st.DataObject) -> None:
    """Even for shuffled and repeated events, uptime, downtime, commits and failures equal a simple computation."""
    story, runs = story_of(plans)
    events = list(story.events)
    copies = data.draw(st.lists(st.sampled_from(events), max_size=5))
    random.Random(data.draw(st.integers(0, 9))).shuffle(events)
    # Later, a run without an end is silent from its last commit on; test_status.py has the rules.
    until = max(event.observed_ts_millis for event in events)
    report = report_of([*events, *copies], now=until, sla_ms=30_000, draw=True)
    assert report.duplicates == len(copies)
    assert report.events == len(events)
    query = subject(report, "q")
    assert (query.uptime_ms, query.downtime_ms) == swept(runs, until)
    assert sum(down.end - down.start for down in query.downtimes) == query.downtime_ms
    took = [
        event.attributes["spark.batch.duration.trigger_execution_ms"] / event.attributes["spark.batch.count"]  # type: ignore[operator]
        for event in events
        if event.name == "BatchCommitEvent"
    ]
    if took:
        assert query.commits is not None
        assert query.commits.events == len(took)
        assert query.commits.over_sla == len(query.commits.slow) == sum(each > 30_000 for each in took)
        for found, part in ((query.commits.p50_ms, 0.5), (query.commits.p95_ms, 0.95), (query.commits.p99_ms, 0.99)):
            assert found == pytest.approx(quantile(took, part))
    else:
        assert query.commits is None
    lost = [event for event in events if event.attributes.get("spark.status.new") == "LOST"]
    failures = [event for event in events if event.name == "JobFailureEvent"]
    causes = Counter(event.attributes["failure.root_cause"] for event in failures)
    assert {group.cause: group.count for group in report.failures if group.key != "LOST"} == causes
    assert sum(group.count for group in report.failures if group.key == "LOST") == len(lost)
    for group in report.failures:
        if group.key == "LOST":
            continue
        times = [
            event.observed_ts_millis for event in failures if event.attributes["failure.root_cause"] == group.cause
        ]
        assert (group.first, group.last) == (min(times), max(times))
    assert report.drawing is not None
    assert sum(marker.count for marker in report.drawing.markers) == len(failures) + len(lost)
    assert sum(point[1] for points in report.drawing.series.values() for point in points) == len(took)


def test_a_batch_application_is_not_down_between_its_runs() -> None:
    """A batch application has no downtime between its runs; an application with queries has downtime."""
    report = report_of(busy_day().events)
    nightly, stream = subject(report, "nightly-report"), subject(report, "clickstream")
    assert (nightly.downtime_ms, nightly.uptime_percent, nightly.failed_runs) == (0, None, 1)
    assert stream.downtime_ms > 0
    assert stream.uptime_percent == pytest.approx(
        100 * stream.uptime_ms / (stream.uptime_ms + stream.downtime_ms), abs=1e-9
    )
    assert stream.core_hours is None, "no event has reported them"


def test_findings_of_a_busy_day() -> None:
    """The findings of a day begin with the current problems and their causes."""
    report = report_of(busy_day().events, now=START + 20 * HOUR + MINUTE, sla_ms=60_000)
    now = [finding.text for finding in report.findings if finding.now]
    assert now == [
        "Application 'nightly-report' has failed since 2026-11-19 01:16:40 (5 h 51 min): AnalysisException:"
        " [TABLE_OR_VIEW_NOT_FOUND] orders.",
        "Application 'clickstream' was down for 32 min 58 s of the last hour; the last failure was 35 min 58 s ago:"
        " ValueError: no currency (at /jobs/payments.py:16 in book).",
        "Query 'sessions' of 'clickstream': batch 41 has been overdue since 2026-11-19 06:46:40 (21 min), limit 5 min;"
        " 1 run failed in the last hour (at Sink.scala:12 in Sink.write).",
        "Query 'clicks-per-minute': source 1 has held back the watermark since 2026-11-19 06:06:40.",
    ]
    assert any("17 records or events of 'nightly-report' lost" in finding.text for finding in report.findings)
    assert report.violates_sla


def test_a_failed_query_is_down_until_now() -> None:
    """If the newest event is at most a day old, a failed query is down until the current time."""
    story = Story()
    query = story.application("stream", "app-1").query("q", "run-1")
    query.status("RUNNING", START)
    query.failure(START + MINUTE, "query", "ValueError: no currency")
    query.status("FAILED", START + MINUTE)
    report = report_of(story.events, now=START + 10 * MINUTE)
    assert (report.until, report.until_is) == (START + 10 * MINUTE, "now")
    query_report = subject(report, "q")
    assert (query_report.uptime_ms, query_report.downtime_ms) == (MINUTE, 9 * MINUTE)
    assert query_report.downtimes[0].cause == "ValueError: no currency (at /jobs/payments.py:16 in book)"
    assert "Query 'q' of 'stream' has been down since" in report.findings[0].text
    old = report_of(story.events)
    assert (old.until, old.until_is) == (START + MINUTE, "newest event")


def test_a_silent_application_is_a_problem() -> None:
    """The finding about an application without heartbeats contains the last event's time and the heartbeat interval."""
    story = Story()
    app = story.application("a", "app-1")
    app.status("RUNNING", START)
    beat: dict[str, Any] = {"spark.heartbeat.interval_ms": 60_000}
    app.event("HeartbeatEvent", START + MINUTE, **beat)
    (finding,) = report_of(story.events, now=START + HOUR).findings
    assert finding.text == (
        f"Application 'a' is silent: no event since {when(START + MINUTE)} (59 min), usually every 1 min."
    )


@pytest.mark.parametrize(("will_retry", "expected"), [(False, ["ValueError: no currency"]), (True, [])])
def test_an_unknown_outcome_after_a_failure_is_a_finding(will_retry: bool, expected: list[str]) -> None:
    """If a log lacks the outcome of its application, a failure that was not retried is an open incident."""
    story = Story()
    app = story.application("a", "app-1")
    app.status("RUNNING", START)
    more: dict[str, Any] = {"failure.will_retry": will_retry}
    app.failure(START + SECOND, "stage", **more)
    app.status("ENDED", START + MINUTE, **{"spark.app.end_reason": "UNKNOWN"})
    report = report_of(story.events, now=START + 2 * MINUTE)
    assert [problem.cause for problem in report.problems] == expected
    assert report.status.startswith(
        "1 problem now; newest event 1 min ago" if expected else "OK: nothing is wrong now;"
    )
    assert subject(report, "a").runs[0].cause is None


def test_the_period_clips_runs_that_began_earlier() -> None:
    """Runs, downtime and overdue work that began before the period are counted from the start of the period."""
    story = Story()
    app = story.application("stream", "app-1")
    app.status("RUNNING", START)
    query = app.query("q", "run-1")
    query.status("RUNNING", START)
    query.commit(START + MINUTE, 100)
    query.status("FAILED", START + 2 * MINUTE)
    again = app.query("q", "run-2")
    again.status("RUNNING", START + 4 * MINUTE)
    again.commit(START + 5 * MINUTE, 200)
    late: dict[str, Any] = {"spark.deadline.subject": "batch", "spark.deadline.rule": "batch"}
    again.event("DeadlineStatusChangeEvent", START + 5 * MINUTE, **{**late, "spark.status.new": "OVERDUE"})
    again.event("DeadlineStatusChangeEvent", START + 8 * MINUTE, **{**late, "spark.status.new": "ON_TIME"})
    again.commit(START + 9 * MINUTE, 300)
    report = report_of(story.events, since=START + 3 * MINUTE, until=START + 7 * MINUTE)
    found = subject(report, "q")
    assert (found.uptime_ms, found.downtime_ms) == (3 * MINUTE, MINUTE)
    assert found.commits is not None
    assert found.commits.events == 1
    assert [work.end for work in found.overdue] == [None]
    with pytest.raises(SparkEventsError, match="no event in this period"):
        report_of(story.events, until=START - 1)


def test_overlaps_missing_ends_and_clocks_are_noted() -> None:
    """The report contains notes about overlapping runs, missing start and end events, and differing clocks."""
    story = Story()
    first, second = story.application("a", "app-1"), story.application("a", "app-2")
    first.status("RUNNING", START)
    second.status("RUNNING", START + MINUTE)
    first.status("FINISHED", START + 2 * MINUTE)
    third = story.application("a", "app-3")
    third.status("RUNNING", START + 10 * MINUTE)
    third.status("FINISHED", START + 9 * MINUTE)
    story.application("b", "app-9").failure(START + 3 * MINUTE, "job")
    report = report_of(story.events)
    runs = {run.id: run for run in subject(report, "a").runs}
    assert (runs["app-2"].status, runs["app-2"].end) == ("UNKNOWN", START + MINUTE)
    notes = "\n".join(report.notes)
    assert "1 run started while an earlier run was still running ('a')" in notes
    assert "1 run without an end event: the last event counts as the end ('a')" in notes
    assert "1 run without a start event: the first event counts as the start ('b')" in notes
    assert "1 run ended before the start: the clocks differ ('a')" in notes
    assert "1 run still running, as far as the events show ('b')" in notes
    early = report_of(story.events, now=START)
    assert (early.ahead_events, early.ahead_ms) == (2, 10 * MINUTE)


@pytest.mark.parametrize("replay_first", [True, False])
@pytest.mark.parametrize(("outcome", "reason"), [("FAILED", "PROGRAM_FAILED"), ("ENDED", "GATEWAY_CLOSED")])
def test_a_known_outcome_replaces_the_unknown_outcome_of_a_replay(
    replay_first: bool, outcome: str, reason: str
) -> None:
    """If a replay reports ENDED, the outcome and its reason are those of the live run, in any order of the sources."""
    story = Story()
    app = story.application("a", "app-1")
    app.status("RUNNING", START)
    app.status("ENDED", START + MINUTE, **{"spark.app.end_reason": "UNKNOWN"})
    replayed = story.events[-1]
    known = {"spark.status.new": outcome, "spark.app.end_reason": reason}
    live = msgspec.structs.replace(replayed, attributes=Attributes({**replayed.attributes, **known}))
    both = [replayed, live] if replay_first else [live, replayed]
    report = report_of([story.events[0], *both, *both])
    assert (report.events, report.duplicates) == (2, 3)
    assert [(one.outcome, one.runs[0].cause) for one in report.applications] == [(outcome, reason)]


@pytest.mark.parametrize(
    ("age", "until_is"), [(10 * MINUTE, "now"), (48 * HOUR, "now"), (-MINUTE, "newest event"), (None, "given")]
)
def test_a_period_does_not_end_in_the_future(age: int | None, until_is: str) -> None:
    """The end of a period is at most the current time, or the time of the newest event."""
    story = Story()
    app = story.application("a", "app-1")
    app.status("RUNNING", START)
    beat: dict[str, Any] = {"spark.heartbeat.interval_ms": HOUR}
    app.event("HeartbeatEvent", START + MINUTE, **beat)
    end = START + 1_000 * HOUR
    now = end + HOUR if age is None else START + MINUTE + age
    report = report_of(story.events, now=now, until=end)
    assert report.until == (end if age is None else max(now, START + MINUTE))
    assert report.until_is == until_is
    assert bool(report.findings) == (age is None or age > 3 * HOUR)


def test_troubles_of_reporters_are_those_of_active_runs() -> None:
    """A reporter's problem is current only during its run; of ended runs, only the latest is mentioned."""

    def trouble(app: ApplicationStory, status: str, at: int, reporter: str = "audit") -> None:
        about: dict[str, Any] = {
            "spark.events.reporter.name": reporter,
            "spark.status.new": status,
            "spark.status.reason": "HTTP 503",
        }
        app.event("ReporterStatusChangeEvent", at, **about)

    def found(story: Story) -> list[tuple[bool, str]]:
        report = report_of(story.events, now=START + 7 * MINUTE)
        return [(one.now, one.text) for one in report.findings if "Reporter" in one.text]

    story = Story()
    first, second = story.application("shop", "app-1"), story.application("shop", "app-2")
    first.status("RUNNING", START)
    trouble(first, "open", START + MINUTE)
    text = f"Reporter 'audit' of 'shop' has been open since {when(START + MINUTE)} (6 min): HTTP 503."
    assert found(story) == [(True, text)]
    first.status("FINISHED", START + 2 * MINUTE)
    assert found(story) == [
        (False, f"Reporter 'audit' of 'shop' was open from {when(START + MINUTE)} to the end of its run: HTTP 503.")
    ]
    second.status("RUNNING", START + 3 * MINUTE)
    assert found(story) == []
    trouble(second, "disabled", START + 4 * MINUTE)
    text = f"Reporter 'audit' of 'shop' has been disabled since {when(START + 4 * MINUTE)}: HTTP 503."
    assert found(story) == [(True, text)]
    # A run that another run overlaps is still active.
    third = story.application("shop", "app-3")
    third.status("RUNNING", START + 5 * MINUTE)
    second.event("HeartbeatEvent", START + 6 * MINUTE)
    trouble(third, "disabled", START + 5 * MINUTE)
    assert found(story) == [(True, text)], "one finding for each reporter of an application"


@pytest.mark.parametrize("first_ends", [None, "FINISHED", "FAILED"])
def test_findings_and_outcome_are_those_of_the_same_run(first_ends: str | None) -> None:
    """If runs overlap, the outcome, the findings and the downtimes use the active run, or the run that ended last."""
    story = Story()
    first, second = story.application("a", "app-1"), story.application("a", "app-2")
    first.status("RUNNING", START)
    query = first.query("q", "run-1")
    query.status("RUNNING", START)
    second.status("RUNNING", START + MINUTE)
    second.status("FAILED", START + 2 * MINUTE)
    query.commit(START + 3 * MINUTE, 100)
    if first_ends is not None:
        first.status(first_ends, START + 4 * MINUTE)
        second.event("EventsDroppedEvent", START + 5 * MINUTE)
    report = report_of(story.events, now=START + 6 * MINUTE)
    application = next(one for one in report.applications if one.name == "a")
    assert application.outcome == (first_ends or "RUNNING")
    is_down = first_ends == "FAILED"
    assert any(down.ongoing for down in application.downtimes) == is_down
    down = [one.text for one in report.findings if one.text.startswith("Application 'a' has been down since")]
    assert len(down) == is_down
    assert all(when(START + 4 * MINUTE) in text for text in down)


def test_the_events_of_the_period_are_counted() -> None:
    """The number of events in the header excludes the events that the report keeps from before its period."""
    story = Story()
    app = story.application("a", "app-1")
    app.status("RUNNING", START)
    app.failure(START + HOUR, "job")
    assert report_of(story.events).events == 2
    assert report_of(story.events, since=START + MINUTE).events == 1


def test_failures_are_grouped_by_an_existing_fingerprint() -> None:
    """Failures with one fingerprint form one group, even if their messages contain different numbers."""
    story = Story()
    app = story.application("a", "app-1")
    for number in range(3):
        app.failure(START + number, "job", f"ValueError: payment {number}", **{"failure.fingerprint": "f1"})
        app.failure(START + number, "job", "IOException: disk")
    assert [group.count for group in report_of(story.events).failures] == [3, 3]


def test_idle_times_and_enrichments() -> None:
    """Idle intervals and enrichment calls are summed up. An idle interval without an end event ends with its run."""
    story = Story()
    query = story.application("a", "app-1").query("q", "run-1")
    query.status("RUNNING", START)
    about: dict[str, Any] = {"spark.watermark.subject": "source", "spark.source.index": 0}
    for begin, end in ((1, 3), (5, None)):
        query.event("WatermarkStatusChangeEvent", START + begin * MINUTE, **{**about, "spark.status.new": "IDLE"})
        if end is not None:
            query.event("WatermarkStatusChangeEvent", START + end * MINUTE, **{**about, "spark.status.new": "ACTIVE"})
    query.status("FINISHED", START + 9 * MINUTE)
    report = report_of(story.events)
    (idle,) = subject(report, "q").idle
    assert (idle.times, idle.total_ms, idle.ongoing_since) == (2, 6 * MINUTE, None)
    (enrichment,) = subject(report_of(busy_day().events), "book-payments").enrichment
    assert (enrichment.calls, enrichment.retries, enrichment.p99_ms) == (17_400, 24, 98.5)


def test_costs_are_those_of_the_last_summary_of_each_run() -> None:
    """Summaries are cumulative: the report uses the last summary of each run and adds up the runs."""
    report = report_of(busy_day().events)
    nightly = subject(report, "nightly-report")
    assert nightly.core_hours == 4 + 5 + 6
    assert (nightly.core_hours_used, nightly.core_hours_idle) == (15 - 3 * 1.5, 3 * 1.5)
    assert nightly.cost == 0 + 0.5 + 1
    assert subject(report, "clickstream").core_hours is None


def test_slow_stages_are_sorted_by_the_time_that_they_lost() -> None:
    """The report lists stages with a problem, with all their problems, the most expensive first."""
    story = busy_day()
    report = report_of(story.events)
    expected = sorted(
        (e for e in story.events if "problem.skew" in e.attributes),
        key=lambda e: -int(e.attributes["spark.stage.lost_ms"]),
    )
    assert report.slow_stage_count == len(expected) == 6
    for stage, event in zip(report.slow_stages, expected, strict=True):
        attributes = event.attributes
        assert (stage.stage, stage.name) == (attributes["spark.stage.id"], attributes["spark.stage.name"])
        assert (stage.at, stage.text) == (event.observed_ts_millis, event.body)
        assert stage.duration_ms == attributes["spark.stage.duration_ms"]
        assert stage.lost_ms == attributes["spark.stage.lost_ms"]
        kinds = {key.removeprefix("problem."): text for key, text in attributes.items() if key.startswith("problem.")}
        assert dict(stage.problems) == kinds
    worst = [finding.text for finding in report.findings if "slow stage" in finding.text]
    assert worst == [
        "Application 'nightly-report' had 6 slow stages; the worst is stage 22 [csv at etl.py:9]: skew, spill"
        " (22 s lost)."
    ]


def test_a_report_without_summaries_has_no_slow_stages() -> None:
    """Control: the report does not list stages without a problem."""
    events = [e for e in busy_day().events if "problem.skew" not in e.attributes]
    report = report_of(events)
    assert (report.slow_stages, report.slow_stage_count) == ((), 0)
    assert not [finding for finding in report.findings if "slow stage" in finding.text]


def test_selection_by_application_and_query() -> None:
    """Names, ids and patterns select applications and queries. The message for an unknown name lists all names."""
    events = busy_day().events
    assert [one.name for one in report_of(events, applications=["night*"]).subjects] == ["nightly-report"]
    chosen = report_of(events, queries=["sessions"])
    assert [one.name for one in chosen.subjects] == ["clickstream", "sessions"]
    assert [one.name for one in report_of(events, queries=["id-sessions"]).queries] == ["sessions"]
    with pytest.raises(SparkEventsError, match="--app: given 'x', the sources have: clickstream, nightly-report"):
        report_of(events, applications=["x"])


def test_no_failure_is_lost_by_aggregation() -> None:
    """Although at most about 1,000 markers are drawn, their counts add up to the number of failures."""
    story, pick = Story(), random.Random(5)
    expected: dict[str, int] = defaultdict(int)
    for number in range(6_000):
        app = story.application(f"app{number % 40}", f"id-{number % 40}")
        app.failure(START + pick.randrange(HOUR), "job", f"ValueError: {pick.randrange(1_500)}")
        expected[f"a:app{number % 40}"] += 1
    report = report_of(story.events, draw=True)
    assert report.drawing is not None
    found: dict[str, int] = defaultdict(int)
    for marker in report.drawing.markers:
        found[marker.subject] += marker.count
    assert found == expected
    assert sum(group.count for group in report.failures) == report.failure_count == 6_000
    assert {index for index, _ in subject(report, "app1").failures} <= set(range(len(report.failures)))


def test_at_most_ten_thousand_points_are_drawn() -> None:
    """Whatever the number of events and queries, the page draws at most ten thousand points."""
    story, pick = Story(), random.Random(5)
    for number in range(60):
        app = story.application(f"app{number}", f"id-{number}")
        for run in range(40):
            query = app.query(f"q{number}", f"run-{number}-{run}")
            query.status("RUNNING", START + run * MINUTE)
            query.commit(START + run * MINUTE + 10 * SECOND, pick.randrange(9_000), lag=5)
            query.failure(START + run * MINUTE + 20 * SECOND, "query", f"ValueError: {number}")
            query.status("FAILED", START + run * MINUTE + 20 * SECOND)
    drawing = report_of(story.events, draw=True).drawing
    assert drawing is not None
    points = sum(3 * len(some) for some in drawing.series.values()) + len(drawing.markers)
    points += sum(len(some) for some in (*drawing.lanes.values(), *drawing.executors.values()))
    assert points <= 10_000
    assert {segment[2] for segment in drawing.lanes["q:app1/q1"]} == {"down"}


def test_severities_select_slow_commits_without_an_sla() -> None:
    """Without --sla, the slow commits are the commits with severity WARN."""
    story = Story()
    query = story.application("a", "app-1").query("q", "run-1")
    query.commit(START, 70_000)
    query.story.add("BatchCommitEvent", START + 1, {**query.base, "spark.batch.id": 5}, Severity.WARN)
    commits = subject(report_of(story.events), "q").commits
    assert commits is not None
    assert [slow.batch_id for slow in commits.slow] == [5]
    assert not report_of(story.events).violates_sla


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    """A notebook displays the page in a frame that cannot access the notebook. The text form contains the findings."""
    shown = inline_report(busy_day().events, sla_ms=60_000)
    assert "Application 'nightly-report' has failed since" in repr(shown)
    frame = shown._repr_html_()
    assert frame.startswith('<iframe title="Spark events report" sandbox="allow-scripts"')
    assert frame.count("<") == 2, "the page is escaped"
    with pytest.raises(SparkEventsError, match="no event"):
        inline_report([])
