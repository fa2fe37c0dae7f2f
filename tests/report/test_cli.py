"""Tests of ``spark-events report``, using the arguments and output of the command line."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from report.stories import HOUR, MINUTE, START, Story, busy_day
from spark_events import Event
from spark_events.cli import main
from spark_events.cli import report as command
from spark_events.errors import SparkEventsError
from spark_events.event import encode_lines
from spark_events.report.page import page_of
from spark_events.report.report_model import EventReport
from spark_events.report.serve import ReportServer
from spark_events.report.sources import Reading
from spark_events.report.table import EventTable
from spark_events.reporters.database.database_config import DatabaseConfig, database_url
from spark_events.reporters.database.database_reporter import DatabaseReporter
from spark_events.translate.summaries.summary_config import SummaryConfig
from spark_events.translate.translation_config import TranslateConfig
from spark_events.watch.json_folder import RECORD

FIXTURES = Path(__file__).parents[1] / "unit" / "records" / "fixtures"
Store = Callable[[Sequence[Event]], Path]


class Call:
    """Exit code, standard output and standard error of one call."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        self.code = main(["report", *map(str, arguments)])
        self.output, self.errors = capsys.readouterr()

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.output)
        return report


def test_the_terminal_output_has_all_parts(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """The output in the terminal begins with the findings, followed by numbers, details and failures."""
    call = Call(capsys, stored(busy_day().events), "--sla", "60s")
    assert call.code == 0
    lines = call.output.splitlines()
    assert "UTC (the newest event), 1,737 events" in lines[0]
    assert re.fullmatch(r"3 problems and 1 warning now; newest event .* ago, of 2 applications\.", lines[2])
    assert any(line.startswith("! Application 'nightly-report' has failed since 2026-11-19 01:16:40") for line in lines)
    for part in ("clickstream", "90.16 %", "slow 2026-11-18", "overdue 2026-11-19", "idle source 1", "17,400 calls"):
        assert part in call.output
    slow = lines[lines.index("Why it was slow (6 stages)") + 1 :]
    assert slow[0].endswith(", 22 s lost")
    assert slow[1] == "    nightly-report: stage 22 [csv at etl.py:9] took 1 min"
    assert [re.sub(r".*, ", "", line) for line in slow[:12:2]] == [f"{n} s lost" for n in (22, 21, 12, 11, 2, 1)]
    overview = next(line for line in lines if line.startswith("nightly-report"))
    assert overview.split()[-3:] == ["15.00", "4.50", "1.50"]
    assert "4 × (4 application, 4 job, 4 query), USER, USER_CODE, at /jobs/payments.py:16 in book;" in call.output


def test_sources_are_merged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Events that occur in several sources (files, a folder, a database) are counted once."""
    events = busy_day().events
    folder = tmp_path / "logs [1]"
    folder.mkdir()
    current = folder / "events.jsonl"
    current.write_bytes(encode_lines(events[1_200:]))
    (folder / "events.jsonl.20260131T100000.000000Z").write_bytes(encode_lines(events[:600]))
    older = folder / "events.jsonl.20260131T110000.000000Z.gz"
    older.write_bytes(gzip.compress(encode_lines(events[500:1_200])))
    database = tmp_path / "events.db"
    reporter = DatabaseReporter(DatabaseConfig(database_url.parse(f"sqlite:///{database}")))
    reporter.open()
    reporter.report(events)
    reporter.close()
    whole = Call(capsys, f"sqlite:///{database}", "--json").report
    assert (whole["events"], whole["duplicates"]) == (len(events), 0)
    for sources in ([current], [folder], [database, folder], [current, older, f"sqlite:///{database}"]):
        found = Call(capsys, *sources, "--json").report
        assert found["events"] == len(events), sources
        for part in ("applications", "queries", "failures", "findings"):
            assert found[part] == whole[part], (sources, part)


def test_event_logs_are_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    """The report on a Spark event log equals the report on the events of the log's replay."""
    call = Call(capsys, FIXTURES / "foreachbatch-4.3.jsonl", "--json")
    assert call.code == 0
    assert call.report["sources"][0]["kind"] == "event log"
    (query,) = call.report["queries"]
    assert query["commits"]["batches"] > 0
    several = Call(capsys, FIXTURES, "--json")
    assert {one["kind"] for one in several.report["sources"]} == {"event log"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fail-on-sla"], "--fail-on-sla needs --sla TIME"),
        (["--since", "yesterday"], "--since: given 'yesterday', expected a time such as"),
        (["--until", "2026-99-01"], "--until: given '2026-99-01', expected a time such as"),
        (["--since", "2026-02-01", "--until", "2026-01-01"], "--since: given 2026-02-01, which is after the end"),
    ],
)
def test_invalid_options_are_rejected(
    capsys: pytest.CaptureFixture[str], stored: Store, arguments: list[str], message: str
) -> None:
    """For an invalid option, the command exits with 2 and one message with the value and the allowed values."""
    call = Call(capsys, stored(busy_day().events[:9]), *arguments)
    assert call.code == 2
    assert call.errors.startswith(f"spark-events: {message}")
    assert len(call.errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [("--sla", "soon", "a whole number above 0"), ("--port", "65536", "a whole number from 0 to 65535")],
)
def test_invalid_values_are_rejected(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str, value: str, expected: str
) -> None:
    """An invalid value of an option is rejected with the option, the value and the allowed values."""
    with pytest.raises(SystemExit) as exited:
        main(["report", str(tmp_path), option, value])
    assert exited.value.code == 2
    assert f"argument {option}: given {value!r}, expected {expected}" in capsys.readouterr().err


