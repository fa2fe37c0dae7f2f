"""Tests of what a watcher reports about lost runs, and about the parts that it cannot watch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from watching import INTERVAL, Life, ListDestination, VirtualClocks

from spark_events import Event, Severity
from spark_events.cli import main
from spark_events.config import Secret
from spark_events.errors import SparkEventsError
from spark_events.event import decode_event, encode_lines
from spark_events.reporters.database.database_config import DatabaseConfig
from spark_events.reporters.database.database_reporter import DatabaseReporter
from spark_events.watch.event_database import EventDatabase
from spark_events.watch.json_folder import RECORD, JsonFolder
from spark_events.watch.remembered import Memory
from spark_events.watch.watcher import Check, Source, WatchConfig, Watcher


class Stage:
    """Runs whose events are in one source, and a watcher of this source.

    Args:
        folder: folder of the source.
        kind: ``folder`` or ``database``.
    """

    def __init__(self, folder: Path, kind: str = "folder") -> None:
        self.time = VirtualClocks()
        self.destination = ListDestination()
        self._file = folder / "events.jsonl"
        self._config = DatabaseConfig(Secret(f"sqlite:///{folder / 'events.db'}"))
        self._is_folder = kind == "folder"

    def run(self, app_id: str, name: str = "shop") -> Life:
        return Life(app_id, name, lambda: self.time.wall)

    def write(self, *events: Event) -> None:
        if self._is_folder:
            with self._file.open("ab") as file:
                file.write(encode_lines(events))
            return
        reporter = DatabaseReporter(self._config)
        reporter.open()
        reporter.report(events)
        reporter.close()

    def look(self, memory: Memory | None = None) -> Check:
        source: Source = JsonFolder(self._file.parent) if self._is_folder else EventDatabase(self._config)
        watcher = Watcher(source, lambda: self.destination, WatchConfig(), self.time.clocks, memory)
        return watcher.look()

    def kill_and_restart(self, success: str, environments: tuple[str, str] = ("", "")) -> Event:
        """Kill a run, start the next one, and return the LOST event."""
        about = [{"deployment.environment.name": name, "incident.key": f"shop/{name}"} for name in environments]
        first, second = self.run("first"), self.run("second")
        self.write(first.start(), first.beat(about[0]))
        self.time.pass_(10)
        self.write(second.start(), second.beat(about[1]))
        self.time.pass_(INTERVAL)
        successes = {
            "commit": [second.commit()],
            "heartbeat": [second.beat({**about[1], "spark.heartbeat.batches": 3})],
            "end": [second.end()],
            "failure": [second.end("FAILED")],
            "none": [],
        }
        self.write(second.beat(about[1]), *successes[success])
        self.time.pass_(INTERVAL)
        self.write(second.beat(about[1]))
        self.look()
        (event,) = self.destination.events
        return event


@pytest.mark.parametrize("kind", ["folder", "database"])
@pytest.mark.parametrize(
    ("success", "works"), [("commit", True), ("heartbeat", True), ("end", True), ("failure", False), ("none", False)]
)
def test_a_loss_is_no_alarm_if_the_next_run_works(tmp_path: Path, kind: str, success: str, works: bool) -> None:
    """If the next run has committed or finished before the loss is found, the LOST event opens no incident."""
    stage = Stage(tmp_path, kind)
    event = stage.kill_and_restart(success)
    role = event.attributes["incident.role"]
    assert (event.severity, role) == ((Severity.WARN, "member") if works else (Severity.FATAL, "alarm"))
    assert event.attributes["spark.status.new"] == "LOST"
    assert event.body.endswith("; its next run second works since 2026-11-21 12:15:39 UTC") == works


@pytest.mark.parametrize("kind", ["folder", "database"])
def test_the_run_of_another_environment_is_not_the_next_run(tmp_path: Path, kind: str) -> None:
    """A run with another incident key shows nothing about a lost run, whose LOST event has the run's own attributes."""
    event = Stage(tmp_path, kind).kill_and_restart("commit", ("prod", "test"))
    assert (event.severity, event.attributes["incident.role"]) == (Severity.FATAL, "alarm")
    assert event.attributes["incident.key"] == "shop/prod"
    assert event.attributes["deployment.environment.name"] == "prod"


@pytest.mark.parametrize("kind", ["folder", "database"])
def test_a_success_before_the_loss_does_not_count(tmp_path: Path, kind: str) -> None:
    """An earlier run of the application, or a success before the last sign of life, does not close the incident."""
    stage = Stage(tmp_path, kind)
    earlier, lost = stage.run("earlier"), stage.run("lost")
    stage.write(earlier.start(), earlier.beat(), earlier.end())
    stage.time.pass_(10)
    stage.write(lost.start(), lost.beat(), lost.commit())
    stage.time.pass_(3 * INTERVAL)
    stage.look()
    (event,) = stage.destination.events
    assert event.severity is Severity.FATAL


def test_an_unreadable_file_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, state: Path
) -> None:
    """An unreadable file is logged, and the other files are watched; the exit code is 3."""
    stage = Stage(tmp_path)
    dead = stage.run("dead")
    stage.write(dead.start(), dead.beat())
    (tmp_path / "other.jsonl").symlink_to(tmp_path / "other.jsonl")  # cannot be opened, not even by root
    assert main(["watch", str(tmp_path), "--since", "36500d"]) == 3
    assert json.loads(capsys.readouterr().out)["attributes"]["spark.app.id"] == "dead"
    assert f"cannot read {tmp_path / 'other.jsonl'}, so it is skipped" in caplog.text


