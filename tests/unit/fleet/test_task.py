"""Tests of the listing of logs, and of the task that reads a group of them."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from spark_events.errors import SparkEventsError
from spark_events.event import Event
from spark_events.fleet.listing import Grouping, ListedLog, grouped, listed_logs
from spark_events.fleet.replay_task import COLUMNS, READ, LogTask
from spark_events.records.event_log.log_files import EventLog
from spark_events.reporters.database.event_rows import row_of
from spark_events.translate.replays import Selection
from spark_events.translate.translation_config import TranslateConfig

FIXTURES = Path(__file__).parent.parent / "records" / "fixtures"
LINES = (FIXTURES / "foreachbatch-4.3.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
TASK = LogTask(TranslateConfig(), Selection())


def events_of(path: Path) -> list[Event]:
    (listed,) = listed_logs(str(path), None)
    return [event for events in TASK.events_of(listed) for event in events]


def test_a_log_is_listed_with_its_parts_and_opened_by_no_listing(tmp_path: Path) -> None:
    folder = tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    for number, content in enumerate((b"abc", b"de"), start=1):
        (folder / f"events_{number}_app-1").write_bytes(content)
        os.utime(folder / f"events_{number}_app-1", (number, number))
    (listed,) = listed_logs(str(tmp_path), None)
    assert (listed.size, listed.modified) == (5, 2_000)
    assert list(listed_logs(str(tmp_path), 2_001)) == []
    (tmp_path / "empty").touch()
    assert [one.version for one in listed_logs(str(tmp_path), 2_000)] == [listed.version]


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors have other working folders."""
    (tmp_path / "local-1").write_text("x")
    monkeypatch.chdir(tmp_path)
    (listed,) = listed_logs(".", None)
    assert listed.version[0] == str(tmp_path / "local-1")


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([1, 2, 3], [[3, 2, 1]]),
        ([1] * 9, [[1] * 4, [1] * 4, [1]]),
        ([100, 4, 5, 6, 7], [[100], [7], [6], [5, 4]]),
        ([10, 10, 3, 7], [[10], [10], [7, 3]]),
    ],
)
def test_small_logs_are_grouped_and_large_ones_are_alone(sizes: list[int], groups: list[list[int]]) -> None:
    """The largest logs come first; a group has at most 10 bytes here, or one larger log, and at most 4 logs."""
    logs = [ListedLog(EventLog(Path(f"local-{number}"), ()), size, 0) for number, size in enumerate(sizes)]
    made = list(grouped(logs, Grouping(most_bytes=10, most_logs=4)))
    assert [[log.size for log in group] for group in made] == groups
    assert sorted(log.log.key for group in made for log in group) == sorted(log.log.key for log in logs)


def test_a_missing_folder_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(SparkEventsError, match=f"cannot read {tmp_path}/logs: No such file"):
        list(listed_logs(f"{tmp_path}/logs", None))


def test_events_of_a_growing_log_are_the_first_events_of_the_whole_log(tmp_path: Path) -> None:
    """At any length, a log in progress yields events that the whole log yields with the same content."""
    whole = tmp_path / "local-1"
    whole.write_text("".join(LINES), encoding="utf-8")
    expected = {event.event_id: event for event in events_of(whole)}
    growing = tmp_path / "local-1.inprogress"
    for length in range(1, len(LINES), 7):
        growing.write_text("".join(LINES[:length]), encoding="utf-8")
        *events, read = events_of(growing)
        assert [expected[event.event_id] for event in events] == events
        assert read.name == READ
        assert not read.attributes["spark.log.complete"]


@pytest.mark.parametrize(
    ("content", "severity", "readable", "problem"),
    [
        (b"\x00\x01 other data" * 100, "WARN", True, "not a Spark event log"),
        ("".join([*LINES[:9], '{"Event":"Spark\n', *LINES[9:]]).encode(), "WARN", True, "incomplete"),
        ("".join(LINES).encode(), "DEBUG", True, ""),
    ],
)
@pytest.mark.parametrize("in_folder", [True, False])
def test_a_broken_log_is_an_event(
    tmp_path: Path, content: bytes, severity: str, readable: bool, problem: str, in_folder: bool
) -> None:
    path = tmp_path / "application_1_1"
    path.write_bytes(content)
    *_, read = events_of(tmp_path if in_folder else path)
    assert (read.name, read.severity.value, read.attributes["spark.log.readable"]) == (READ, severity, readable)
    assert problem in str(read.attributes.get("spark.log.problem", ""))


def test_a_deleted_log_is_an_event_of_its_own(tmp_path: Path) -> None:
    """A log that could not be read is read again, and its success has another id."""
    path = tmp_path / "local-1"
    path.write_text("".join(LINES), encoding="utf-8")
    (listed,) = listed_logs(str(tmp_path), None)
    [*_, [success]] = TASK.events_of(listed)
    path.unlink()
    [[failure]] = TASK.events_of(listed)
    assert failure.attributes["spark.log.readable"] is False
    assert "No such file" in str(failure.attributes["spark.log.problem"])
    assert failure.event_id != success.event_id


def test_a_broken_log_does_not_end_the_other_logs_of_its_task(tmp_path: Path) -> None:
    for number in range(5):
        text = "".join(LINES).replace("local-", f"local-{number}")
        (tmp_path / f"local-{number}").write_text(text, encoding="utf-8")
    [group] = grouped(listed_logs(str(tmp_path), None))
    (tmp_path / "local-1").write_bytes(b"\x00\x01 other data")
    (tmp_path / "local-3").unlink()
    batch = pa.record_batch({"logs": pa.array([pickle.dumps(group)], pa.binary())})
    rows = [row for made in TASK([batch]) for row in made.to_pylist()]
    read = {Path(json.loads(row["attributes"])["spark.log.path"]).name: row for row in rows if row["name"] == READ}
    assert {name for name, row in read.items() if row["severity"] == "WARN"} == {"local-1", "local-3"}
    assert sorted(read) == [f"local-{number}" for number in range(5)]
    ids = {row["event_id"] for row in rows}
    expected = {event.event_id for name in ("local-0", "local-2", "local-4") for event in events_of(tmp_path / name)}
    assert expected < ids
    assert len(ids - expected) == 2


def test_the_columns_are_those_of_the_database(tmp_path: Path) -> None:
    path = tmp_path / "local-1"
    path.write_text("".join(LINES), encoding="utf-8")
    (listed,) = listed_logs(str(path), None)
    batch = pa.record_batch({"logs": pa.array([pickle.dumps([listed])], pa.binary())})
    rows = [row for made in TASK([batch]) for row in made.to_pylist()]
    assert list(rows[0]) == list(COLUMNS)
    assert [row["event_id"] for row in rows] == [event.event_id for event in events_of(path)]
    assert rows[0].keys() == row_of(events_of(path)[0]).keys()
