"""Tests of ``spark-events watch``, which reports applications whose heartbeats have stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import (
    START,
    FakeDriver,
    application_end,
    application_start,
    decoded,
    eventually,
    goodbye,
    read_events,
    sidecar_environment,
)

from spark_events import Event
from spark_events.cli import main
from spark_events.clocks import Clocks
from spark_events.errors import SparkEventsError
from spark_events.event import decode_event, encode_lines
from spark_events.event.text import moment
from spark_events.translate.dispatch_reports import final_report
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator
from spark_events.watch.json_folder import RECORD, JsonFolder
from spark_events.watch.sightings import Sightings
from spark_events.watch.watcher import WatchConfig, Watcher

COMMAND = [sys.executable, "-c", "from spark_events.cli import main; raise SystemExit(main())"]
MINUTE = 60_000
LIVES, ENDS = True, False


class ListSink:
    """Destination that stores its events in a list. ``undelivered`` is the result of every close."""

    def __init__(self, undelivered: int = 0) -> None:
        self.events: list[Event] = []
        self.undelivered = undelivered
        self.meanwhile: Callable[[], object] = lambda: None

    def take(self, events: Sequence[Event]) -> None:
        self.events.extend(events)

    def close(self) -> int:
        self.meanwhile()
        return self.undelivered


def story(app_id: str = "local-1", minutes: int = 5, end: str | None = None, interval: float | None = 60.0) -> bytes:
    """Return JSON lines of an application with one heartbeat per minute."""
    translator = Translator(TranslateConfig(heartbeat_interval=interval))
    events = translator.translate(decoded(application_start(app_id=app_id, app_name=f"shop of {app_id}")))
    for minute in range(minutes):
        events += translator.tick(START + minute * MINUTE)
    if end == "report":
        events.append(translator.emit(final_report({}, {}, START + minutes * MINUTE)))
    elif end is not None:
        events += translator.translate(decoded(application_end(end)))
    return encode_lines(events)


def of_sidecar(app_id: str = "local-1") -> Event:
    """Return the LOST event that the sidecar of this application would have reported."""
    translator = Translator()
    translator.translate(decoded(application_start(app_id=app_id)))
    (event,) = translator.driver_lost(START, orderly=False)
    return event


def at(minute: float) -> Clocks:
    """Return clocks that stand still."""
    return Clocks(lambda: START / 1000 + 60 * minute, lambda: 60 * minute)


def watch(path: Path, sink: ListSink, minute: float) -> Watcher:
    return Watcher(JsonFolder(path), lambda: sink, WatchConfig(), at(minute))


@pytest.fixture(autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the command its own state directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def test_a_silent_application_is_lost_with_the_event_id_of_its_sidecar(tmp_path: Path) -> None:
    """An application is LOST exactly after two intervals without a heartbeat, with its sidecar's event id."""
    (tmp_path / "events.jsonl").write_bytes(story(minutes=5))
    sink = ListSink()
    assert watch(tmp_path, sink, 5.9).look().undelivered == 0
    assert sink.events == []
    watch(tmp_path, sink, 6.1).look()
    (lost,) = sink.events
    sidecar = of_sidecar()
    assert (lost.event_id, lost.name, lost.severity) == (sidecar.event_id, sidecar.name, sidecar.severity)
    names = {"spark.app.name": "shop of local-1", "incident.key": "shop of local-1/failure"}
    assert lost.attributes == {**sidecar.attributes, **names}
    assert lost.body == (
        "Application 'shop of local-1' is lost: no heartbeat since 2026-11-21 12:18:29 UTC, expected every 60 s"
    )
    assert lost.observed_ts_millis == START + 4 * MINUTE


@pytest.mark.parametrize("end", ["STOPPED", "PROGRAM_FAILED", "GATEWAY_CLOSED", "report"])
def test_an_application_with_an_end_is_not_lost(tmp_path: Path, end: str) -> None:
    """After its end event or its stream's final report, an application is not LOST, even if the driver still runs."""
    (tmp_path / "events.jsonl").write_bytes(story(end=end))
    sink = ListSink()
    watch(tmp_path, sink, 10_000).look()
    assert sink.events == []