def test_a_run_whose_file_became_unreadable_is_not_lost(tmp_path: Path) -> None:
    """A run whose newer heartbeats may be in an unreadable file is not judged, also if the file was rotated."""
    stage = Stage(tmp_path)
    life = stage.run("alive")
    stage.write(life.start(), life.beat())
    path = tmp_path / "events.jsonl"
    path.rename(f"{path}.20261121T121500.000000Z")
    path.symlink_to(path)
    stage.time.pass_(10 * INTERVAL)
    assert [*stage.look().unread] == [path]
    assert stage.destination.events == []
    path.unlink()
    stage.look()
    assert stage.destination.lost() == ["alive"]


def test_an_unreadable_folder_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be listed is skipped and named, and the other files are watched."""
    stage = Stage(tmp_path)
    life = stage.run("dead")
    stage.write(life.start(), life.beat())
    (tmp_path / "private").mkdir()
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("private"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    stage.time.pass_(10 * INTERVAL)
    assert dict(stage.look().unread) == {tmp_path / "private": "Permission denied"}
    assert stage.destination.lost() == ["dead"]


def test_a_loss_that_cannot_be_recorded_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: Path
) -> None:
    """If the source cannot be written, the watcher remembers the loss on its own machine; the exit code is 1."""
    stage = Stage(tmp_path)
    life = stage.run("dead")
    stage.write(life.start(), life.beat())
    (tmp_path / RECORD).mkdir()
    outputs = []
    for _ in range(2):
        assert main(["watch", str(tmp_path), "--since", "36500d"]) == 1
        out, err = capsys.readouterr()
        outputs.append(out)
        assert f"cannot write {tmp_path / RECORD}: Is a directory" in err
    assert decode_event(outputs[0].encode()).attributes["spark.app.id"] == "dead"
    assert outputs[1] == ""
    (tmp_path / RECORD).rmdir()
    assert main(["watch", str(tmp_path), "--since", "36500d"]) == 0
    assert decode_event((tmp_path / RECORD).read_bytes()).event_id == decode_event(outputs[0].encode()).event_id


def test_without_the_record_nothing_is_reported(tmp_path: Path) -> None:
    """If the record of reported losses cannot be read, the watcher reports an error, and no loss a second time."""
    stage = Stage(tmp_path)
    life = stage.run("dead")
    stage.write(life.start(), life.beat())
    (tmp_path / RECORD).symlink_to(tmp_path / RECORD)
    stage.time.pass_(10 * INTERVAL)
    with pytest.raises(SparkEventsError, match=f"cannot read .*{RECORD}"):
        stage.look()
    assert stage.destination.events == []


def test_a_damaged_memory_counts_as_none(tmp_path: Path) -> None:
    """A damaged file of the memory is replaced; the check trusts the clocks, as the first check does."""
    (tmp_path / "events").mkdir()
    stage, memory = Stage(tmp_path / "events"), tmp_path / "memory.json"
    life = stage.run("dead")
    stage.write(life.start(), life.beat())
    stage.time.pass_(10 * INTERVAL)
    memory.write_bytes(b"{")
    stage.look(Memory(memory))
    assert stage.destination.lost() == ["dead"]
    assert "signs" in json.loads(memory.read_bytes())["observed"]


def test_the_reporters_of_the_applications_send_the_heartbeats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: Path
) -> None:
    """With `--conf` of the applications and `--to`, no message says that no reporter reports heartbeats."""
    (tmp_path / "events").mkdir()
    stage = Stage(tmp_path / "events")
    life = stage.run("dead")
    stage.write(life.start(), life.beat())
    conf = tmp_path / "spark-defaults.conf"
    conf.write_text(
        "spark.events.heartbeat.interval 1min\n"
        f"spark.events.reporter.audit.type file\nspark.events.reporter.audit.path {tmp_path}/events/events.jsonl\n"
        "spark.events.reporter.audit.heartbeats true\n"
        f"spark.events.reporter.page.type file\nspark.events.reporter.page.path {tmp_path}/page.jsonl\n"
    )
    assert main(["watch", str(tmp_path / "events"), "--conf", str(conf), "--to", "page", "--since", "36500d"]) == 0
    assert capsys.readouterr() == ("", "")
    assert decode_event((tmp_path / "page.jsonl").read_bytes()).attributes["spark.status.new"] == "LOST"


def test_applications_without_heartbeats_are_named_once_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: Path
) -> None:
    """Each application without heartbeats is named once, with the number of its runs; many are counted."""
    stage = Stage(tmp_path)
    stage.write(*(stage.run(f"a-{number}", "etl").start() for number in range(3)))
    stage.write(*(stage.run(f"b-{number}", f"app {number}").start() for number in range(25)))
    assert main(["watch", str(tmp_path), "--since", "36500d"]) == 3
    error = capsys.readouterr().err
    assert "'etl' (3 runs), 'app 0' (b-0), " in error
    assert " and 6 more; for each of these applications, set spark.events.heartbeat.interval" in error


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the command its own state directory."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder
