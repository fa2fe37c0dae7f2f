"""Stories of trouble: what is wrong now, and that OK is never said over a fire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from report import troubled_stories
from report.stories import HOUR, MINUTE, SECOND, START, Story, busy_day
from report.test_model import report_of, subject
from spark_events.report.brief import brief
from spark_events.report.cards import rows
from spark_events.report.terminal import print_report

NOW = START + 24 * HOUR
DAY = 24 * HOUR


def stream(story: Story, run: int = 1, at: int = START, query: str = "clicks") -> Any:
    """Start an application with a query; return both."""
    app = story.application("shop", f"app-{run}")
    app.status("RUNNING", at)
    started = app.query(query, f"run-{run}", f"checkpoint-{run}")
    started.status("RUNNING", at)
    return app, started


def crashed_39_times(story: Story) -> None:
    for run in range(39):
        at = NOW - 2 * HOUR + run * 3 * MINUTE
        app, query = stream(story, run, at)
        query.commit(at + 10 * SECOND, 100)
        app.failure(at + MINUTE, "application")
        app.status("FAILED", at + MINUTE)
    app, query = stream(story, 40, NOW - 2 * MINUTE)
    query.commit(NOW - MINUTE, 100)


@pytest.mark.parametrize("with_ids", [True, False])
def test_a_table_counts_a_failure_of_several_events_once(with_ids: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Each crash has the event of a job, of a query and of the application; events of earlier releases have no ids."""
    story = Story()
    for run in range(39):
        at = NOW - 2 * HOUR + run * 3 * MINUTE
        app, query = stream(story, run, at)
        for role, entity, part in (
            ("member", "job", app),
            ("alarm", "query", query),
            ("consequence", "application", app),
        ):
            ids = {"incident.id": f"{run:032x}", "incident.role": role, "incident.key": "shop/query=clicks/failure"}
            part.failure(at + MINUTE, entity, **(ids if with_ids else {}))
        app.status("FAILED", at + MINUTE)
    report = report_of(story.events, now=NOW)
    (application,), (query_report,) = report.applications, report.queries
    assert (application.failed_runs, application.incidents, query_report.incidents) == (39, 39, 39)
    assert (report.failures[0].incidents, report.failures[0].count) == (39, 117)
    print_report(report, 120)
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("shop "))
    assert row.split().count("39") >= 3  # runs, failed runs, failures
    assert "117" not in row


def failed_every_minute(story: Story) -> None:
    app = story.application("server", "app-1")
    app.status("RUNNING", NOW - HOUR)
    for minute in range(60):
        about: dict[str, Any] = {"incident.role": "alarm", "incident.key": "server/job=etl/failure"}
        app.failure(NOW - HOUR + minute * MINUTE + 30 * SECOND, "job", **about)


def failed_until_the_newest_event(story: Story) -> None:
    app = story.application("batch", "app-1")
    app.status("RUNNING", NOW - HOUR)
    for number in range(300):
        app.failure(NOW - HOUR + number * 10 * SECOND, "application")


def fell_silent(story: Story) -> None:
    app, query = stream(story, at=NOW - 8 * HOUR)
    for minute in range(120):
        query.commit(NOW - 8 * HOUR + minute * MINUTE, 100)
    for minute in range(8 * 60):
        app.event("HeartbeatEvent", NOW - 8 * HOUR + minute * MINUTE, **{"spark.heartbeat.interval_ms": MINUTE})


def died_three_days_ago(story: Story) -> None:
    for number in range(3):
        app = story.application(f"app-{number}", f"id-{number}")
        app.status("RUNNING", NOW - 4 * DAY)
        for minute in range(60):
            app.event("HeartbeatEvent", NOW - 3 * DAY - HOUR + minute * MINUTE)


def failed_71_times_alike(story: Story) -> None:
    app = story.application("shop", "app-1")
    app.status("RUNNING", NOW - HOUR)
    for number in range(71):
        query = app.query(f"q{number}", f"run-{number}")
        query.status("RUNNING", NOW - HOUR)
        query.failure(NOW - MINUTE, "job")
        query.failure(NOW - MINUTE, "query")
        query.status("FAILED", NOW - MINUTE)


def ended_without_a_cause(story: Story) -> None:
    app = story.application("batch", "app-1")
    app.status("RUNNING", NOW - HOUR)
    app.status("LOST", NOW - MINUTE)