def test_unusable_sources_are_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each unusable source causes one message with the path and the reason."""
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "lines.jsonl").write_text('{"event_id": "1"}\n{"event_id"')
    (tmp_path / "log").write_bytes((FIXTURES / "batch_udf-4.3.zstd").read_bytes()[:60])
    for source, message in (
        ("gone.jsonl", "gone.jsonl: no such file or folder"),
        ("empty.jsonl", "empty.jsonl: the source is empty and has no event yet"),
        ("other.csv", "other.csv: unknown format; expected"),
        ("folder", "folder: this folder contains no file of events, event log or database"),
        ("lines.jsonl", "lines.jsonl: no event; "),
        ("log", "log: unknown format"),
    ):
        call = Call(capsys, tmp_path / source)
        assert call.code == 1, source
        assert message in call.errors, call.errors
        assert len(call.errors.splitlines()) == 1
    call = Call(capsys, "ftp://somewhere/x")
    assert call.errors.startswith("spark-events: SOURCE: expected a path, sqlite:///")
    malformed = Call(capsys, "postgresql://a:b@c:port/d")
    assert malformed.errors.startswith("spark-events: SOURCE: url: not a valid URL")
    (tmp_path / "none.db").write_bytes(b"SQLite format 3\0" + bytes(84))
    assert "cannot read" in Call(capsys, tmp_path / "none.db").errors


def slow_log(folder: Path, *, slowest: int = 30_000) -> Path:
    """Write an event log: one executor for an hour, and a stage with ten tasks of 6 s and one slower task."""
    at = START
    stage = {"Stage ID": 0, "Stage Attempt ID": 0, "Stage Name": "csv at etl.py:9", "Number of Tasks": 11}
    stage |= {"Submission Time": at}
    executor = {"Executor ID": "1", "Executor Info": {"Host": "h", "Total Cores": 4}}
    lines: list[dict[str, Any]] = [
        {"Event": "SparkListenerApplicationStart", "App Name": "etl", "App ID": "app-1", "Timestamp": at, "User": "u"},
        {"Event": "SparkListenerExecutorAdded", "Timestamp": at, **executor},
        {"Event": "SparkListenerStageSubmitted", "Stage Info": stage, "Properties": {}},
    ]
    for index in range(11):
        times = {"Launch Time": at, "Finish Time": at + (slowest if index == 10 else 6_000)}
        task = {"Task ID": index, "Index": index, "Executor ID": "1", **times, "Failed": False, "Killed": False}
        end = {"Stage ID": 0, "Stage Attempt ID": 0, "Task End Reason": {"Reason": "Success"}, "Task Info": task}
        lines.append({"Event": "SparkListenerTaskEnd", **end})
    lines += [
        {"Event": "SparkListenerStageCompleted", "Stage Info": stage | {"Completion Time": at + slowest}},
        {"Event": "SparkListenerApplicationEnd", "Timestamp": at + 3_600_000},
    ]
    path = folder / "app-1"
    path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in lines))
    return path


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--html",)])
def test_no_part_of_the_report_has_a_call_site_of_py4j(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    log, page = slow_log(tmp_path), tmp_path / "page.html"
    log.write_text(log.read_text().replace("csv at etl.py:9", "sql at NativeMethodAccessorImpl.java:0"))
    call = Call(capsys, log, *arguments, *((page,) if "--html" in arguments else ()))
    text = page.read_text() if "--html" in arguments else call.output
    assert "stage 0 [sql]" in text
    assert "MethodAccessor" not in text


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_rolling_logs_are_found_at_any_depth(capsys: pytest.CaptureFixture[str], tmp_path: Path, depth: int) -> None:
    """The parts of a rolling log form one application, however deep the log's folder is. A log is read once."""
    lines = slow_log(tmp_path).read_text().splitlines(keepends=True)
    (tmp_path / "app-1").unlink()
    folder = tmp_path.joinpath(*"abc"[:depth], "eventlog_v2_app-1")
    folder.mkdir(parents=True)
    (folder / "events_1_app-1").write_text("".join(lines[:5]))
    (folder / "events_2_app-1").write_text("".join(lines[5:]))
    (folder / "appstatus_app-1").touch()
    report = Call(capsys, tmp_path, folder, "--json").report
    assert report["sources"] == [{"source": str(folder), "kind": "event log", "events": report["events"]}]
    assert [one["id"] for one in report["applications"]] == ["app-1"]
    assert [one["outcome"] for one in report["applications"]] == ["ENDED"]