def test_an_application_without_heartbeats_is_not_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A running application without heartbeats is named, with the settings to change, and the exit code is 3.

    It is never LOST, because batch jobs may send no event for hours.
    """
    (tmp_path / "events.jsonl").write_bytes(story(interval=None) + story("local-2", interval=None, end="STOPPED"))
    assert main(["watch", str(tmp_path), "--since", "36500d"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "not watched, because they send no heartbeats to this source: 'shop of local-1' (local-1); for each" in err
    assert "spark.events.heartbeat.interval" in err
    assert "spark.events.reporter.<name>.heartbeats=true" in err


@pytest.mark.parametrize("end", ["STOPPED", "report"])
def test_an_application_with_only_its_end_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    """``-v`` prints name, id and time of an application even if the source contains only its last event."""
    last = story(end=end, minutes=1).splitlines(keepends=True)[-1]
    (tmp_path / "events.jsonl").write_bytes(last)
    assert main(["watch", str(tmp_path), "-v", "--since", "36500d"]) == 0
    row = capsys.readouterr().out.splitlines()[1]
    time = moment(decode_event(last).observed_ts_millis)
    status = "RUNNING" if end == "report" else "FINISHED"
    assert re.split(" {2,}", row.strip()) == ["shop of local-1", "local-1", status, time, "none: not watched"]


def test_each_loss_is_reported_once(tmp_path: Path) -> None:
    """Each loss is reported once, even if the same watcher checks again or another watcher runs later."""
    (tmp_path / "events.jsonl").write_bytes(story("a") + story("b"))
    sink = ListSink()
    first = watch(tmp_path, sink, 10)
    first.look()
    first.look()
    watch(tmp_path, sink, 11).look()
    assert sorted(str(event.attributes["spark.app.id"]) for event in sink.events) == ["a", "b"]
    assert len(read_events(tmp_path / RECORD)) == 2


@pytest.mark.parametrize("source", ["events.jsonl", "."])
def test_a_loss_in_the_current_folder_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """The loss is recorded beside a source with a relative path, so it is reported once."""
    monkeypatch.chdir(tmp_path)
    Path("events.jsonl").write_bytes(story())
    sink = ListSink()
    for minute in (10, 11):
        watch(Path(source), sink, minute).look()
    assert len(sink.events) == len(read_events(tmp_path / RECORD)) == 1


def test_two_watchers_that_poll_at_the_same_time_agree(tmp_path: Path) -> None:
    """Two watchers that check at the same time report equal events, although neither reads the other's record."""
    (tmp_path / "events.jsonl").write_bytes(story())
    sinks = [ListSink(), ListSink()]
    watchers = [watch(tmp_path, sink, 10 + number) for number, sink in enumerate(sinks)]
    # The second watcher checks while the first one is delivering its event.
    sinks[0].meanwhile = watchers[1].look
    watchers[0].look()
    assert sinks[0].events == sinks[1].events
    assert len(sinks[0].events) == 1


def test_an_undelivered_loss_is_reported_again(tmp_path: Path) -> None:
    """A watcher records a loss only after all reporters have delivered it. Otherwise the loss is reported again."""
    (tmp_path / "events.jsonl").write_bytes(story())
    assert watch(tmp_path, ListSink(undelivered=1), 10).look().undelivered == 1
    sink = ListSink()
    assert watch(tmp_path, sink, 10).look().undelivered == 0
    assert len(sink.events) == 1


def test_rotated_and_growing_files(tmp_path: Path) -> None:
    """The latest heartbeat is decisive, whether the file is rotated or growing.

    Incomplete lines and lines of other programs are skipped.
    """
    lines = story(minutes=10).splitlines(keepends=True)
    path = tmp_path / "deep" / "events.jsonl"
    path.parent.mkdir()
    Path(f"{path}.20260131T100000.000000Z").write_bytes(b"".join(lines[:4]))
    path.write_bytes(b"".join(lines[4:6]) + b'no event "HeartbeatEvent"\n' + lines[6][:40])
    watcher = watch(tmp_path, ListSink(), 5)
    watcher.look()
    assert [seen.last_seen for seen in watcher.sightings] == [START + 4 * MINUTE]
    with path.open("ab") as file:
        file.write(lines[6][40:] + b"".join(lines[7:]))
    path.rename(f"{path}.20260131T110000.000000Z")
    path.write_bytes(b"")
    watcher.look()
    # By the clock of the watcher, these heartbeats are from the future.
    assert [(seen.last_seen, seen.ahead) for seen in watcher.sightings] == [(START + 6 * MINUTE, 3)]