@pytest.mark.parametrize(
    ("tell", "kinds"),
    [
        (crashed_39_times, ["crash-loop"]),
        (failed_every_minute, ["failure"]),
        (failed_until_the_newest_event, ["failure"]),
        (fell_silent, ["silent"]),
        (died_three_days_ago, ["silent", "silent", "silent"]),
        (failed_71_times_alike, ["failure"]),
        (ended_without_a_cause, ["failure"]),
    ],
)
def test_ok_is_not_said_over_a_fire(tell: Callable[[Story], None], kinds: list[str]) -> None:
    story = Story()
    tell(story)
    report = report_of(story.events, now=NOW)
    assert [problem.kind for problem in report.problems] == kinds
    assert report.is_wrong
    assert report.status.startswith(f"{len(kinds)} problem")
    assert "newest event" in report.status
    assert all(len(problem.text.splitlines()) <= 8 for problem in report.problems)


def crashed_and_fell_silent(story: Story) -> None:
    """Five runs failed in the last hour; the sixth has reported nothing for 20 minutes."""
    for run in range(1, 6):
        at = NOW - 58 * MINUTE + run * 5 * MINUTE
        app, query = stream(story, run, at)
        query.commit(at + 10 * SECOND, 100)
        about = {"failure.location": "/jobs/shop.py:7 in main", "spark.history.url": f"http://history/app-{run}"}
        app.failure(at + 3 * MINUTE, "application", "KeyError: 'CHF'", **about, **{"incident.role": "alarm"})
        app.status("FAILED", at + 3 * MINUTE)
    app = story.application("shop", "app-6")
    app.status("RUNNING", NOW - 25 * MINUTE, **{"spark.history.url": "http://history/app-6"})
    query = app.query("clicks", "run-6", "checkpoint-6")
    query.status("RUNNING", NOW - 25 * MINUTE)
    for number in range(20):
        query.commit(NOW - 24 * MINUTE + number * 12 * SECOND, 100)


def test_a_silence_tells_of_the_crash_loop_before_it() -> None:
    """One state at a time, and the failures, their cause and their line are told."""
    story = Story()
    crashed_and_fell_silent(story)
    report = report_of(story.events, now=NOW, draw=True)
    (problem,) = report.problems
    assert (problem.kind, problem.app_id, problem.failed_runs) == ("silent", "app-6", 5)
    assert problem.title.startswith("Application 'shop' is silent: no event since ")
    assert "; 5 runs failed in the last hour, down for " in problem.title
    assert (problem.cause, problem.failure_class) == ("KeyError: 'CHF'", "USER_CODE")
    assert problem.location == "/jobs/shop.py:7 in main"
    # The links are those of the run that is silent.
    assert [link.url for link in problem.links] == ["http://history/app-6"]
    assert {one.outcome for one in report.subjects} == {"SILENT"}
    assert report.drawing is not None
    last = max(event.observed_ts_millis for event in story.events)
    for lane in report.drawing.lanes.values():
        assert [segment[:3] for segment in lane if segment[2] == "no data"] == [(last, NOW, "no data")]


def test_a_failure_tells_of_the_silence_after_it() -> None:
    """An incident stays open until a commit; meanwhile, the query restarted and hangs."""
    story = Story()
    app, query = stream(story, at=NOW - 3 * HOUR)
    for minute in range(30):
        query.commit(NOW - 170 * MINUTE + minute * MINUTE, 100)
    query.failure(NOW - 2 * HOUR, "query")
    query.status("FAILED", NOW - 2 * HOUR)
    app.status("FAILED", NOW - 2 * HOUR)
    app, query = stream(story, 2, NOW - 119 * MINUTE)
    for number in range(20):
        app.event("Other", NOW - 118 * MINUTE + number * SECOND)
    report = report_of(story.events, now=NOW, draw=True)
    restarted, silent = NOW - 119 * MINUTE, NOW - 118 * MINUTE + 19 * SECOND
    assert [(one.kind, one.entity, one.silent_since) for one in report.problems] == [
        ("failure", "query", None),
        ("silent", "application", silent),
    ]
    assert {one.outcome for one in report.subjects} == {"SILENT"}
    assert report.drawing is not None
    # The query has not committed since its restart, and its application reported something for a minute.
    for key, since in (("q:shop/clicks", restarted), ("a:shop", silent)):
        unknown = [segment[:3] for segment in report.drawing.lanes[key] if segment[2] == "no data"]
        assert unknown == [(since, NOW, "no data")]