def test_files_with_names_of_rolling_logs_are_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """JSON lines of events are read, even if their file is named like a part of a rolling log."""
    (tmp_path / "2026").mkdir()
    (tmp_path / "2026" / "events_1_clicks.jsonl").write_bytes(encode_lines(busy_day().events[:9]))
    assert Call(capsys, tmp_path, "--json").report["events"] == 9


@pytest.mark.parametrize("name", ["eventlog-2022-01-18--19-00-zip", "local-1.lzf", "events_1_app-1"])
def test_a_file_named_like_a_log_is_not_passed_over(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    """A file of another format is noted if it has the name of a log; other files are not."""
    shutil.copy(FIXTURES / "batch_udf-4.3.jsonl", tmp_path)
    for file in (tmp_path / "a" / name, tmp_path / "a" / "notes.txt"):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"ZV" if name.endswith("lzf") else b"another format")
    notes = Call(capsys, tmp_path, "--json").report["notes"]
    assert notes == [f"{tmp_path}/a/{name}: not a Spark event log; skipped"]


@pytest.mark.parametrize("later", [0, 1, 5])
def test_a_failure_that_the_program_survived_is_no_finding(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, later: int
) -> None:
    """A caught failure, and work that started later and succeeded; without this work, the outcome is unknown."""
    exception = {"Message": "java.lang.Exception: optional check failed", "Stack Trace": []}
    results = [{"Result": "JobFailed", "Exception": exception}, *[{"Result": "JobSucceeded"}] * later]
    about = {"App Name": "shop", "App ID": "local-1", "Timestamp": START, "User": "u"}
    lines: list[dict[str, Any]] = [{"Event": "SparkListenerApplicationStart", **about}]
    for job, result in enumerate(results):
        begun = {"Job ID": job, "Submission Time": START + 1_000 * job, "Stage IDs": [], "Properties": {}}
        ended = {"Job ID": job, "Completion Time": START + 1_000 * job + 500, "Job Result": result}
        lines += [{"Event": "SparkListenerJobStart", **begun}, {"Event": "SparkListenerJobEnd", **ended}]
    lines.append({"Event": "SparkListenerApplicationEnd", "Timestamp": START + 10_000})
    path = tmp_path / "local-1"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert bool(Call(capsys, path, "--json").report["findings"]) is not bool(later)