class RotatingSightings(Sightings):
    """Sightings that rotate the watched file at each of the next ``rotations`` events, as another process may do."""

    def __init__(self, path: Path, rotations: int = 0) -> None:
        super().__init__()
        self._path = path
        self.rotations = rotations

    def see(self, event: Event, **where: Any) -> None:
        super().see(event, **where)
        if self.rotations:
            self.rotations -= 1
            self._path.rename(f"{self._path}.20260131T10{self.rotations:04}.000000Z")
            self._path.write_bytes(story("new", minutes=1, end="STOPPED"))


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_file_that_is_rotated_during_the_check_is_read(tmp_path: Path, is_folder: bool) -> None:
    """A file that is rotated while the watcher reads another file is also read, so its application is not LOST."""
    path = tmp_path / "events.jsonl"
    first = tmp_path / "a.jsonl" if is_folder else Path(f"{path}.20260131T090000.000000Z")
    lines = story(minutes=10).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4]))
    sink, minutes = ListSink(), [4.0]
    clocks = Clocks(lambda: START / 1000 + 60 * minutes[0], lambda: 60 * minutes[0])
    watcher = Watcher(JsonFolder(tmp_path if is_folder else path), lambda: sink, WatchConfig(), clocks)
    watcher.sightings = sightings = RotatingSightings(path)
    watcher.look()
    minutes[0] = 10
    with path.open("ab") as file:
        file.write(b"".join(lines[4:]))
    first.write_bytes(story("first", end="STOPPED"))
    sightings.rotations = 1
    watcher.look()
    assert [seen.last_seen for seen in sightings if seen.runs] == [START + 9 * MINUTE]
    assert sink.events == []


def test_a_file_that_is_rotated_all_the_time(tmp_path: Path) -> None:
    """If the file is rotated during each attempt to read it, the watcher reports an error, and no loss."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(story())
    sink = ListSink()
    watcher = watch(path, sink, 10)
    watcher.sightings = RotatingSightings(path, rotations=1000)
    with pytest.raises(SparkEventsError, match=r"events\.jsonl: files are rotated faster than they are read"):
        watcher.look()
    assert sink.events == []


def test_a_deeply_nested_line_is_skipped(tmp_path: Path) -> None:
    """A line that is nested too deeply for the decoder is skipped, and the other applications are watched."""
    line = b'{"name":"HeartbeatEvent","x":' + b"[" * 10_000 + b"]" * 10_000 + b"}\n"
    (tmp_path / "a.jsonl").write_bytes(line)
    (tmp_path / "b.jsonl").write_bytes(line + story())
    sink = ListSink()
    watch(tmp_path, sink, 10).look()
    assert [event.event_id for event in sink.events] == [of_sidecar().event_id]


def test_old_files_are_not_read(tmp_path: Path) -> None:
    """Files older than ``--since``, one week by default, are not read; a day is the tolerance for clocks."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(story())
    os.utime(path, (START / 1000 - 9 * 86_400,) * 2)
    watcher = watch(tmp_path, ListSink(), 10)
    watcher.look()
    assert [*watcher.sightings] == []


def test_old_events_of_a_growing_file_are_ignored(tmp_path: Path) -> None:
    """Events older than ``--since`` are ignored, even in a file that other applications still write to.

    An application that started earlier and still sends heartbeats is watched, with the event id of its sidecar.
    """
    (tmp_path / "events.jsonl").write_bytes(story("dead", minutes=2) + story("alive", minutes=10))
    sink = ListSink()
    watcher = Watcher(JsonFolder(tmp_path), lambda: sink, WatchConfig(since=5 * 60), at(10))
    watcher.look()
    assert [seen.name for seen in watcher.sightings] == ["shop of alive"]
    assert sink.events == []
    later = Watcher(JsonFolder(tmp_path), lambda: sink, WatchConfig(since=5 * 60), at(12))
    later.look()
    assert [event.event_id for event in sink.events] == [of_sidecar("alive").event_id]