def test_a_silent_application_does_not_hide_the_crash_loop_of_its_query() -> None:
    story = Story()
    app = story.application("shop", "app-1")
    app.status("RUNNING", NOW - 2 * HOUR)
    for run in range(5):
        query = app.query("clicks", f"run-{run}")
        at = NOW - 55 * MINUTE + run * 5 * MINUTE
        query.status("RUNNING", at)
        query.commit(at + MINUTE, 100)
        if run < 4:
            query.failure(at + 4 * MINUTE, "query", "KeyError: 'CHF'")
            query.status("FAILED", at + 4 * MINUTE)
    app.event("Other", NOW - 33 * MINUTE)
    problems = {(one.kind, one.entity): one for one in report_of(story.events, now=NOW).problems}
    assert sorted(problems) == [("crash-loop", "query"), ("silent", "application")]
    assert (problems["crash-loop", "query"].failed_runs, problems["crash-loop", "query"].cause) == (
        4,
        "KeyError: 'CHF'",
    )


def test_an_end_without_a_failure_event_has_no_cause_of_an_earlier_run() -> None:
    story = Story()
    app = story.application("batch", "app-1")
    app.status("RUNNING", NOW - 50 * HOUR)
    app.failure(NOW - 49 * HOUR, "application")
    app.status("FAILED", NOW - 49 * HOUR)
    for run, ending in ((2, "FINISHED"), (3, "FAILED")):
        app = story.application("batch", f"app-{run}")
        app.status("RUNNING", NOW - (4 - run) * HOUR)
        app.status(ending, NOW - (4 - run) * HOUR + MINUTE)
    (problem,) = report_of(story.events, now=NOW).problems
    assert (problem.kind, problem.cause) == ("ended", None)


def test_a_silent_query_names_its_overdue_batch() -> None:
    story = Story()
    app, query = stream(story, at=NOW - 2 * HOUR)
    for minute in range(60):
        query.commit(NOW - 2 * HOUR + minute * MINUTE, 100)
    late: dict[str, Any] = {"spark.deadline.subject": "batch", "spark.deadline.rule": "batch", "spark.batch.id": 60}
    late |= {"spark.deadline.limit_ms": 300_000, "spark.deadline.location": "Sink.scala:12 in Sink.write"}
    query.event("DeadlineStatusChangeEvent", NOW - 50 * MINUTE, **late, **{"spark.status.new": "OVERDUE"})
    app.event("HeartbeatEvent", NOW - SECOND)
    (problem,) = report_of(story.events, now=NOW).problems
    assert problem.kind == "silent"
    assert "; batch 60 has been overdue since " in problem.title
    assert problem.location == "Sink.scala:12 in Sink.write"


BRIEF = (
    crashed_39_times,
    failed_every_minute,
    failed_until_the_newest_event,
    fell_silent,
    died_three_days_ago,
    failed_71_times_alike,
    ended_without_a_cause,
    crashed_and_fell_silent,
)


def of_troubled(tell: Callable[[], Story]) -> Callable[[Story], None]:
    def told(story: Story) -> None:
        story.events += tell().events

    return told


@pytest.mark.parametrize("width", [80, 120, None])
@pytest.mark.parametrize(
    ("tell", "now"),
    [
        *((tell, NOW) for tell in BRIEF),
        *((of_troubled(tell), troubled_stories.NOW) for tell in troubled_stories.STORIES),
        (of_troubled(busy_day), START + 21 * HOUR),
    ],
)
def test_a_card_and_its_commands_have_eight_lines(tell: Callable[[Story], None], now: int, width: int | None) -> None:
    story = Story()
    tell(story)
    report = "spark-events report events.jsonl --app shop"
    for problem in report_of(story.events, now=now).problems:
        program = ["spark-events why events.jsonl shop --program > find.py"] if problem.data_file else []
        lines = brief(problem, [report, *program], [f"{report} --html report.html"], width)
        assert len(lines) <= 8
        assert max(map(len, lines)) <= (width or 2_000)
        text = " ".join(" ".join(lines).split())
        assert all(command in text for command in (report, *program))
        if len(problem.title) < 160:
            # Nothing of a card of usual length is cut.
            assert "…" not in text
            assert problem.title in text
            assert all(" ".join(value.split()) in text for name, value in rows(problem) if name != "next")


def failed_twice_without_an_event(story: Story) -> None:
    for run in (1, 2):
        app = story.application("batch", f"app-{run}")
        app.status("RUNNING", NOW - (4 - run) * 2 * HOUR)
        app.status("FAILED", NOW - (4 - run) * 2 * HOUR + MINUTE)


