"""Tests of the overview of a fleet: Parquet files, databases and JSON lines give the same numbers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from missing import need
from report.stories import HOUR, Story, add_summary
from storages import Bucket, s3_server

from reporters.database.databases import Database
from spark_events import Event
from spark_events.cli import main
from spark_events.config import Secret
from spark_events.event import encode_lines
from spark_events.reporters.database.database_config import DatabaseConfig, database_url
from spark_events.reporters.database.database_reporter import DatabaseReporter
from spark_events.reporters.database.event_rows import row_of

DAY = 24 * HOUR
UNTIL = "2026-11-18T00:00"
NOW = 1_794_960_000_000
#: Hours, end and other facts of the runs of each application; the times are days before the end of this week.
RUNS: dict[str, list[tuple[float, float, str]]] = {
    "etl-daily": [(10, 12.5, "FINISHED"), (9, 10, "FINISHED"), (3, 20, "FINISHED"), (2, 25, "FINISHED")],
    "etl-flaky": [(9, 1, "FINISHED"), (6, 1, "FAILED"), (5, 1, "FINISHED"), (4, 1, "FAILED"), (2, 1, "LOST")],
    "ml-train": [(3, 400.25, "ENDED")],
    "old": [(20, 5, "FAILED")],
}


def events() -> list[Event]:
    story = Story()
    for name, runs in RUNS.items():
        for number, (days, hours, outcome) in enumerate(runs):
            run = story.application(name, f"{name}-{number}")
            start = NOW - round(days * DAY)
            run.base["spark.tag.team"] = name.partition("-")[0]
            run.status("RUNNING", start)
            end = start + round(hours * HOUR / 10)
            add_summary(story, {**run.base, "spark.summary.retried_ms": 1_800_000}, end, hours, 1.0, 2 * hours)
            if outcome in ("FAILED", "ENDED"):
                more = {"failure.class": "USER_CODE" if days < 6 else "EXTERNAL_SYSTEM", "incident.role": "alarm"}
                run.failure(end, "application", **more)
            run.status(outcome, end + 1)
    running = story.application("etl-live", "live-0")
    running.status("RUNNING", NOW - DAY)
    add_summary(story, running.base, NOW - HOUR, 7.0, 1.0, None)
    running.event("BatchCommitEvent", NOW - HOUR + 1)
    future = story.application("later", "later-0")
    future.status("RUNNING", NOW + DAY)
    return story.events


def stored_as_parquet(folder: Path) -> Path:
    table = folder / "table"
    (table / "_temporary").mkdir(parents=True)
    rows = [row_of(event) for event in events()]
    half = len(rows) // 2
    for number, some in enumerate((rows[:half], rows[half:])):
        pq.write_table(pa.Table.from_pylist(some), table / f"part-{number}.parquet")
    (table / "_temporary" / "part-9.parquet").write_bytes(b"unfinished")
    return table


def overview(capsys: pytest.CaptureFixture[str], source: object, *more: str) -> dict[str, Any]:
    code = main(["report", str(source), "--fleet", "--until", UNTIL, "--json", *more])
    output, errors = capsys.readouterr()
    assert code == 0, errors
    found: dict[str, Any] = json.loads(output)
    return found


def comparable(found: dict[str, Any]) -> dict[str, Any]:
    for name in ("applications", "expensive", "flaky", "slower"):
        for one in found[name]:
            del one["command"]
    del found["source"]
    return found


def test_all_sources_give_the_same_numbers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, database: Database
) -> None:
    found = overview(capsys, stored_as_parquet(tmp_path))
    lines = tmp_path / "events.jsonl"
    lines.write_bytes(encode_lines(events()))
    url, password = database.settings["url"], database.settings.get("password")
    reporter = DatabaseReporter(DatabaseConfig(database_url.parse(url), None if password is None else Secret(password)))
    reporter.open()
    reporter.report(events())
    reporter.close()
    given = url.replace("@", f":{quote(password, safe='')}@", 1) if password else url
    expected = comparable(found)
    assert comparable(overview(capsys, lines)) == expected
    assert comparable(overview(capsys, given)) == expected
    applications = {one["name"]: one for one in expected["applications"]}
    assert list(applications) == ["etl-flaky", "ml-train", "etl-daily", "etl-live"]
    flaky, daily, train = (applications[name] for name in ("etl-flaky", "etl-daily", "ml-train"))
    assert (flaky["runs"], flaky["failed"], flaky["runs_before"], flaky["changes"]) == (4, 3, 1, 3)
    assert (daily["core_hours"], daily["core_hours_before"], daily["cost"]) == (45.0, 22.5, 90.0)
    # Retries: half an hour of each of two runs.
    assert (daily["lost_core_hours"], daily["failed_core_hours"]) == (1.0, None)
    assert (train["failed"], train["lost_core_hours"], train["team"]) == (1, 400.25, "ml")
    assert applications["etl-live"]["status"] == "RUNNING"
    assert [(one["failure_class"], one["failures"], one["failures_before"]) for one in expected["classes"]] == [
        ("USER_CODE", 2, 0),
        ("EXTERNAL_SYSTEM", 1, 0),
        ("LOST", 1, 0),
    ]
    names = {ranking: [one["name"] for one in expected[ranking]] for ranking in ("expensive", "flaky", "slower")}
    assert names == {
        "expensive": ["ml-train", "etl-daily", "etl-live", "etl-flaky"],
        "flaky": ["etl-flaky"],
        "slower": ["etl-daily"],
    }


def test_applications_are_selected_by_name_and_team(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = stored_as_parquet(tmp_path)
    for options, wanted in (
        (["--app", "etl-d*", "--app", "ml-train"], ["ml-train", "etl-daily"]),
        (["--team", "m?"], ["ml-train"]),
        (["--team", "etl", "--app", "*flaky"], ["etl-flaky"]),
    ):
        found = overview(capsys, table, *options)
        assert [one["name"] for one in found["applications"]] == wanted
    assert main(["report", str(table), "--fleet", "--until", UNTIL, "--app", "none"]) == 1
    assert "no run of a selected application in the last two weeks" in capsys.readouterr().err


def test_each_row_names_a_command_that_works(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The command of a row reports on this application alone, from the same Parquet files."""
    table = stored_as_parquet(tmp_path)
    first = overview(capsys, table)["applications"][0]
    assert first["command"] == f"spark-events report {table} --app etl-flaky"
    assert main([*first["command"].split()[1:], "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in report["applications"]] == ["etl-flaky"]
    assert report["applications"][0]["failed_runs"] == 3


def test_terminal_and_page_show_the_same_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Text from events cannot inject HTML."""
    story = Story(events())
    strange = story.application("<script>alert(1)</script>", "strange-0")
    strange.status("RUNNING", NOW - HOUR)
    lines, page = tmp_path / "events.jsonl", tmp_path / "fleet.html"
    lines.write_bytes(encode_lines(story.events))
    assert main(["report", str(lines), "--fleet", "--until", UNTIL]) == 0
    terminal = capsys.readouterr().out
    assert main(["report", str(lines), "--fleet", "--until", UNTIL, "--html", str(page)]) == 0
    html = page.read_text(encoding="utf-8")
    assert "<script" not in html
    for part in ("Failures by class", "Most expensive (4)", "etl-daily", "EXTERNAL_SYSTEM", "9 runs this week (3 last"):
        assert part in terminal
        assert part in html


@pytest.mark.parametrize("layout", ["folder", "partitions", "delta"])
def test_a_table_in_an_object_store_gives_the_same_numbers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of Parquet files, one with partitions, and a Delta table; the report on one application, too."""
    local = stored_as_parquet(tmp_path)
    with s3_server(tmp_path) as filesystem:
        bucket = Bucket(filesystem, "lake")
        place = f"{bucket.url}/deep/events"
        if layout == "delta":
            need("deltalake")
            import deltalake

            monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
            options = {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
            deltalake.write_deltalake(place, pq.read_table(local), storage_options=options)
        elif layout == "folder":
            bucket.upload(local, "deep/events")
        else:
            bucket.upload(local, "deep/events/day=2026-11-17")
            bucket.put("deep/events/_temporary/0/part-0.parquet", b"not finished")
        assert comparable(overview(capsys, place)) == comparable(overview(capsys, local))
        assert main(["report", place, "--app", "etl-flaky", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert [(one["name"], one["failed_runs"]) for one in report["applications"]] == [("etl-flaky", 3)]


@pytest.mark.parametrize("options", [["--fleet"], []])
def test_a_damaged_table_in_an_object_store_is_a_clear_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str]
) -> None:
    with s3_server(tmp_path) as filesystem:
        bucket = Bucket(filesystem, "broken")
        bucket.put("events/part-0.parquet", b"PAR1 is not a file of Parquet, although it begins like one")
        assert main(["report", f"{bucket.url}/events", *options]) == 1
        assert "s3://broken/events: cannot read the table: " in capsys.readouterr().err


def test_each_row_of_the_served_page_links_to_its_own_report(tmp_path: Path) -> None:
    """One click on any row of any table shows the report on this application alone."""
    story = Story(events())
    story.application("a&b <c> 100%", "strange-0").status("RUNNING", NOW - HOUR)
    lines = tmp_path / "events.jsonl"
    lines.write_bytes(encode_lines(story.events))
    program = "import sys; from spark_events.cli import main; sys.exit(main())"
    arguments = ["report", str(lines), "--fleet", "--until", UNTIL, "--serve", "--port", "0"]
    with subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[0]
            page = fetched(address)
            links = re.findall(r'<tr><th scope="row"><a href="([^"]+)">([^<]+)</a>', page)
            assert page.count('<tr><th scope="row">') == len(links) + 3, "all rows but those of the classes of failures"
            reported = {}
            for link, name in set(links):
                report = fetched(address.rstrip("/") + unescape(link))
                data = re.search(r'<script type="application/json" id="data">(.*?)</script>', report, re.DOTALL)
                assert data is not None
                reported[unescape(name)] = [one["name"] for one in json.loads(data[1])["applications"]]
            names = ["etl-flaky", "ml-train", "etl-daily", "etl-live", "a&b <c> 100%"]
            assert reported == {name: [name] for name in names}
            with pytest.raises(HTTPError, match="404"):
                fetched(f"{address}application")
            with pytest.raises(HTTPError, match="503"):
                fetched(f"{address}application?name=none")
        finally:
            process.terminate()


def fetched(url: str) -> str:
    with urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fleet", "--sla", "5s"], "--sla cannot be combined with --fleet"),
        (["--team", "a"], "--team needs --fleet"),
        (["other", "--fleet"], "--fleet: given 2 sources, expected one"),
    ],
)
def test_unsuitable_options_are_rejected(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str], message: str
) -> None:
    assert main(["report", str(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_delta_table_is_a_source(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Files that the table has replaced are not read."""
    need("deltalake")
    from deltalake import write_deltalake

    table = tmp_path / "delta"
    rows = pa.Table.from_pylist([row_of(event) for event in events()])
    write_deltalake(table, rows.slice(0, 5))
    write_deltalake(table, rows, mode="overwrite")
    expected = comparable(overview(capsys, stored_as_parquet(tmp_path)))
    assert comparable(overview(capsys, table)) == expected
    assert main(["report", str(table), "--app", "ml-train", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["events"] == 4
