"""Stories of unusual trouble: what the report says, in data, in narrow terminals, and to each question."""

from __future__ import annotations

import json
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
from spark_events.report.terminal import print_report

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
