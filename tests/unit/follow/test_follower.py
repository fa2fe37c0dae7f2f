"""Tests of following event logs that grow, with injected clocks."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_events.clocks import Clocks
from spark_events.errors import SparkEventsError
from spark_events.event import Event
from spark_events.follow.follower import FollowConfig, Follower, Sweep
from spark_events.follow.positions import PositionFile
from spark_events.records.event_log.log_files import find_logs
from spark_events.records.event_log.log_reader import EventLogReader
from spark_events.translate.event_log import replayed
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

FIXTURES = Path(__file__).parents[1] / "records" / "fixtures"
STREAM = FIXTURES / "foreachbatch-4.3.jsonl"
LINES = STREAM.read_bytes().splitlines(keepends=True)


class Clock:
    """Wall and monotonic clock that tests set ahead; the wall clock begins at the time of the logs' files."""

    def __init__(self) -> None:
        self.now = 0.0

    def clocks(self) -> Clocks:
        return Clocks(lambda: 1_700_000_000.0 + self.now, lambda: self.now)


class Collected:
    """Destination that collects the events, and those of which people are notified."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.alarms: list[Event] = []
        self.unsettled = 0

    def take(self, events: Sequence[Event], *, notify: bool = True) -> None:
        self.events.extend(events)
        if notify:
            self.alarms.extend(events)
        self.unsettled += len(events)

    def settle(self) -> None:
        self.unsettled = 0

    @property
    def ids(self) -> list[str]:
        return [event.event_id for event in self.events]


class Following:
    """A follower of a folder, which may be killed and started again."""

    def __init__(self, folder: Path, limits: FollowConfig = FollowConfig()) -> None:  # noqa: B008
        self.folder = folder / "logs"
        self.folder.mkdir()
        self.clock = Clock()
        self.notes: list[str] = []
        self.destination = Collected()
        self._state = folder / "positions.json"
        self._limits = limits
        self.start()

    def start(self) -> None:
        """Start again from the file of positions, as after a kill."""
        self._follower = Follower(
            self.folder,
            TranslateConfig(),
            self._limits,
            PositionFile(self._state),
            self.destination,
            self.notes.append,
            self.clock.clocks(),
        )

    def write(self, name: str, content: bytes) -> None:
        """Replace a file, whose time is that of the clock."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        at = self.clock.clocks().wall()
        os.utime(path, (at, at))

    def look(self, after: float = 10.0) -> Sweep:
        self.clock.now += after
        found = self._follower.look()
        assert self.destination.unsettled == 0
        return found


def expected(path: Path = STREAM) -> list[str]:
    (log,) = find_logs(path)
    return [event.event_id for some in replayed(EventLogReader(log, print), Translator()) for event in some]


@pytest.fixture
def following(tmp_path: Path) -> Following:
    made = Following(tmp_path)
    made.look()
    return made


NAMED = "local-1.inprogress"


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("restarts", [False, True], ids=["one-process", "killed"])
def test_a_growing_file_yields_each_event_once(tmp_path: Path, compress: Any, restarts: bool) -> None:
    """After each line, cut in the middle or not, the follower may be killed and started again."""
    following = Following(tmp_path)
    following.look()
    content = b""
    for line in LINES:
        for piece in (line[:30], line[30:]):
            content += piece
            following.write(NAMED, compress(content))
            following.look()
            if restarts:
                following.start()
    os.rename(following.folder / NAMED, following.folder / "local-1")
    following.look()
    assert following.destination.ids == expected()
    assert following.destination.alarms == following.destination.events
    assert following.notes == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=5, max_size=40))
def test_rolled_parts_yield_each_event_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]]
) -> None:
    """Whatever the sizes of the parts and whenever the follower is killed."""
    following = Following(tmp_path_factory.mktemp("follow"))
    following.look()
    folder = "eventlog_v2_local-1"
    following.write(f"{folder}/appstatus_local-1.inprogress", b"")
    number, read = 1, 0
    sizes = [size for size, _ in steps]
    kills = [is_killed for _, is_killed in steps]
    while read < len(LINES):
        taken = sizes[number % len(sizes)]
        following.write(f"{folder}/events_{number}_local-1", b"".join(LINES[read : read + taken]))
        if kills[number % len(kills)]:
            following.look()
            following.start()
        read, number = read + taken, number + 1
    following.look()
    assert following.destination.ids == expected()


def test_a_compacted_part_repeats_nothing(following: Following) -> None:
    folder = "eventlog_v2_local-1"
    following.write(f"{folder}/appstatus_local-1.inprogress", b"")
    for number in (1, 2, 3):
        following.write(f"{folder}/events_{number}_local-1", b"".join(LINES[(number - 1) * 10 : number * 10]))
        following.look()
    following.write(f"{folder}/events_2_local-1.compact", b"".join(LINES[:20]))
    (following.folder / folder / "events_1_local-1").unlink()
    following.look()
    following.start()
    following.look()
    following.write(f"{folder}/events_4_local-1", b"".join(LINES[30:]))
    following.look()
    assert following.destination.ids == expected()