def test_unreadable_files_of_a_folder_are_noted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unreadable or foreign file in a folder causes a note, and an error only if it is given explicitly."""
    zstd = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    monkeypatch.setitem(sys.modules, zstd, None)
    (tmp_path / "a.zstd").write_bytes((FIXTURES / "batch_udf-4.3.zstd").read_bytes())
    with contextlib.closing(sqlite3.connect(tmp_path / "b.db")) as connection:
        connection.execute("CREATE TABLE other (name TEXT)")
    (tmp_path / "c.jsonl").write_bytes(encode_lines(busy_day().events[:9]))
    (tmp_path / "d.db").write_bytes(b"SQLite format 3\0" + bytes(84))
    call = Call(capsys, tmp_path, "--json")
    assert call.report["events"] == 9
    zstd_note, b_note, d_note = (note for note in call.report["notes"] if note.endswith("; skipped"))
    assert zstd_note.startswith(f"{tmp_path / 'a.zstd'}: compressed with zstd, whose library is not installed")
    assert b_note == f"cannot read {tmp_path / 'b.db'}: no such table: spark_events; skipped"
    assert d_note.startswith(f"cannot read {tmp_path / 'd.db'}: ")
    for name in ("a.zstd", "b.db", "d.db"):
        call = Call(capsys, tmp_path / name)
        assert (call.code, call.output, len(call.errors.splitlines())) == (1, "", 1)
        assert str(tmp_path / name) in call.errors
    (tmp_path / "c.jsonl").unlink()
    call = Call(capsys, tmp_path)
    assert call.code == 1
    assert "this folder contains no file of events, event log or database; " in call.errors
    assert str(tmp_path / "a.zstd") in call.errors


def test_notes_on_damaged_lines_are_limited(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A report lists the first 20 damaged parts of each log and states the total."""
    for name in ("app-1", "app-2"):
        log = slow_log(tmp_path)
        log.write_text(log.read_text() + "{no json}\n" * 5_000)
        log.rename(tmp_path / f"{name}.log")
    notes = Call(capsys, tmp_path, "--json").report["notes"]
    for name in ("app-1", "app-2"):
        found = [note for note in notes if f"{name}.log" in note]
        assert sum("line skipped" in note for note in found) == 20
        assert f"{tmp_path / name}.log: skipped 5,000 damaged lines or blocks" in found


