"""Tests of ``spark-events why``: the card of one incident, and what changed since the last good run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from report.stories import HOUR, MINUTE, START, Story, add_summary
from spark_events import Event
from spark_events.cli import main
from spark_events.cli.send_test import SAMPLES
from spark_events.event import encode_lines
from spark_events.report.wording import when
from spark_events.reporters.database.database_config import DatabaseConfig, database_url
from spark_events.reporters.database.database_reporter import DatabaseReporter

INCIDENT = "1116486a90c24a7bb01fc6a0d3d5e5aa"
Store = Callable[[Sequence[Event]], Path]


def nightly() -> Story:
    """Return a good run and a failed run of an application with other settings, less memory and more input."""
    story = Story()
    for number, (memory, version, rows) in enumerate((("8g", "v1", 1_000), ("2g", "v2", 9_000))):
        app = story.application("nightly", f"app-{number}")
        at = START + number * 24 * HOUR
        about: dict[str, Any] = {"spark.setting.executor.memory": memory, "spark.tag.revision": version}
        app.status("RUNNING", at, **{"spark.version": "4.0.1", "spark.tag.team": "etl", **about})
        add_summary(story, {**app.base, "spark.summary.input_rows": rows}, at + HOUR, 1.0, 0.5, None)
        if number:
            more: dict[str, Any] = {
                "incident.id": INCIDENT,
                "failure.class": "OUT_OF_MEMORY",
                "failure.retry_useful": False,
                "failure.location": "/jobs/nightly.py:7 in main",
                "failure.source_line": "rows.collect()",
                "incident.key": "nightly/failure",
                "incident.role": "alarm",
                "incident.runbook_url": "https://wiki/nightly",
                "spark.history.url": "http://history:18080/history/app-1/jobs/",
                "spark.ui.url": "http://driver:4040",
            }
            app.failure(at + HOUR, "application", "OutOfMemoryError: Java heap space", **more)
        app.status("FAILED" if number else "FINISHED", at + HOUR)
    return story


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["why", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_card_says_why_and_what_changed(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    path = str(stored(nightly().events))
    code, output, _ = called(capsys, path)
    lines = [line.split(maxsplit=1) for line in output.partition("\n\n")[0].splitlines()[1:]]
    rows = {name.removesuffix(":"): value for name, value in lines if name.endswith(":")}
    assert code == 0
    assert output.startswith("Application 'nightly' has failed since 2026-11-19 12:06:40 (")
    assert rows["why"] == "OutOfMemoryError: Java heap space (OUT_OF_MEMORY; a rerun does not help)"
    assert rows["line"] == "/jobs/nightly.py:7 in main: rows.collect()"
    assert "application 'nightly' app-1 has ended" in rows["where"]
    assert rows["links"].split() == [
        *("runbook", "https://wiki/nightly"),
        *("history", "server", "http://history:18080/history/app-1/jobs/"),
    ]
    assert rows["next"] == f"spark-events report {path} --app nightly"
    card, changed = output.split("\n\n")
    assert len(card.splitlines()) <= 8
    assert changed.splitlines() == [
        "changed since the good run app-0 of 2026-11-18 11:06:40:",
        "  executor.memory 8g → 2g",
        "  tag revision v1 → v2",
        "  input rows 1,000 → 9,000",
    ]


def test_a_run_that_failed_alike_is_not_the_good_run(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """Each run of a crash loop commits a batch. The last good run is the one before the loop."""
    story = Story()
    for number in range(5):
        app = story.application("shop", f"app-{number}")
        at = START + number * 10 * MINUTE
        app.status("RUNNING", at, **{"spark.tag.revision": "v1" if number == 0 else "v2"})
        query = app.query("book", f"run-{number}")
        query.status("RUNNING", at)
        query.commit(at + MINUTE, 900)
        app.failure(at + 5 * MINUTE, "application", "OSError: moved" if number == 0 else "ValueError: no currency")
        app.status("FAILED", at + 5 * MINUTE)
    path = str(stored(story.events))
    _, output, _ = called(capsys, path)
    assert "tag revision v1 → v2" in output
    assert "since the good run app-0" in output


@pytest.mark.parametrize("incident", [INCIDENT, INCIDENT[:8]])
def test_an_incident_is_found_by_its_id(capsys: pytest.CaptureFixture[str], stored: Store, incident: str) -> None:
    """``spark-events run`` prints ``incident.id``; its first eight characters suffice."""
    code, output, _ = called(capsys, str(stored(nightly().events)), "--incident", incident)
    assert code == 0
    assert output.startswith("Application 'nightly' has failed since")


def test_the_beginning_of_two_ids_lists_both(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    story = Story()
    ids = ("1116486a1", "1116486a2")
    for incident in ids:
        app = story.application(f"app{incident}", f"app-{incident}")
        app.status("RUNNING", START)
        about = {"incident.id": incident, "incident.key": f"app{incident}/failure", "incident.role": "alarm"}
        app.failure(START + MINUTE, "application", **about)
        app.status("FAILED", START + MINUTE)
    path = str(stored(story.events))
    code, _, errors = called(capsys, path, "--incident", "1116486a")
    assert (code, errors) == (
        1,
        f"spark-events: several incidents have an id that begins with '1116486a': {', '.join(ids)}\n",
    )
    assert "app1116486a2" in called(capsys, path, "--incident", ids[1])[1]


def test_the_id_of_a_closed_incident_does_not_find_the_next_one(
    capsys: pytest.CaptureFixture[str], stored: Store
) -> None:
    story = Story()
    for number, ending in enumerate(("FAILED", "FINISHED", "FAILED")):
        app = story.application("shop", f"app-{number}")
        at = START + number * HOUR
        app.status("RUNNING", at)
        if ending == "FAILED":
            about = {"incident.id": f"{number}116486a", "incident.key": "shop/failure", "incident.role": "alarm"}
            app.failure(at + MINUTE, "application", **about)
        app.status(ending, at + MINUTE)
    path = str(stored(story.events))
    assert called(capsys, path, "--incident", "0116486a")[0] == 1
    assert called(capsys, path, "--incident", "2116486a")[0] == 0


@pytest.mark.parametrize(
    ("useful", "expected"),
    [(True, "a rerun may help"), (False, "a rerun does not help"), (None, "rerun: unknown whether it helps")],
)
def test_the_card_says_whether_a_rerun_helps(
    capsys: pytest.CaptureFixture[str], stored: Store, useful: bool | None, expected: str
) -> None:
    story = Story()
    app = story.application("shop", "app-1")
    app.status("RUNNING", START)
    about: dict[str, Any] = {
        "failure.class": "USER_CODE",
        **({} if useful is None else {"failure.retry_useful": useful}),
    }
    app.failure(START + MINUTE, "application", **about)
    app.status("FAILED", START + MINUTE)
    _, output, _ = called(capsys, str(stored(story.events)))
    assert f"(USER_CODE; {expected})" in output


def test_failed_tasks_are_no_change_of_a_failed_run(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """The failed tasks are the failure itself, and not a difference that may have caused it."""
    story = Story()
    for number, ending in enumerate(("FINISHED", "FAILED")):
        app = story.application("shop", f"app-{number}")
        at = START + number * HOUR
        app.status("RUNNING", at)
        about = {"spark.summary.input_rows": 1_000 + 8_000 * number, "spark.summary.tasks_failed_attempts": number}
        add_summary(story, {**app.base, **about}, at + MINUTE, 1.0, 0.5, None)
        if number:
            app.failure(at + MINUTE, "application")
        app.status(ending, at + MINUTE)
    _, output, _ = called(capsys, str(stored(story.events)))
    assert output.splitlines()[-2:] == [
        f"changed since the good run app-0 of {when(START)}:",
        "  input rows 1,000 → 9,000",
    ]


def test_long_texts_are_cut_to_the_terminal_and_commands_are_whole(
    capsys: pytest.CaptureFixture[str], stored: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fact of the card is long, the failure has a program, and there are more problems."""
    story = Story()
    for number in range(3):
        app = story.application(f"shop{number} {'of payments ' * 20}", f"app-{number}")
        app.status("RUNNING", START, **{"spark.tag.team": "payments " * 9})
        query = app.query("book " * 40, f"run-{number}")
        query.status("RUNNING", START)
        query.commit(START + MINUTE, 900)
        about: dict[str, Any] = {
            "incident.role": "alarm",
            "incident.key": f"shop{number}/failure",
            "incident.runbook_url": "https://wiki.example.com/" + "runbook/" * 20,
            "spark.history.url": "https://history.example.com/" + "app/" * 20,
            "failure.data.file": "/data/payments/" + "part/" * 50 + "1.csv",
            "failure.location": "/jobs/" + "payments/" * 20 + "main.py:7 in main",
            "spark.batch.id": 7,
        }
        query.failure(START + HOUR, "query", "ValueError: " + "no currency, " * 40, **about)
        query.status("FAILED", START + HOUR)
        app.status("FAILED", START + HOUR + 1)
    path = str(stored(story.events))
    monkeypatch.setenv("COLUMNS", "80")
    code, output, _ = called(capsys, path)
    lines = output.split("\n\n")[0].splitlines()
    assert code == 0
    assert len(lines) == 8
    assert all(len(line) <= 80 or "https://" in line or "spark-events" in line for line in lines)
    assert lines[0].startswith("Query 'book book ")
    assert " since 2026-11-18 12:06:40 (" in lines[0]
    assert lines[1].endswith("USER_CODE; rerun: unknown whether it helps)")
    assert "https://wiki.example.com/" + "runbook/" * 20 in output
    assert lines[-2].startswith(f"  next:    spark-events why {path} app-")
    assert lines[-2].endswith(" --program > find.py")
    assert lines[-1].endswith(f"spark-events report {path}  # 2 more problems now")