@pytest.mark.parametrize(
    ("setting", "reports"),
    [
        ("spark.extraListeners", "io.sparkevents.EventsListener"),
        ("spark.plugins", "com.acme.Plugin,io.sparkevents.EventsPlugin"),
        ("spark.plugins", "com.acme.Plugin"),
    ],
)
def test_an_application_that_reports_live_is_history(following: Following, setting: str, reports: str) -> None:
    """Its events are stored, and nobody is notified twice; it is not LOST either, because its sidecar reports that."""
    environment = next(json.loads(line) for line in LINES if b"EnvironmentUpdate" in line)
    environment["Spark Properties"][setting] = reports
    lines = [json.dumps(environment).encode() + b"\n" if b"EnvironmentUpdate" in line else line for line in LINES]
    following.write(NAMED, b"".join(lines))
    following.look()
    assert following.destination.ids == expected()
    assert following.destination.alarms == ([] if "io.sparkevents" in reports else following.destination.events)


class _KilledError(BaseException):
    """End of the process."""


def test_a_log_that_is_completed_during_the_first_look_raises_alarms(tmp_path: Path) -> None:
    """Reading the history may take hours; a process that is killed meanwhile misses no alarm afterwards."""
    following = Following(tmp_path)
    following.write("local-1", b"".join(LINES))

    class Killed(Collected):
        def take(self, events: Sequence[Event], *, notify: bool = True) -> None:
            raise _KilledError

    rest, following.destination = following.destination, Killed()
    following.start()
    with pytest.raises(_KilledError):
        following.look()
    following.destination = rest
    following.write("local-2", b"".join(LINES).replace(b"local-1795262840328", b"local-2"))
    following.start()
    following.look()
    history = expected()
    assert set(history) < set(following.destination.ids)
    assert [event.event_id for event in following.destination.alarms] == expected(following.folder / "local-2")


def test_complete_logs_at_the_first_look_are_history(tmp_path: Path) -> None:
    """Nobody is notified of what happened before; a later log, and one that is in progress, raises alarms."""
    following = Following(tmp_path)
    following.write("local-1", b"".join(LINES))
    following.look()
    assert (len(following.destination.events), following.destination.alarms) == (len(expected()), [])
    following.write("local-2", b"".join(LINES))
    following.look()
    assert [event.event_id for event in following.destination.alarms] == expected()


def test_an_old_log_is_not_read(tmp_path: Path) -> None:
    following = Following(tmp_path, FollowConfig(since=100.0))
    following.write("local-1", b"".join(LINES))
    assert following.look(after=101.0).logs == 0
    assert following.destination.events == []


def test_silence_and_loss(tmp_path: Path) -> None:
    """Silent after five minutes or more, LOST after the limit, once; a lost application may come back."""
    following = Following(tmp_path, FollowConfig(lost_after=3_600.0))
    following.look()
    following.write(NAMED, b"".join(LINES[:30]))
    assert [one.status for one in following.look().running] == ["RUNNING"]
    reported = len(following.destination.events)
    assert [one.status for one in following.look(after=200.0).running] == ["RUNNING"]
    assert [one.status for one in following.look(after=200.0).running] == ["SILENT"]
    following.look(after=10.0)
    (note,) = following.notes
    assert "silent, its event log has not grown for 410 s" in note
    following.start()
    assert [one.status for one in following.look(after=10.0).running] == ["SILENT"]
    following.look(after=3_600.0)
    following.start()
    following.look(after=3_600.0)
    (lost,) = following.destination.events[reported:]
    assert (lost.attributes["spark.status.new"], lost.severity.value) == ("LOST", "FATAL")
    assert "its event log has not grown for" in lost.body
    following.write(NAMED, b"".join(LINES))
    following.look()
    assert "grows again, so its application is not lost" in following.notes[-1]
    assert following.destination.ids == [*expected()[:reported], lost.event_id, *expected()[reported:]]


def test_the_lag_is_the_time_from_the_change_to_the_delivery(following: Following) -> None:
    following.write(NAMED, b"".join(LINES[:30]))
    found = following.look(after=25.0)
    assert (round(found.lag), found.running[0].unread) == (25, 0)
    assert following.look(after=10.0).lag == 0.0


def test_a_log_that_cannot_be_read_is_read_later(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the storage is noted, the unread bytes are counted, and nothing is lost."""
    following.write(NAMED, b"".join(LINES[:20]))
    following.look()
    following.write(NAMED, b"".join(LINES))
    real = Path.open

    def fails(path: Path, *arguments: Any, **named: Any) -> Any:
        if path.name == NAMED:
            raise OSError(5, "the storage is down", str(path))
        return real(path, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", fails)
        (state,) = following.look().running
    assert state.unread == sum(map(len, LINES[20:]))
    assert "cannot be read: the storage is down" in following.notes[-1]
    following.look()
    assert following.destination.ids == expected()


def test_a_damaged_file_of_positions_is_named(tmp_path: Path) -> None:
    (tmp_path / "positions").write_text("{")
    with pytest.raises(SparkEventsError, match=r"positions: not a file of positions .*; delete it to read all logs"):
        PositionFile(tmp_path / "positions")


def test_two_processes_cannot_share_the_positions(tmp_path: Path) -> None:
    with (
        PositionFile(tmp_path / "positions").locked(),
        pytest.raises(SparkEventsError, match="another process follows these logs"),
        PositionFile(tmp_path / "positions").locked(),
    ):
        pass