def overdue_three_times(story: Story) -> None:
    _, query = stream(story, at=NOW - 20 * MINUTE)
    for begun in (15, 10, 5):
        late = {"spark.deadline.subject": "batch", "spark.deadline.rule": "batch", "incident.role": "alarm"}
        late["incident.key"] = "shop/query=clicks/overdue"
        query.event("DeadlineStatusChangeEvent", NOW - begun * MINUTE, **late, **{"spark.status.new": "OVERDUE"})
        if begun > 5:
            over = {**late, "spark.status.old": "OVERDUE", "spark.status.new": "ON_TIME"}
            query.event("DeadlineStatusChangeEvent", NOW - (begun - 1) * MINUTE, **over)
    query.commit(NOW - SECOND, 100)


def silent_after_each_restart(story: Story) -> None:
    """A query whose first run hung until it was stopped, and whose next run hung for half an hour, and hangs again."""
    app, query = stream(story, at=NOW - 300 * MINUTE)
    for minute in range(299, 270, -1):
        query.commit(NOW - minute * MINUTE, 900)
    query.status("FINISHED", NOW - 240 * MINUTE)
    again = app.query("clicks", "run-2", "id-new")
    again.status("RUNNING", NOW - 239 * MINUTE)
    for minute in (*range(238, 200, -1), *range(170, 60, -1)):
        again.commit(NOW - minute * MINUTE, 900)
    for minute in range(300, 0, -1):
        app.event("HeartbeatEvent", NOW - minute * MINUTE)


def application_silent_three_times(story: Story) -> None:
    app, _ = stream(story, at=NOW - 300 * MINUTE)
    for minute in (*range(299, 250, -1), *range(200, 150, -1), *range(100, 50, -1)):
        app.event("HeartbeatEvent", NOW - minute * MINUTE)


def test_silences_before_the_period_are_not_counted() -> None:
    story = Story()
    silent_after_each_restart(story)
    for begin, times in ((NOW - 230 * MINUTE, 2), (NOW - 190 * MINUTE, 1), (NOW - 100 * MINUTE, 1)):
        assert [one.times for one in report_of(story.events, now=NOW, since=begin).problems] == [times]


