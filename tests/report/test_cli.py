"""Tests of ``spark-events report``, using the arguments and output of the command line."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from report.stories import MINUTE, START, Story, busy_day
from spark_events import Event
from spark_events.cli import main
from spark_events.cli import report as command
from spark_events.errors import SparkEventsError
from spark_events.event import encode_lines
from spark_events.report.model import EventReport
from spark_events.report.page import page_of
from spark_events.report.serve import ReportServer
from spark_events.reporters.database.config import DatabaseConfig, database_url
from spark_events.reporters.database.reporter import DatabaseReporter

FIXTURES = Path(__file__).parents[1] / "unit" / "bridge" / "fixtures"
Store = Callable[[Sequence[Event]], Path]


class Call:
    """Exit code, standard output and standard error of a call."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        self.code = main(["report", *map(str, arguments)])
        self.output, self.errors = capsys.readouterr()

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.output)
        return report


def test_the_terminal_output_has_all_parts(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """The terminal output begins with the findings, followed by numbers, details and failures."""
    call = Call(capsys, stored(busy_day().events), "--sla", "60s")
    assert call.code == 0
    lines = call.output.splitlines()
    assert "UTC (the newest event), 1,737 events" in lines[0]
    assert lines[2].startswith("! Application 'nightly-report': its last run has been FAILED")
    for part in ("clickstream", "90.16 %", "slow 2026-11-18", "overdue 2026-11-19", "idle source 1", "17,400 calls"):
        assert part in call.output
    slow = lines[lines.index("Why it was slow (6 stages)") + 1 :]
    assert slow[0].endswith(", 22 s lost")
    assert slow[1] == "    nightly-report: stage 22 [csv at etl.py:9] took 1 min"
    assert [re.sub(r".*, ", "", line) for line in slow[:12:2]] == [f"{n} s lost" for n in (22, 21, 12, 11, 2, 1)]
    overview = next(line for line in lines if line.startswith("nightly-report"))
    assert overview.split()[-3:] == ["15.00", "4.50", "1.50"]
    assert "15 × (5 application, 5 job, 5 query), USER, at /jobs/payments.py:16 in book;" in call.output


def test_sources_are_merged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Events that occur in several sources (files, a pattern, a folder, a database) are counted once."""
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
    some = Call(capsys, str(tmp_path / "logs*" / "*Z.gz"), "--json").report
    assert some["events"] == 700


def test_event_logs_are_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    """An event log of Spark makes the same report as the events of its replay."""
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
        (["--sla", "soon"], "--sla: given 'soon', expected a whole number above 0"),
        (["--fail-on-sla"], "--fail-on-sla needs --sla TIME"),
        (["--since", "yesterday"], "--since: given 'yesterday', expected a time such as"),
        (["--until", "2026-99-01"], "--until: given '2026-99-01', expected a time such as"),
        (["--since", "2026-02-01", "--until", "2026-01-01"], "--since: given 2026-02-01, which is after the end"),
        (["--port", "80"], "--port: expected 0 to 65535, together with --serve"),
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


def test_unusable_sources_are_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each unusable source causes one message with the path and the reason."""
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "lines.jsonl").write_text('{"event_id": "1"}\n{"event_id"')
    (tmp_path / "log").write_bytes((FIXTURES / "batch_udf-4.3.zstd").read_bytes()[:60])
    for source, message in (
        ("gone.jsonl", "gone.jsonl: no such file or folder"),
        ("*.parquet", "*.parquet: no file matches this pattern"),
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
    assert call.errors.startswith("spark-events: SOURCE: expected paths, patterns and sqlite:///")
    malformed = Call(capsys, "postgresql://a:b@c:port/d")
    assert malformed.errors.startswith("spark-events: SOURCE: url: not a valid URL")
    (tmp_path / "none.db").write_bytes(b"SQLite format 3\0" + bytes(84))
    assert "cannot read" in Call(capsys, tmp_path / "none.db").errors


def test_damaged_files_are_read_as_far_as_possible(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Invalid lines are skipped and counted. A truncated compressed file is read up to its end."""
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
    assert any("cannot be decompressed" in note for note in call.report["notes"])


def test_fail_on_sla(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """With --fail-on-sla, the exit code is 1 if a commit exceeds the SLA, otherwise 0. The report is always printed."""
    path = stored(busy_day().events)
    for sla, code in (("60s", 1), ("1h", 0)):
        call = Call(capsys, path, "--sla", sla, "--fail-on-sla")
        assert (call.code, "clickstream" in call.output) == (code, True)


def test_times_have_zones(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """A time without an offset is read as UTC."""
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
    """The HTML file includes its data, and no text of an event can end the page's script."""
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
    """The server computes the report again and answers only requests for its own host name.

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
    return command._report(parser.parse_args(arguments), None, True, lambda text, fraction: None)


def test_a_period_relative_to_now(capsys: pytest.CaptureFixture[str], stored: Store) -> None:
    """A duration for --since or --until is subtracted from the current time."""
    story = Story()
    story.application("a", "app-1").status("RUNNING", START)
    story.application("a", "app-1").status("FINISHED", START + MINUTE)
    assert "no event in this period" in Call(capsys, stored(story.events), "--until", "36500d").errors