def test_json_has_the_same(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    path = str(stored(nightly().events))
    _, output, _ = called(capsys, path, "night*", "--incident", "nightly/failure", "--json")
    found = json.loads(output)
    assert found["problem"]["incident_key"] == "nightly/failure"
    assert found["problem"]["tags"] == {"revision": "v2", "team": "etl"}
    changed = {one["name"]: (one["before"], one["after"]) for one in found["changed"]["changes"]}
    assert changed["executor.memory"] == ("8g", "2g")
    assert found["changed"]["good"] == "app-0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "no application 'nosuch'; the source has: nightly"),
        (["--incident", "gone/failure"], "no open incident 'gone/failure'; open: nightly/failure"),
    ],
)
def test_a_wrong_name_lists_the_names(
    capsys: pytest.CaptureFixture[str], stored: Store, arguments: list[str], message: str
) -> None:
    code, _, errors = called(capsys, str(stored(nightly().events)), *arguments)
    assert (code, errors) == (1, f"spark-events: {message}\n")


def test_a_healthy_application_beside_a_failed_one(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    story = nightly()
    app = story.application("healthy", "app-9")
    app.status("RUNNING", START)
    app.status("FINISHED", START + MINUTE)
    code, output, _ = called(capsys, str(stored(story.events)), "healthy")
    assert code == 0
    assert output.startswith("Nothing is wrong with 'healthy' now. Of all applications: 1 problem now; newest event ")


def test_nothing_is_wrong(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    story = Story()
    app = story.application("batch", "app-1")
    app.status("RUNNING", START)
    app.status("FINISHED", START + MINUTE)
    code, output, _ = called(capsys, str(stored(story.events)))
    assert code == 0
    assert output.startswith("OK: nothing is wrong now; newest event ")


@pytest.mark.parametrize(("ending", "code"), [("FINISHED", 0), ("FAILED", 3)])
def test_the_exit_code_tells_whether_anything_is_wrong(
    capsys: pytest.CaptureFixture[str], stored: Store, ending: str, code: int
) -> None:
    story = Story()
    app = story.application("batch", "app-1")
    app.status("RUNNING", START)
    app.status(ending, START + MINUTE)
    assert main(["report", str(stored(story.events)), "--fail-on", "now"]) == code
    assert ("OK" in capsys.readouterr().out) == (code == 0)


def test_a_batch_that_is_only_processed_is_no_commit(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """With asynchronous progress tracking, the last commit is that of the last written entry of ``commits/``."""
    story = Story()
    app = story.application("shop", "app-1")
    app.status("RUNNING", START)
    query = app.query("clicks", "run-1")
    query.status("RUNNING", START)
    for batch in range(12):
        processed: dict[str, Any] = {"spark.batch.id": batch, "spark.batch.committed": False}
        query.event("BatchCommitEvent", START + batch * MINUTE, **processed)
    written: dict[str, Any] = {"spark.batch.id": 5, "spark.batch.committed": True}
    query.event("CommitWrittenEvent", START + 6 * MINUTE, **written)
    alarm: dict[str, Any] = {"incident.role": "alarm", "incident.key": "k", "spark.batch.id": 12}
    query.failure(START + 12 * MINUTE, "query", **alarm)
    query.status("FAILED", START + 12 * MINUTE)
    code, output, _ = called(capsys, str(stored(story.events)))
    assert code == 0
    assert "batch 5 was the last commit at " in output
    assert "batch 12 failed" in output


def test_the_sample_of_a_failure_is_no_problem(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """``send-test --sample failure`` also sends its failure to files and databases, whose reports leave it out."""
    story = Story()
    app = story.application("shop", "app-1")
    app.status("RUNNING", START)
    app.status("FINISHED", START + MINUTE)
    samples = SAMPLES["failure"]("audit", {})
    path = str(stored([*story.events, *samples]))
    assert called(capsys, path)[0] == 0
    assert main(["report", path]) == 0
    printed = capsys.readouterr().out
    assert "nothing is wrong now" in printed
    assert "spark-events-test" not in printed


def test_an_event_of_a_query_without_a_run_is_read(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """Programs can add events of a query without the id of its run."""
    story = Story()
    app = story.application("shop", "app-1")
    app.status("RUNNING", START)
    named: dict[str, Any] = {"spark.streaming.query.name": "clicks"}
    app.event("BatchCommitEvent", START + 1, **named)
    assert main(["report", str(stored(story.events))]) == 0
    assert "shop" in capsys.readouterr().out


def silent_and_overdue(story: Story, now: int) -> str:
    """The batch that hangs is the reason for the silence; its alert has the key of the overdue work."""
    app = story.application("shop", "app-1")
    app.status("RUNNING", now - 2 * HOUR)
    query = app.query("book", "run-1")
    query.status("RUNNING", now - 2 * HOUR)
    for minute in range(60):
        query.commit(now - 2 * HOUR + minute * MINUTE, 900)
    key = "shop/query=book/overdue"
    late: dict[str, Any] = {
        "spark.deadline.subject": "batch",
        "spark.deadline.rule": "batch",
        "spark.status.new": "OVERDUE",
        "incident.key": key,
        "incident.role": "alarm",
    }
    query.event("DeadlineStatusChangeEvent", now - 50 * MINUTE, **late)
    app.event("HeartbeatEvent", now - MINUTE)
    return key


def failed_alike(story: Story, now: int) -> str:
    """Queries with one cause share a card."""
    app = story.application("shop", "app-1")
    app.status("RUNNING", now - HOUR)
    for name in ("book", "clicks", "refunds"):
        query = app.query(name, f"run-{name}")
        query.status("RUNNING", now - HOUR)
        about = {"incident.role": "alarm", "incident.key": f"shop/query={name}/failure"}
        query.failure(now - MINUTE, "query", **about)
        query.status("FAILED", now - MINUTE)
    return "shop/query=refunds/failure"


def crash_loop(story: Story, now: int) -> str:
    """Each failure has recovered, but its alert is in somebody's inbox."""
    for run in range(5):
        at = now - HOUR + run * 10 * MINUTE
        app = story.application("shop", f"app-{run}")
        app.status("RUNNING", at)
        query = app.query("book", f"run-{run}")
        query.status("RUNNING", at)
        query.commit(at + MINUTE, 900)
        if run < 4:
            about = {"incident.role": "alarm", "incident.key": "shop/query=book/failure"}
            query.failure(at + 5 * MINUTE, "query", **about)
            query.status("FAILED", at + 5 * MINUTE)
            app.status("FAILED", at + 5 * MINUTE)
    query.commit(now - MINUTE, 900)
    return "shop/query=book/failure"


@pytest.mark.parametrize("tell", [silent_and_overdue, failed_alike, crash_loop])
def test_the_key_of_an_alert_finds_the_problem_that_hides_it(
    tell: Callable[[Story, int], str], capsys: pytest.CaptureFixture[str], stored: Store
) -> None:
    story = Story()
    key = tell(story, time.time_ns() // 1_000_000)
    code, output, errors = called(capsys, str(stored(story.events)), "--incident", key)
    assert (code, errors) == (0, "")
    assert "shop" in output.splitlines()[0]


def in_a_folder(events: Sequence[Event], place: Path) -> str:
    (place / "logs").mkdir()
    for name, some in (("events.jsonl", events[3:]), ("events.jsonl.20260131T100000.000000Z", events[:3])):
        (place / "logs" / name).write_bytes(encode_lines(some))
    return str(place / "logs")


def in_a_database(events: Sequence[Event], place: Path) -> str:
    url = f"sqlite:///{place}/events.db"
    reporter = DatabaseReporter(DatabaseConfig(database_url.parse(url)))
    reporter.open()
    reporter.report(list(events))
    reporter.close()
    return url


@pytest.mark.parametrize("store", [in_a_folder, in_a_database])
def test_every_source_has_the_same_card(
    store: Callable[[Sequence[Event], Path], str],
    capsys: pytest.CaptureFixture[str],
    stored: Store,
    tmp_path: Path,
) -> None:
    events = nightly().events
    answers = []
    for source in (str(stored(events)), store(events, tmp_path)):
        code, output, errors = called(capsys, source, "--json")
        assert (code, errors) == (0, "")
        answer = json.loads(output)
        problem = answer["problem"]
        assert problem.pop("command").startswith(f"spark-events why {source} nightly")
        assert source in problem.pop("text")
        # The time passes between the two commands.
        for name in ("duration_ms", "title"):
            problem.pop(name)
        answers.append((problem, answer["changed"]))
    assert answers[0] == answers[1]


def test_an_event_log_has_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    """The log of a real application whose Python function raised; the program's exit code is not in the log."""
    path = Path(__file__).parents[1] / "unit" / "records" / "fixtures" / "batch_udf-4.3.jsonl"
    code, output, errors = called(capsys, str(path))
    assert (code, errors) == (0, "")
    text = " ".join(output.split())
    assert text.startswith("Application 'mat-batch_udf' has failed since 2026-11-21 12:08:12 (")
    assert "ended after its last job failed: ValueError: bad batch udf value 0 (mat.py:72)" in text
    assert "line: /home/ada/jobs/mat.py:72 in bad" in text
    assert "application 'mat-batch_udf' local-1795262884130 has ended; driver on 127.0.0.1" in text
    assert f"next: spark-events report {path} --app mat-batch_udf" in text