@pytest.mark.parametrize(
    ("tell", "kind", "times"),
    [
        (overdue_three_times, "overdue", "3rd time in this period"),
        (crashed_39_times, "crash-loop", "39th failed run in this period"),
        (failed_twice_without_an_event, "ended", "2nd failed run in this period"),
        (fell_silent, "silent", "first time in this period"),
        (silent_after_each_restart, "silent", "3rd time in this period"),
        (application_silent_three_times, "silent", "3rd time in this period"),
    ],
)
def test_a_card_of_each_kind_says_how_often(tell: Callable[[Story], None], kind: str, times: str | None) -> None:
    story = Story()
    tell(story)
    problem = next(one for one in report_of(story.events, now=NOW).problems if one.kind == kind)
    assert dict(rows(problem)).get("times") == times


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_commands_and_links_of_a_card_are_one_line(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story()
    app = story.application("a nightly application with a name of some length", "app-20261130120000-0001")
    app.status("RUNNING", NOW - HOUR)
    links = {"incident.runbook_url": "https://wiki/" + "x" * 60, "spark.history.url": "http://history/" + "y" * 60}
    key = {"incident.role": "alarm", "incident.key": "a nightly application with a name of some length/failure"}
    app.failure(NOW - MINUTE, "application", **links, **key)
    app.status("FAILED", NOW - MINUTE)
    report = report_of(story.events, now=NOW)
    print_report(report, width)
    lines = capsys.readouterr().out.splitlines()
    (problem,) = report.problems
    assert any(line.endswith(problem.command) for line in lines)
    assert any(all(url in line for url in links.values()) for line in lines)


def healthy_stream(story: Story) -> None:
    app, query = stream(story, at=NOW - HOUR)
    for minute in range(60):
        query.commit(NOW - HOUR + minute * MINUTE, 100)
    app.event("HeartbeatEvent", NOW - 10 * SECOND)


def new_checkpoints(story: Story) -> None:
    for run in range(1, 4):
        at = NOW - (4 - run) * 3 * HOUR
        app, query = stream(story, run, at)
        for minute in range(170 if run < 3 else 180):
            query.commit(at + minute * MINUTE, 100)
        if run < 3:
            query.failure(at + 170 * MINUTE, "query")
            query.status("FAILED", at + 170 * MINUTE)
            app.status("FAILED", at + 170 * MINUTE)


def finished_batch(story: Story) -> None:
    app = story.application("batch", "app-1")
    app.status("RUNNING", NOW - 30 * DAY)
    app.status("FINISHED", NOW - 30 * DAY + HOUR)


@pytest.mark.parametrize("tell", [healthy_stream, new_checkpoints, finished_batch])
def test_ok_names_the_newest_event(tell: Callable[[Story], None]) -> None:
    """A query is its application and name: a stream that restarts with a new checkpoint is one query."""
    story = Story()
    tell(story)
    report = report_of(story.events, now=NOW)
    assert report.problems == ()
    assert not report.is_wrong
    assert report.status.startswith("OK: nothing is wrong now; newest event ")
    assert report.status.endswith(" ago, of 1 application.")
    assert len(report.queries) <= 1


def test_the_status_of_an_earlier_time_is_not_called_now() -> None:
    """With ``--until`` in the past, nobody knows what is wrong now."""
    story = Story()
    fell_silent(story)
    healthy = report_of(story.events, now=NOW, until=NOW - 7 * HOUR).status
    assert healthy == "OK: nothing was wrong at 2026-11-19 04:06:40 UTC; newest event 1 min ago, of 1 application."
    silent = report_of(story.events, now=NOW, until=NOW - HOUR).status
    assert silent == "1 problem at 2026-11-19 10:06:40 UTC; newest event 1 min ago, of 1 application."
    assert " now; " in report_of(story.events, now=NOW, until=NOW + HOUR).status


def test_a_stale_source_is_not_ok() -> None:
    """If nothing arrives for 15 minutes, an application that has not ended is not RUNNING, and its lane is grey."""
    story = Story()
    app = story.application("batch", "app-1")
    app.status("RUNNING", NOW - HOUR)
    app.event("EventsDroppedEvent", NOW - 20 * MINUTE)
    report = report_of(story.events, now=NOW, draw=True)
    assert report.is_wrong
    assert report.status.startswith("Unknown: no event for more than 15 min, although 1 application has not ended;")
    assert [(one.newest, one.running) for one in report.stale] == [(NOW - 20 * MINUTE, 1)]
    assert subject(report, "batch").outcome == "SILENT"
    assert report.drawing is not None
    states = [segment[:3] for segment in report.drawing.lanes["a:batch"]]
    ran = (NOW - HOUR, NOW - 20 * MINUTE, "running")
    assert states == [ran, (NOW - 20 * MINUTE, NOW, "no data")]


def _ran_until(story: Story, end: int | None, last: int) -> None:
    app = story.application("nightly", "app-1")
    app.status("RUNNING", NOW - 100 * HOUR)
    app.event("EventsDroppedEvent", last)
    if end is not None:
        app.status("FINISHED", end)


@pytest.mark.parametrize(
    ("ran", "tail"),
    [(10 * MINUTE, 15 * MINUTE), (2 * HOUR, 15 * MINUTE), (20 * HOUR, HOUR)],
    ids=str,
)
def test_old_data_shows_that_the_time_after_it_is_unknown(ran: int, tail: int) -> None:
    """Without ``--until``, the period of old data ends with its newest event, and the axis somewhat later."""
    story = Story()
    newest = NOW - 100 * HOUR + ran
    _ran_until(story, None, newest)
    report = report_of(story.events, now=NOW, draw=True)
    assert (report.until, report.until_is) == (newest, "newest event")
    assert report.drawing is not None
    assert report.drawing.until == newest + tail
    lane = [segment[:3] for segment in report.drawing.lanes["a:nightly"]]
    assert lane == [(NOW - 100 * HOUR, newest, "running"), (newest, newest + tail, "no data")]


def test_the_axis_of_old_data_does_not_go_beyond_now() -> None:
    """A period of a month would be extended by more than a day."""
    story = Story()
    app = story.application("stream", "app-1")
    app.status("RUNNING", NOW - 800 * HOUR)
    app.event("EventsDroppedEvent", NOW - 25 * HOUR)
    report = report_of(story.events, now=NOW, draw=True)
    assert report.drawing is not None
    assert report.drawing.until == NOW


def test_old_data_of_an_application_that_has_ended_has_no_unknown_time() -> None:
    story = Story()
    _ran_until(story, NOW - 90 * HOUR, NOW - 95 * HOUR)
    report = report_of(story.events, now=NOW, draw=True)
    assert report.drawing is not None
    assert report.drawing.until == report.until == NOW - 90 * HOUR


def test_an_open_downtime_is_unknown_after_the_newest_event_too() -> None:
    story = Story()
    _, query = stream(story, at=NOW - 50 * HOUR)
    query.failure(NOW - 49 * HOUR, "query")
    query.status("FAILED", NOW - 49 * HOUR)
    story.application("other", "app-2").status("RUNNING", NOW - 48 * HOUR)
    report = report_of(story.events, now=NOW, draw=True)
    assert report.drawing is not None
    *_, down, unknown = report.drawing.lanes["q:shop/clicks"]
    assert down[1:3] == (report.until, "down")
    assert unknown[:3] == (report.until, report.drawing.until, "no data")


def test_a_lane_has_one_state_at_a_time() -> None:
    """Work is not overdue while its query is down, and a percentage is not shown of a run that has not ended."""
    story = Story()
    _, query = stream(story, at=NOW - HOUR)
    late: dict[str, Any] = {"spark.deadline.subject": "batch", "spark.deadline.rule": "batch"}
    query.event("DeadlineStatusChangeEvent", NOW - 50 * MINUTE, **late, **{"spark.status.new": "OVERDUE"})
    query.failure(NOW - 40 * MINUTE, "query")
    query.status("FAILED", NOW - 40 * MINUTE)
    report = report_of(story.events, now=NOW, draw=True)
    assert report.drawing is not None
    lane = report.drawing.lanes["q:shop/clicks"]
    assert [(end - start, state) for start, end, state, _ in lane] == [
        (20 * MINUTE, "running"),
        (40 * MINUTE, "down"),
        (10 * MINUTE, "overdue"),
    ]
    assert [problem.kind for problem in report.problems if problem.entity == "query"] == ["failure"]
    assert subject(report, "clicks").uptime_percent is None


def test_a_clock_that_was_not_set_does_not_stretch_the_axis() -> None:
    story = Story()
    healthy_stream(story)
    story.application("shop", "app-1").event("EventsDroppedEvent", 0)
    assert report_of(story.events, now=NOW).since == NOW - HOUR


@pytest.mark.parametrize("width", [80, 120])
def test_a_narrow_terminal_breaks_no_words(capsys: pytest.CaptureFixture[str], width: int) -> None:
    """Tables have fewer columns, and a downtime of an application and its queries is told once."""
    print_report(report_of(busy_day().events, now=START + 21 * HOUR), width)
    lines = capsys.readouterr().out.splitlines()
    # A command or link of a card is copied, so it stays whole.
    assert max(len(line) for line in lines if not line.startswith(("  links:", "  next:"))) <= width
    words = {word for line in lines for word in line.split()}
    assert words >= {"clicks-per-minute", "book-payments", "90.08", "SILENT", "p95"}
    assert ("Restarts" in words) == (width == 120)
    assert sum(line.startswith("  down 2026") for line in lines) == 5


def test_a_card_has_the_last_commit_of_its_own_environment() -> None:
    """Production is down, and staging, with the same names, commits every minute."""
    story = Story()
    for environment, last in (("prod", 30), ("staging", 0)):
        app = story.application("etl", f"app-{environment}")
        app.base["deployment.environment.name"] = environment
        app.status("RUNNING", NOW - 2 * HOUR)
        query = app.query("book", f"run-{environment}", f"id-{environment}")
        query.status("RUNNING", NOW - 2 * HOUR)
        for minute in range(119, last, -1):
            query.commit(NOW - minute * MINUTE, 900)
        if last:
            key = "environment=prod/etl/query=book/failure"
            query.failure(NOW - last * MINUTE, "query", **{"incident.key": key, "incident.role": "alarm"})
            query.status("FAILED", NOW - last * MINUTE)
            app.status("FAILED", NOW - last * MINUTE)
    report = report_of(story.events, now=NOW)
    (problem,) = report.problems
    assert (problem.environment, problem.committed_at) == ("prod", NOW - 31 * MINUTE)
    # Each environment has its own row, and `--app` takes both names.
    assert [(one.name, one.outcome) for one in report.applications] == [
        ("etl (prod)", "FAILED"),
        ("etl (staging)", "RUNNING"),
    ]
    for chosen, names in (("etl", ["etl (prod)", "etl (staging)"]), ("etl (prod)", ["etl (prod)"])):
        found = report_of(story.events, now=NOW, applications=[chosen]).applications
        assert [one.name for one in found] == names