def test_after_an_outage_of_the_source_the_watcher_waits(tmp_path: Path) -> None:
    """After an outage of the source, the watcher waits, because reporters may deliver heartbeats late."""
    sink, now = ListSink(), [10.0]
    path = tmp_path / "later"
    clocks = Clocks(lambda: START / 1000 + 60 * now[0], lambda: 60 * now[0])
    watcher = Watcher(JsonFolder(path), lambda: sink, WatchConfig(), clocks)
    with pytest.raises(SparkEventsError, match=r"cannot read .*later: No such file"):
        watcher.look()
    path.mkdir()
    (path / "events.jsonl").write_bytes(story())
    watcher.look()
    assert sink.events == []
    now[0] += 2
    watcher.look()
    assert len(sink.events) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mysql://h/db"], "SOURCE: expected a path and sqlite:///"),
        (["{}/nowhere"], "nowhere: No such file or directory"),
        (["sqlite:///{}/nowhere.db"], "nowhere.db: no such file"),
    ],
)
def test_invalid_arguments_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """An invalid argument is reported in one sentence with the allowed values."""
    assert main(["watch", *(argument.format(tmp_path) for argument in arguments)]) in (1, 2)
    assert message in capsys.readouterr().err
    for option, value, expected in (
        ("--every", "0s", "a whole number above 0 with a unit"),
        ("--intervals", "0", "a whole number from 1 to 1000000"),
    ):
        with pytest.raises(SystemExit):
            main(["watch", str(tmp_path), option, value])
        assert f"argument {option}: given {value!r}, expected {expected}" in capsys.readouterr().err


def test_a_driver_killed_with_its_sidecar_is_lost_within_two_intervals(tmp_path: Path) -> None:
    source, reported = tmp_path / "source", tmp_path / "reported.jsonl"
    source.mkdir()
    settings = {
        # Longer than any delay, on a busy machine, between a heartbeat and its line in the file.
        "events.heartbeat.interval": "5s",
        "events.reporter.audit.type": "file",
        "events.reporter.audit.path": str(source / "events.jsonl"),
        "events.reporter.audit.heartbeats": "true",
    }
    conf = tmp_path / "watch.conf"
    conf.write_text(f"spark.events.reporter.page.type file\nspark.events.reporter.page.path {reported}\n")
    command = [*COMMAND, "watch", str(source), "--every", "100ms", "--conf", str(conf)]
    process = subprocess.Popen(command, env=sidecar_environment())
    try:
        with FakeDriver(tmp_path / "errors", settings) as good:
            good.send_records(application_start(app_id="good"))
            with FakeDriver(tmp_path / "errors", settings) as bad:
                bad.send_records(application_start(app_id="bad"))
                # The start event is a separate line. Until the first heartbeat, the interval is unknown.
                eventually(lambda: _has_heartbeat(source / "events.jsonl", "bad"), what="its heartbeat")
                bad.process.send_signal(signal.SIGKILL)
                bad.process.wait()
            (lost,) = eventually(lambda: read_events(reported), within=60.0, what="LOST")
            good.send_records(application_end())
            good.send(goodbye())
            assert good.await_exit() == 0
    finally:
        process.kill()
        process.wait()
    assert lost["attributes"]["spark.app.id"] == "bad"
    assert lost["event_id"] == of_sidecar("bad").event_id
    events = [e for e in read_events(source / "events.jsonl") if e["attributes"]["spark.app.id"] == "bad"]
    assert lost["observed_ts_millis"] == max(e["observed_ts_millis"] for e in events)


def _has_heartbeat(path: Path, app_id: str) -> bool:
    lines = path.read_bytes().splitlines() if path.exists() else []
    return any(b'"HeartbeatEvent"' in line and f'"{app_id}"'.encode() in line for line in lines)