def test_names_do_not_decide_the_format(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """A file of events is not an event log, even if its application is named like a field of event logs."""
    story = Story()
    story.application("Event", "app-1").status("RUNNING", START)
    story.application("event_id", "app-2").status("RUNNING", START)
    path = stored(story.events)
    assert '"Event"' in path.read_text()
    report = Call(capsys, path, "--json").report
    assert report["sources"] == [{"source": str(path), "kind": "events", "events": 2}]


def test_reordered_lines_of_event_logs_are_recognised(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A log is recognised if another program has formatted its lines, or sorted their keys."""
    log = slow_log(tmp_path)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for sort in (False, True):
        log.write_text("".join(json.dumps(line, sort_keys=sort) + "\n" for line in lines))
        assert Call(capsys, log, "--json").report["sources"][0]["kind"] == "event log"


def test_reported_losses_next_to_a_file_are_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """For one file, the report also reads the losses that `watch` has recorded for the file's applications."""
    story, others = Story(), Story()
    story.application("a", "app-1").status("RUNNING", START)
    path = tmp_path / "events.jsonl"
    path.write_bytes(encode_lines(story.events))
    for name in ("a", "other"):
        others.application(name, "app-1" if name == "a" else "app-9").status("LOST", START + MINUTE)
    recorded = [msgspec.structs.replace(event, event_id=f"lost-{event.sequence}") for event in others.events]
    (tmp_path / RECORD).write_bytes(encode_lines(recorded) + b"no event\n")
    report = Call(capsys, path, "--json").report
    assert [(one["name"], one["outcome"]) for one in report["applications"]] == [("a", "LOST")]
    assert report["events"] == 2
    assert len(Call(capsys, tmp_path, "--json").report["applications"]) == 2


def test_names_that_are_not_utf8_are_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A file name that is not UTF-8 appears with replaced characters, in every format."""
    name = tmp_path / os.fsdecode(b"ev\xff.jsonl")
    name.write_bytes(encode_lines(busy_day().events[:9]) + b"no event\n")
    report = Call(capsys, name, "--json").report
    assert [one["source"] for one in report["sources"]] == [str(tmp_path / "ev?.jsonl")]
    assert Call(capsys, name, "--html", tmp_path / "out.html").code == 0
    assert Call(capsys, name).code == 0


def test_an_unusable_temporary_folder_is_named(
    capsys: pytest.CaptureFixture[str], stored: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no folder for temporary files is usable, one message says how to choose another folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    call = Call(capsys, stored(busy_day().events[:9]))
    assert (call.code, call.output) == (1, "")
    assert call.errors == (
        "spark-events: no folder for temporary files is usable (No such file or directory);"
        " set TMPDIR to another folder\n"
    )


def test_a_full_temporary_folder_is_named(tmp_path: Path) -> None:
    """If the disk with the temporary files is full, an error names their folder; the log is not skipped."""
    slow_log(tmp_path)
    with EventTable() as table:
        # Every write to this device fails with "no space left".
        (table.folder / "lines.jsonl").symlink_to("/dev/full")
        with pytest.raises(SparkEventsError) as raised:
            Reading(table).read(str(tmp_path))
    assert str(raised.value).startswith(f"cannot compute the report in {tempfile.gettempdir()}; set TMPDIR to use")
    assert "No space left" in str(raised.value)


def test_settings_apply_to_event_logs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The price and the thresholds of --conf apply to event logs."""
    log, conf = slow_log(tmp_path), tmp_path / "spark-defaults.conf"
    plain = Call(capsys, log, "--json").report
    assert [one["problems"][0][0] for one in plain["slow_stages"]] == ["skew"]
    assert plain["applications"][0]["cost"] is None
    conf.write_text("spark.events.summary.core-hour-price 0.5\nspark.events.summary.skew.ratio 6\n")
    given = Call(capsys, log, "--json", "--conf", conf).report
    assert not any(problem[0] == "skew" for one in given["slow_stages"] for problem in one["problems"])
    assert given["applications"][0]["cost"] == 2.0


def test_the_interval_of_summaries_applies_to_event_logs(tmp_path: Path) -> None:
    """With the interval in --conf, an event log yields summaries of the running application."""
    config = TranslateConfig(summary=SummaryConfig(interval=1.0))
    with EventTable() as table:
        reading = Reading(table, translation=config)
        reading.read(str(slow_log(tmp_path)))
        names = table.run("SELECT name FROM event")
    assert names.count(("ApplicationSummaryEvent",)) == 2
    assert reading.notes == []


@pytest.mark.parametrize("name", ["foreachbatch-4.3.jsonl", "batch_udf-4.3.zstd", "batch_udf-4.3.lz4"])
def test_progress_of_event_logs_is_the_fraction_of_bytes(tmp_path: Path, name: str) -> None:
    """While an event log is read, progress advances in steps of one percent of the file size, compressed or not."""
    shown: list[tuple[str, float | None]] = []
    with EventTable() as table:
        reading = Reading(table, progress=lambda text, part: shown.append((text, part)))
        reading.read(str(FIXTURES / name))
    assert reading.summaries[0].events
    assert reading.notes == []
    parts = [part for text, part in shown if part is not None]
    assert parts == sorted(set(parts))
    assert 0 < parts[0] <= parts[-1] <= 1


def test_failures_show_their_class(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """Failures contain their class, and whether a retry is useful; an unknown end does not hide what is known."""
    story = Story()
    more: dict[str, Any] = {"failure.class": "DATA_ERROR", "failure.retry_useful": False}
    story.application("etl", "app-1").failure(START, **more)
    story.application("etl", "app-1").failure(START + 2, **{"failure.class": "UNKNOWN"})
    story.application("etl", "app-1").failure(START + 1, cause="OSError: no")
    path = stored(story.events)
    assert "2 × (2 job), USER, DATA_ERROR, a retry does not help, at" in Call(capsys, path).output
    groups = Call(capsys, path, "--json").report["failures"]
    found = {group["cause"]: (group["failure_class"], group["retry_useful"]) for group in groups}
    assert found == {"ValueError: no currency": ("DATA_ERROR", False), "OSError: no": ("UNKNOWN", None)}


@pytest.mark.parametrize(("commits", "listed"), [(200, "--json or --html"), (201, "--json")])
def test_the_hint_for_more_slow_commits_names_what_lists_them(
    capsys: pytest.CaptureFixture[str], stored: Store, commits: int, listed: str
) -> None:
    """The hint mentions the page only if the page lists all slow commits."""
    story = Story()
    query = story.application("a", "app-1").query("q", "run-1")
    for number in range(commits):
        query.commit(START + number, 9_000)
    output = Call(capsys, stored(story.events), "--sla", "1s").output
    assert f"  … {commits - 20} more slow commits: {listed}\n" in output


def test_more_enrichments_than_lines_are_counted(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """The terminal lists 20 enrichment functions of a query and the number of the others."""
    story = Story()
    query = story.application("a", "app-1").query("q", "run-1")
    query.commit(START, 10)
    for number in range(23):
        named: dict[str, Any] = {"spark.enrich.function": f"shop.price_{number:02}"}
        query.event("EnrichmentEvent", START + number, **named)
    output = Call(capsys, stored(story.events)).output
    assert output.count("  enrichment shop.price_") == 20
    assert "  … 3 more: --json or --html\n" in output


def test_one_damaged_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """For one damaged line, the note uses the singular."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(encode_lines(busy_day().events[:3]) + b'{"name": "x"}\n')
    assert f"{path}: skipped 1 line that is not an event" in Call(capsys, path, "--json").report["notes"]


def test_damaged_files_are_read_as_far_as_possible(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Invalid lines are skipped and counted. A truncated compressed file is read up to the truncation."""
    lines = encode_lines(busy_day().events)
    plain = tmp_path / "events.jsonl"
    plain.write_bytes(b'{"name": "x"}\nno json\n' + lines[: len(lines) - 50])
    call = Call(capsys, plain, "--json")
    assert (call.report["events"], call.report["damaged_lines"]) == (1_736, 3)
    assert f"{plain}: skipped 3 lines that are not events" in call.report["notes"]
    packed = tmp_path / "events.jsonl.gz"
    packed.write_bytes(gzip.compress(lines)[:-4_000])
    call = Call(capsys, packed, "--json")
    assert 100 < call.report["events"] < 1_722
    assert any("ends in the middle of a compressed block" in note for note in call.report["notes"])


def test_fail_on_sla(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """With --fail-on-sla, the exit code is 1 if a commit exceeds the SLA. The report is printed in any case."""
    path = stored(busy_day().events)
    for sla, code in (("60s", 1), ("1h", 0)):
        call = Call(capsys, path, "--sla", sla, "--fail-on-sla")
        assert (call.code, "clickstream" in call.output) == (code, True)


def test_times_have_zones(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """A time without an offset is interpreted as UTC."""
    path = stored(busy_day().events)
    periods = []
    for since in ("2026-11-18T12:00", "2026-11-18T12:00Z", "2026-11-18T14:00+02:00"):
        periods.append(Call(capsys, path, "--since", since, "--json").report["since"])
    assert len(set(periods)) == 1


def test_a_missing_extra_is_named(stored: Store) -> None:
    """Without DuckDB, the message contains the command that installs DuckDB."""
    program = (
        "import sys; sys.modules['duckdb'] = None; from spark_events.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    run = [sys.executable, "-c", program, "report", str(stored(busy_day().events[:9]))]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "spark-events: duckdb is not installed; run: pip install 'spark-events[report]'\n"


def test_html_is_written_whole(capsys: pytest.CaptureFixture[str], stored: Store, tmp_path: Path) -> None:
    """The HTML file contains its data, and no string in an event can terminate the script of the page."""
    story = Story()
    evil = "</script><img src=x onerror=alert(1)><!--"
    story.application(evil, "app-1").failure(START, "job", evil)
    page = tmp_path / "out.html"
    call = Call(capsys, stored(story.events), "--html", page)
    assert (call.code, call.output) == (0, "")
    text = page.read_text(encoding="utf-8")
    assert "<img" not in text
    assert text.count("</script>") == 3
    assert list(tmp_path.glob(".out*")) == []
    call = Call(capsys, stored(story.events), "--html", tmp_path / "gone" / "out.html")
    assert call.code == 1
    assert call.errors.startswith("spark-events: cannot write")


def test_html_keeps_links_and_permissions(capsys: pytest.CaptureFixture[str], stored: Store, tmp_path: Path) -> None:
    """The page overwrites the target of a link, keeps the target's permissions, and otherwise follows the umask."""
    path, page, link = stored(busy_day().events[:9]), tmp_path / "page.html", tmp_path / "link.html"
    page.touch(mode=0o600)
    link.symlink_to(page.name)
    assert Call(capsys, path, "--html", link).code == 0
    assert link.is_symlink()
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    new = tmp_path / "new.html"
    before = os.umask(0o027)
    try:
        assert Call(capsys, path, "--html", new).code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(new.stat().st_mode) == 0o640
    dangling = tmp_path / "dangling.html"
    dangling.symlink_to("target.html")
    assert Call(capsys, path, "--html", dangling).code == 0
    assert (tmp_path / "target.html").is_file()
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        *("dangling.html", "events.jsonl", "link.html", "new.html", "page.html", "target.html")
    ]


@pytest.mark.parametrize("folder", [".", "/", ""])
def test_html_rejects_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str) -> None:
    """A folder as the target of --html is rejected before the command reads any source."""
    call = Call(capsys, tmp_path / "gone.jsonl", "--html", folder)
    assert call.code == 2
    assert call.errors == f"spark-events: --html: given '{Path(folder)}', which is a folder; give the name of a file\n"


def test_html_is_written_to_pipes(stored: Store, tmp_path: Path) -> None:
    """The page can be written to standard output. A reader that stops early does not cause an error."""
    program = "import sys; from spark_events.cli import main; sys.exit(main(sys.argv[1:]))"
    # Through a link, because a defect could replace the system's own device.
    out = tmp_path / "stdout"
    out.symlink_to("/dev/stdout")
    run = [sys.executable, "-c", program, "report", str(stored(busy_day().events)), "--html", str(out)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("<!doctype html>")
    assert done.stdout.rstrip().endswith("</html>")
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stopped:
        assert stopped.stdout is not None
        assert stopped.stderr is not None
        stopped.stdout.close()
        errors = stopped.stderr.read()
    assert (stopped.returncode, errors) == (0, "")


def serving(compute: Callable[[], EventReport]) -> ReportServer:
    server = ReportServer(compute, 0, clock=lambda: 0.0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def fetch(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_server_computes_again(stored: Store) -> None:
    """The server computes the report for each request, and answers only requests for its own host name.

    If a source cannot be read, the answer is 503 with the reason.
    """
    times: list[int] = []
    story = Story()
    story.application("a", "app-1").status("RUNNING", START)
    path = stored(story.events)
    parser_arguments = ["report", str(path), "--serve"]
    report = _computed(parser_arguments)

    def compute() -> EventReport:
        times.append(1)
        if len(times) > 1:
            raise SparkEventsError("the disk is gone")
        return report

    server = serving(compute)
    try:
        status, page = fetch(server.url)
        assert (status, page) == (200, page_of(report, 10))
        assert "connect-src 'self'" in page
        status, data = fetch(f"{server.url}data.json")
        assert (status, json.loads(data)["events"], len(times)) == (200, 1, 1)
        assert fetch(f"{server.url}other")[0] == 404
        assert fetch(server.url, Host="evil.example:4041")[0] == 403
        server._valid_until = -1.0
        assert fetch(server.url) == (503, "the disk is gone")
    finally:
        server.shutdown()
        server.server_close()


def _computed(arguments: list[str]) -> EventReport:
    """Return the report that the command computes for --serve."""
    import argparse

    parser = argparse.ArgumentParser()
    command.add_to(parser.add_subparsers())
    return command._report(parser.parse_args(arguments), TranslateConfig(), draw=True)


def test_a_period_relative_to_now(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """A duration for --since or --until is subtracted from the current time."""
    story = Story()
    story.application("a", "app-1").status("RUNNING", START)
    story.application("a", "app-1").status("FINISHED", START + MINUTE)
    assert "no event in this period" in Call(capsys, stored(story.events), "--until", "36500d").errors


@pytest.mark.parametrize("duration", ["30min", "30m", "1800s", "1 h"])
def test_durations_have_the_units_of_settings(capsys: pytest.CaptureFixture[str], stored: Store, duration: str) -> None:
    now = time.time_ns() // 1_000_000
    story = Story()
    story.application("a", "app-1").failure(now - 2 * HOUR)
    story.application("a", "app-1").failure(now)
    assert Call(capsys, stored(story.events), "--since", duration, "--json").report["failure_count"] == 1


def test_the_terminal_limits_lists_of_applications(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """The terminal shows at most 200 findings, applications and details of applications, and counts the others."""
    story = Story()
    for number in range(203):
        app = story.application(f"app-{number:03}", f"id-{number}")
        app.query(f"q-{number:03}", "run-1").status("RUNNING", START)
        app.status("FAILED", START + MINUTE)
    story.application("z", "z").status("FINISHED", START + HOUR)
    call = Call(capsys, stored(story.events))
    lines = call.output.splitlines()
    assert sum(line.startswith("! Application ") for line in lines) == 20
    assert "… 183 more problems: --json or --html" in lines
    assert lines.count("… 4 more: --json or --html") == 1
    assert lines.count("… 3 more: --json or --html") == 1
    assert sum(line.startswith("Application 'app-") for line in lines) == 200
    assert sum(line.startswith("Query 'q-") for line in lines) == 0
    assert "… details of 3 more applications and queries: --json or --html" in lines


def test_the_server_shows_progress_only_while_it_computes(
    capsys: pytest.CaptureFixture[str], stored: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal, the progress of --serve disappears when the report is computed."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, hide_cursor, show_cursor = Terminal(), "\x1b[?25l", "\x1b[?25h"

    def serve(open_server: Callable[[], ReportServer], port: int, announce: Callable[[str], None]) -> None:
        assert terminal.getvalue() == ""
        with open_server() as server:
            assert server.report().events == 9
        text = terminal.getvalue()
        assert 0 <= text.find(hide_cursor) < text.find(show_cursor)

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("spark_events.report.serve.serve", serve)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert Call(capsys, stored(busy_day().events[:9]), "--serve", "--port", "0").code == 0
    assert show_cursor in terminal.getvalue()


@pytest.mark.parametrize("arguments", [[], ["--fleet"]], ids=["report", "fleet"])
@pytest.mark.parametrize("columns", [None, "80"])
def test_a_pipe_has_names_of_usual_length(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    columns: str | None,
) -> None:
    """Without ``COLUMNS``, sentences are whole, and names are cut as in a terminal of 120 columns."""
    story = Story()
    now = time.time_ns() // 1_000_000
    app = story.application("payments " * 30, "app-1")
    app.status("RUNNING", now - HOUR, **{"spark.tag.team": "team " * 60})
    app.failure(now - MINUTE, "application", "ValueError: " + "no currency, " * 20)
    app.status("FAILED", now - MINUTE)
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    (tmp_path / "events.jsonl").write_bytes(encode_lines(story.events))
    monkeypatch.chdir(tmp_path)
    assert main(["report", "events.jsonl", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if "payments" in line and "FAILED" in line and "…" in line]
    assert rows
    assert max(map(len, rows)) <= 120
    if columns is not None:
        # A command of a card is copied, so it stays whole.
        assert max(len(line) for line in lines if not line.startswith("  next:")) <= 80
    elif not arguments:
        assert any("no currency, " * 15 in line for line in lines)
