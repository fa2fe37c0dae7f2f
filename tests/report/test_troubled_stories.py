"""Stories of unusual trouble: what the report says, in data, in narrow terminals, and to each question."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from report import troubled_stories as stories
from report.stories import HOUR, MINUTE, Story
from report.test_model import report_of
from spark_events import Event
from spark_events.cli import main
from spark_events.event import encode_lines
from spark_events.report.terminal import print_report
from spark_events.report.wording import when

Store = Callable[[Sequence[Event]], Path]

#: Kinds and subjects of the problems of each story.
WRONG: dict[Callable[[], Story], list[tuple[str, str]]] = {
    stories.new_checkpoint_every_hour: [],
    stories.healthy_staging_beside_silent_production: [("silent", "a:etl (prod)")],
    stories.hostile_names: [("failure", "hostile")],
    stories.seventy_one_queries_with_one_cause: [("failure", "q:fan-out/topic-00")],
    stories.unknown_end_after_a_failed_job: [("failure", "a:nightly")],
    stories.three_days_without_an_event: [("silent", "a:quiet")],
    stories.clock_that_goes_back: [],
    stories.two_job_groups_fail: [("failure", "a:shop")],
    stories.one_job_group_fails: [("failure", "a:shop")],
    stories.failed_query_runs_again: [("failure", "q:shop/book")],
    stories.silent_since_a_restart: [("silent", "q:restarted/book")],
    stories.application_silent_since_a_restart: [("silent", "a:restarted")],
    stories.silent_after_two_commits: [("silent", "q:young/book")],
    stories.older_run_hangs: [("silent", "a:twice")],
    stories.commit_in_the_future: [("silent", "q:ahead/book")],
}


@pytest.mark.parametrize("tell", WRONG, ids=lambda tell: tell.__name__)
def test_what_is_wrong_now(tell: Callable[[], Story]) -> None:
    report = report_of(tell().events, now=stories.NOW)
    found = [(one.kind, one.subject if one.app_id != "app-hostile" else "hostile") for one in report.problems]
    assert found == WRONG[tell]
    assert report.status.startswith("OK" if not found else "1 problem now")
    assert "newest event" in report.status


def test_a_run_that_ended_after_a_failure_is_not_ok() -> None:
    [nightly] = report_of(stories.unknown_end_after_a_failed_job().events, now=stories.NOW).applications
    assert (nightly.run_count, nightly.failed_runs, nightly.doubtful_runs) == (3, 0, 1)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("tell", WRONG, ids=lambda tell: tell.__name__)
def test_the_terminal_is_short_and_harmless(
    capsys: pytest.CaptureFixture[str], tell: Callable[[], Story], width: int
) -> None:
    print_report(report_of(tell().events, now=stories.NOW), width)
    output = capsys.readouterr().out
    assert len(output.splitlines()) <= 60
    assert not set("\x1b\u202e\u202c") & set(output)
    # A command or link of a card is copied, so it stays whole.
    others = [line for line in output.splitlines() if not line.startswith(("  links:", "  next:"))]
    assert max(map(len, others)) <= width


def test_a_stream_with_new_checkpoints_is_one_query() -> None:
    (query,) = report_of(stories.new_checkpoint_every_hour().events, now=stories.NOW).queries
    assert (query.run_count, query.outcome) == (6, "RUNNING")


def test_queries_of_one_name_have_their_application(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(report_of(stories.healthy_staging_beside_silent_production().events, now=stories.NOW), 80)
    lines = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    assert ["etl", "(prod)/book", "SILENT"] in lines
    assert ["etl", "(staging)/book", "RUNNING"] in lines


def test_each_sentence_and_note_has_the_application_of_queries_of_one_name() -> None:
    story = stories.healthy_staging_beside_silent_production()
    for app_id in ("app-prod", "app-staging"):
        of_app = {"spark.app.id": app_id, "spark.app.name": "etl", "deployment.environment.name": app_id[4:]}
        query = {"spark.streaming.query.name": "book", "spark.streaming.query.id": f"id-{app_id[4:]}"}
        idle = {"spark.watermark.subject": "source", "spark.source.description": "Kafka[a]", "spark.status.new": "IDLE"}
        since = {"spark.watermark.idle_since_millis": stories.NOW - 5 * MINUTE}
        run = {"spark.streaming.query.run_id": f"run-{app_id[4:]}"}
        story.add("WatermarkStatusChangeEvent", stories.NOW - MINUTE, {**of_app, **query, **run, **idle, **since})
    report = report_of(story.events, now=stories.NOW)
    (running,) = [note for note in report.notes if "still running" in note]
    assert "'etl (prod)/book', 'etl (staging)/book'" in running
    said = [finding.text for finding in report.findings if "idle since" in finding.text]
    assert sorted(text.split(": ")[0] for text in said) == ["Query 'etl (prod)/book'", "Query 'etl (staging)/book'"]


def test_a_card_names_what_can_be_typed() -> None:
    (problem,) = report_of(stories.hostile_names().events, now=stories.NOW).problems
    assert " app-hostile --incident hostile/failure" in problem.command
    assert len(problem.title) < 200


def test_why_names_what_can_be_typed(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    path = stored(stories.hostile_names().events)
    assert main(["why", str(path)]) == 0
    commands = [line for line in capsys.readouterr().out.splitlines() if "spark-events report" in line]
    assert [line.split("--app ")[1] for line in commands] == ["app-hostile", "app-hostile --html report.html"]


#: Names that a terminal shows otherwise, that a shell or a command could misread, or that are patterns.
AWKWARD = ("-rf", "; rm -rf /", "a\x1b[31mb", "two\nlines", "tab\there", "\u202egnp.exe", "x" * 400, "$(id)'", "j[1]*")


@pytest.mark.parametrize("name", AWKWARD)
def test_each_printed_command_works(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    story = Story()
    now = time.time_ns() // 1_000_000
    for number, about in enumerate((name, "other")):
        app = story.application(about, f"app-{number}")
        app.status("RUNNING", now - 3 * HOUR)
        query = app.query(about, f"run-{number}")
        query.status("RUNNING", now - 3 * HOUR)
        key = {"incident.role": "alarm", "incident.key": f"{about}/failure"}
        query.failure(now - (number + 1) * MINUTE, "query", f"ValueError: {about}", **key)
        query.status("FAILED", now - (number + 1) * MINUTE)
    (path := tmp_path / "events.jsonl").write_bytes(encode_lines(story.events))

    def commands(*arguments: str) -> list[list[str]]:
        assert main([*arguments]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [shlex.split(line[line.index("spark-events ") :], comments=True)[1:] for line in lines if is_next(line)]

    shown = {tuple(one) for first in ("why", "report") for one in commands(first, str(path)) if "--html" not in one}
    assert len(shown) == 4
    for command in shown:
        assert main(list(command)) == 0
        assert "problem" in (out := capsys.readouterr().out) or "has been down" in out
        assert command[0] == "report" or ("other" in command) == ("'other'" in out.splitlines()[0])
    assert main(["report", str(path), "--fleet", "--json"]) == 0
    for application in json.loads(capsys.readouterr().out)["applications"]:
        assert main([*shlex.split(application["command"])[1:], "--json"]) == 0
        assert [one["name"] for one in json.loads(capsys.readouterr().out)["applications"]] == [application["name"]]


def is_next(line: str) -> bool:
    """Return whether a line of ``why`` or ``report`` is a command."""
    return line.removeprefix("  next:").strip().startswith("spark-events ")


def test_an_end_with_an_unknown_exit_code_has_the_line_of_the_failure_before_it() -> None:
    story = Story()
    app = story.application("nightly", "app-1")
    app.status("RUNNING", stories.NOW - HOUR)
    app.status("ENDED", stories.NOW - MINUTE)
    alarm: dict[str, Any] = {"incident.role": "alarm", "incident.key": "nightly/failure", "failure.location": None}
    alarm["failure.preceding.location"] = "/jobs/payments.py:16 in book"
    app.failure(stories.NOW - MINUTE, "application", **alarm)
    (problem,) = report_of(story.events, now=stories.NOW).problems
    assert problem.location == "/jobs/payments.py:16 in book"


def test_a_silent_application_with_one_query_has_its_last_commit() -> None:
    (problem,) = report_of(stories.three_days_without_an_event().events, now=stories.NOW).problems
    assert (problem.entity, problem.committed_batch) == ("application", 180)


def test_each_question_is_answered_by_one_command(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """What failed, why, which line, since when, still failing, what was committed, how often, where next."""
    story = Story()
    now = time.time_ns() // 1_000_000
    for number, days in enumerate((5, 3, 0)):
        app = story.application("shop", f"app-{number}")
        began = now - days * HOUR * 24 - HOUR
        app.status("RUNNING", began)
        query = app.query("book", f"run-{number}", "id-book")
        query.status("RUNNING", began + 1)
        for minute in range(1, 30):
            query.commit(began + minute * MINUTE, 900)
        failed = began + 30 * MINUTE
        alarm = {"incident.role": "alarm", "incident.key": "shop/query=book/failure", "spark.batch.id": query.batch + 1}
        links = {"spark.history.url": "http://history:18080/history/app-2"}
        query.failure(failed, "query", "KeyError: 'CHF'", **alarm, **links)
        query.status("FAILED", failed)
        app.status("FAILED", failed)
    path = str(stored([msgspec.structs.replace(event, event_id=f"{n:032x}") for n, event in enumerate(story.events)]))
    assert main(["why", path]) == 0
    answer = capsys.readouterr().out
    for question, said in {
        "what failed": "Query 'book' of 'shop'",
        "why": "KeyError: 'CHF' (USER_CODE",
        "which line": "/jobs/payments.py:31 in rate_of: return rates[currency]",
        "since when": "has been down since ",
        "still failing": "(30 min",
        "what was committed": "batch 28 was the last commit at ",
        "which batch failed": "batch 29 failed",
        "how often": "3rd time in this period",
        "where next": "http://history:18080/history/app-2",
        "next command": f"spark-events report {path} --app shop",
    }.items():
        assert said in answer, question
    assert main(["why", path, "--json"]) == 0
    problem: dict[str, Any] = json.loads(capsys.readouterr().out)["problem"]
    assert (problem["times"], problem["committed_batch"], problem["application_ended"]) == (3, 28, True)


@pytest.mark.parametrize(
    ("tell", "title"),
    [
        (stories.two_job_groups_fail, "2 job groups of 'shop' have failed since "),
        (stories.one_job_group_fails, "Job group 'load' of 'shop' has failed since "),
        (lambda: stories.failed_parts("7", entity="sql"), "SQL execution 7 of 'shop' has failed since "),
        (lambda: stories.failed_parts("7", "8", entity="sql"), "2 SQL executions of 'shop' have failed since "),
    ],
    ids=["two groups", "one group", "one execution", "two executions"],
)
def test_what_failed_is_named_and_nothing_that_runs_is_down(tell: Callable[[], Story], title: str) -> None:
    report = report_of(tell().events, now=stories.NOW)
    (problem,) = report.problems
    assert problem.title.startswith(title)
    assert "down" not in problem.text
    assert "quer" not in problem.text
    assert {one.outcome for one in report.subjects} == {"RUNNING"}


def test_several_problems_of_an_application_itself_are_no_queries() -> None:
    story, app, _ = stories.committing()
    for rule in ("job", "stage"):
        late: dict[str, Any] = {"spark.deadline.subject": rule, "spark.deadline.rule": rule}
        late["spark.status.new"] = "OVERDUE"
        app.event("DeadlineStatusChangeEvent", stories.NOW - MINUTE, **late)
    for reporter in ("slack", "mail"):
        about: dict[str, Any] = {"spark.events.reporter.name": reporter}
        about |= {"spark.status.new": "open", "spark.status.old": "closed"}
        app.event("ReporterStatusChangeEvent", stories.NOW - MINUTE, **about)
    problems = report_of(story.events, now=stories.NOW).problems
    assert sorted(one.kind for one in problems) == ["breaker", "breaker", "overdue", "overdue"]
    assert not any("queries" in one.title for one in problems)


def test_a_failed_query_that_runs_again_has_one_state() -> None:
    """Card, row and lane agree: it runs, and was down for 5 minutes; its incident is open until it commits."""
    report = report_of(stories.failed_query_runs_again().events, now=stories.NOW, draw=True)
    (problem,) = report.problems
    assert problem.title == (
        f"Query 'book' of 'shop' failed at {when(stories.NOW - 70 * MINUTE)} (1 h 10 min ago), runs again since"
        f" {when(stories.NOW - 65 * MINUTE)}, nothing committed yet"
    )
    assert problem.running_since == stories.NOW - 65 * MINUTE
    (query,) = report.queries
    assert (query.outcome, query.downtime_ms) == ("RUNNING", 5 * MINUTE)
    assert report.drawing is not None
    assert report.drawing.lanes["q:shop/book"][-1][2] == "running"


def test_several_failed_queries_that_run_again_are_not_down() -> None:
    (problem,) = report_of(stories.runs_again("book", "pay").events, now=stories.NOW).problems
    assert problem.title.startswith("2 queries of 'shop' have failed since ")
    assert problem.title.endswith(": book, pay; they run again, nothing committed yet")


def test_a_failed_batch_application_that_runs_again_has_not_finished() -> None:
    story = Story()
    app = story.application("nightly", "app-1")
    app.status("RUNNING", stories.NOW - 3 * HOUR)
    app.failure(stories.NOW - HOUR, "application", **{"incident.role": "alarm", "incident.key": "nightly/failure"})
    app.status("FAILED", stories.NOW - HOUR)
    story.application("nightly", "app-2").status("RUNNING", stories.NOW - 10 * MINUTE)
    (problem,) = report_of(story.events, now=stories.NOW).problems
    assert problem.title.startswith("Application 'nightly' failed at ")
    assert problem.title.endswith(f"runs again since {when(stories.NOW - 10 * MINUTE)}, nothing finished yet")


def test_a_failure_in_a_run_that_goes_on_is_no_downtime() -> None:
    """No event reports the end of the run whose query failed."""
    story, _, query = stories.committing()
    query.failure(stories.NOW - MINUTE, "query", **{"incident.role": "alarm", "incident.key": "shop/failure"})
    (problem,) = report_of(story.events, now=stories.NOW).problems
    assert problem.title.startswith("Query 'book' of 'shop' has failed since ")


@pytest.mark.parametrize("commits", [0, 1, 2, 4])
def test_the_usual_interval_survives_a_restart(commits: int) -> None:
    """With few commits, the intervals before the restart count; two intervals of its own are enough."""
    (problem,) = report_of(stories.silent_since_a_restart(commits).events, now=stories.NOW).problems
    since = stories.NOW - 2 * HOUR if not commits else stories.NOW - 119 * MINUTE + (commits - 1) * 1000
    assert (problem.kind, problem.since) == ("silent", since)
    assert problem.title.endswith("usually every 1 min" if commits < 3 else "usually every 1 s")


def test_one_commit_says_nothing_of_the_interval() -> None:
    story = Story()
    app = story.application("young", "app-1")
    app.status("RUNNING", stories.NOW - 3 * HOUR)
    query = app.query("book", "run-1")
    query.status("RUNNING", stories.NOW - 3 * HOUR)
    query.commit(stories.NOW - 175 * MINUTE, 900)
    stories.heartbeats(app, 180)
    assert report_of(story.events, now=stories.NOW).problems == ()


def test_a_hanging_older_run_is_named_and_its_application_runs() -> None:
    report = report_of(stories.older_run_hangs().events, now=stories.NOW, draw=True)
    (problem,) = report.problems
    assert problem.app_id == "app-1"
    assert problem.title.startswith("Run app-1 of application 'twice' is silent: no event since ")
    assert "; another run is active since " in problem.title
    assert [one.outcome for one in report.applications] == ["RUNNING"]


def test_an_older_run_that_was_silent_before_the_newer_one_started_is_no_problem() -> None:
    """It is a restart: the older run is UNKNOWN, and its end is in the data of the report."""
    story = Story()
    for number, (began, until) in enumerate(((300, 120), (110, 0))):
        app = story.application("twice", f"app-{number}")
        app.status("RUNNING", stories.NOW - began * MINUTE)
        stories.heartbeats(app, began, until)
    report = report_of(story.events, now=stories.NOW)
    assert report.problems == ()
    assert [run.status for run in report.applications[0].runs] == ["UNKNOWN", "RUNNING"]


def test_events_of_the_future_are_told_and_end_no_silence(capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(stories.commit_in_the_future().events, now=stories.NOW)
    assert (report.ahead_events, report.ahead_ms) == (1, 5 * HOUR)
    assert report.newest_age_ms == MINUTE
    (problem,) = report.problems
    assert problem.since == stories.NOW - 31 * MINUTE
    assert "data:    batch 29 was the last commit\n" in problem.text
    print_report(report, 120)
    assert "! 1 event is dated in the future, by up to 5 h" in capsys.readouterr().out


def test_a_source_without_new_events_is_stale_whatever_the_period() -> None:
    """The age is that of the real clock, and the lane is grey from the newest event on."""
    newest = stories.NOW - 72 * HOUR
    events = stories.three_days_without_an_event().events
    report = report_of(events, now=stories.NOW, until=newest + 5 * MINUTE, draw=True)
    assert report.status.startswith("Unknown: no event for more than 15 min, although 1 application has not ended;")
    assert report.is_wrong
    assert [(one.newest, one.age_ms, one.running) for one in report.stale] == [(newest, 72 * HOUR, 1)]
    assert report.newest_age_ms == 72 * HOUR
    assert {one.outcome for one in report.subjects} == {"SILENT"}
    assert report.drawing is not None
    for lane in report.drawing.lanes.values():
        assert lane[-1][:3] == (newest, newest + 5 * MINUTE, "no data")


def test_a_period_before_the_newest_event_has_the_banner_but_no_grey_lane() -> None:
    """Whether the application ended after the period, the report does not say."""
    newest = stories.NOW - 72 * HOUR
    events = stories.three_days_without_an_event().events
    report = report_of(events, now=stories.NOW, until=newest - HOUR, draw=True)
    assert [(one.newest, one.age_ms, one.running) for one in report.stale] == [(newest, 72 * HOUR, 0)]
    assert {one.outcome for one in report.subjects} == {"RUNNING"}
    assert report.drawing is not None
    assert {segment[2] for lane in report.drawing.lanes.values() for segment in lane} == {"running"}


def test_a_period_that_ended_is_not_stale_while_events_arrive() -> None:
    story, *_ = stories.committing()
    report = report_of(story.events, now=stories.NOW, until=stories.NOW - HOUR, draw=True)
    assert (report.stale, report.is_wrong) == ((), False)
    assert {one.outcome for one in report.subjects} == {"RUNNING"}
