"""Every place that compares times, with a clock that is set back or ahead.

The rule: durations are measured with the monotonic clock; a time of another machine, or of an earlier moment, may be
wrong by any amount; a negative age never suppresses anything. To find a new place, add it to ``PLACES``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest
from fakes import START, application_start, decoded, event
from watching import INTERVAL, Life, ListDestination, VirtualClocks

from spark_events import Event
from spark_events.clocks import ClockSteps, boot
from spark_events.config import Secret
from spark_events.event import encode_lines
from spark_events.records.types import ApplicationStart
from spark_events.report.build import ReportOptions, build
from spark_events.report.sources import Reading
from spark_events.report.table import EventTable
from spark_events.reporters.database.database_config import DatabaseConfig
from spark_events.reporters.database.database_reporter import DatabaseReporter
from spark_events.reporters.file import FileConfig, FileReporter
from spark_events.reporters.heartbeat.signals import FORMATS, Signal
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator
from spark_events.watch.event_database import EventDatabase
from spark_events.watch.json_folder import JsonFolder
from spark_events.watch.marks import MarkConfig, Marks
from spark_events.watch.open_runs import OpenRuns
from spark_events.watch.watcher import Source, WatchConfig, Watcher

JUMPS = {"back": -3_600, "ahead": 3_600, "a year ahead": 400 * 86_400, "a little back": -90, "none": 0}
DAY = 86_400
#: What a place showed, and what it should show.
Checked: TypeAlias = tuple[object, object]


def heartbeats_continue(jump: int, _: Path) -> Checked:
    """The sidecar sends a heartbeat per interval, each with its own id, although its clock jumps."""
    time = VirtualClocks()
    translator = Translator(TranslateConfig(heartbeat_interval=float(INTERVAL)), clocks=time.clocks)
    translator.translate(decoded(application_start()))
    beats: list[Event] = []

    def wait(seconds: float) -> None:
        # As the session of a driver: it sleeps until the deadline, and then asks whether the deadline has passed.
        end = time.monotonic + seconds
        while time.monotonic < end:
            deadline = translator.next_due
            assert deadline is not None
            time.pass_(min(max(deadline / 1000 - time.wall, 0.001), end - time.monotonic))
            now = time.clocks.wall_millis()
            if (translator.next_due or deadline) <= now:
                beats.extend(one for one in translator.tick(now) if one.name == "HeartbeatEvent")

    wait(5 * INTERVAL)
    time.wall += jump
    wait(10 * INTERVAL)
    ids = {beat.event_id for beat in beats}
    return (len(beats) in range(14, 18), len(ids)), (True, len(beats))


class Folder:
    """Folder to which one driver writes."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "events.jsonl"
        self.source: Source = JsonFolder(folder)

    def write(self, *events: Event) -> None:
        with self._file.open("ab") as file:
            file.write(encode_lines(events))


class Database:
    """Database to which one driver writes."""

    def __init__(self, folder: Path) -> None:
        config = DatabaseConfig(Secret(f"sqlite:///{folder / 'events.db'}"))
        self._reporter = DatabaseReporter(config)
        self._reporter.open()
        self.source: Source = EventDatabase(config)

    def write(self, *events: Event) -> None:
        self._reporter.report(events)
        self._reporter.close()


def watch_of(store: Folder | Database, driver_jumps: int, watcher_jumps: int) -> Checked:
    """A watcher reports a run that dies within the usual time, and no run that is alive, although clocks jump."""
    driver, watcher = VirtualClocks(), VirtualClocks()
    destination = ListDestination()
    watch = Watcher(store.source, lambda: destination, WatchConfig(), watcher.clocks)
    life = Life("app-1", "shop", lambda: driver.wall)

    def minutes(number: int, *, lives: bool) -> None:
        for _ in range(number):
            for clocks in (driver, watcher):
                clocks.pass_(INTERVAL)
            if lives:
                store.write(life.beat())
            watch.look()

    store.write(life.start(), life.beat())
    watch.look()
    minutes(3, lives=True)
    driver.wall += driver_jumps
    watcher.wall += watcher_jumps
    minutes(130, lives=True)
    while_alive = destination.lost()
    minutes(3, lives=False)
    return (while_alive, destination.lost()), ([], ["app-1"])


def one_heartbeat_with_a_wrong_time(jump: int, folder: Path) -> Checked:
    """A single check finds runs that died minutes ago, whatever the time of one heartbeat, also of the last one."""
    now, destination = VirtualClocks(), ListDestination()
    lives = {number: Life(f"app-{number}", "shop", lambda: now.wall) for number in range(5)}
    events = [event for life in lives.values() for event in (life.start(), life.beat())]
    for minute in range(5):
        now.pass_(INTERVAL)
        for number, life in lives.items():
            life.offset = jump if minute == number else 0
            events.append(life.beat())
    (folder / "events.jsonl").write_bytes(encode_lines(events))
    now.pass_(6 * INTERVAL)
    Watcher(JsonFolder(folder), lambda: destination, WatchConfig(), now.clocks).look()
    return sorted(destination.lost()), sorted(life.app_id for life in lives.values())


def the_next_run_finds_an_open_run(jump: int, folder: Path) -> Checked:
    """The next run finds a silent run in the database, and no living run, although its own clock jumps."""
    store, driver, this = Database(folder), VirtualClocks(), VirtualClocks()
    start = ApplicationStart(app_id="b", app_name="shop", attempt_id=None, user="", time=0, spark_version="")
    dead, alive = (Life(name, "shop", lambda: driver.wall) for name in ("dead", "alive"))
    store.write(dead.start(), dead.beat(), alive.start(), alive.beat())
    search = OpenRuns(store.source, start, {"spark.app.name": "shop"}, False, this.clocks, WatchConfig())
    found = []
    for minute in range(10):
        for clocks in (driver, this):
            clocks.pass_(INTERVAL)
        this.wall += jump if minute == 2 else 0
        store.write(alive.beat())
        found += [one.identity[0] for one in search.look().lost]
    return set(found), {"dead"}


def a_mark_on_another_machine(jump: int, folder: Path) -> Checked:
    """The clock of the file system decides nothing: a touched mark is alive, one that stands still is lost."""
    this, config = VirtualClocks(), MarkConfig()
    about: dict[str, Any] = {"app_name": "shop", "attempt_id": None, "user": "", "time": 0, "spark_version": ""}
    other = Marks(folder, ApplicationStart(app_id="a", **about), {}, "another-boot 1 1", this.clocks, config)
    mark = other.place()
    assert mark is not None
    assert other._own is not None
    other._own.release()  # this machine does not see the lock
    marks = Marks(folder, ApplicationStart(app_id="b", **about), {}, f"{boot()} 1 1", this.clocks, config)
    own = marks.place()
    assert own is not None
    now = (own / "start.json").stat().st_mtime

    def touches(number: int, *, lives: bool) -> list[str]:
        found = []
        for touch in range(number):
            this.pass_(config.touch)
            if lives:
                at = now + this.monotonic + (jump if touch > number // 2 else 0)
                os.utime(mark / "start.json", (at, at))
            found += [one.identity[0] for one in marks.left()]
        return found

    return (touches(40, lives=True), touches(config.missed + 1, lives=False)), ([], ["a"])


def retention_keeps_new_events(jump: int, folder: Path) -> Checked:
    """A driver whose clock is wrong deletes no event that is younger than the retention, and deletes the old ones."""
    url, right, wrong = Secret(f"sqlite:///{folder / 'events.db'}"), VirtualClocks(), VirtualClocks()
    wrong.wall += jump
    old = round((right.wall - 100 * DAY) * 1000)
    first = DatabaseReporter(DatabaseConfig(url))
    first.open()
    new = [msgspec.structs.replace(event(n), observed_ts_millis=round((right.wall - n * DAY) * 1000)) for n in range(5)]
    first.report([*new, msgspec.structs.replace(event(9), observed_ts_millis=old)])
    first.close()
    second = DatabaseReporter(DatabaseConfig(url, retention=30.0 * DAY), wrong.clocks)
    second.open()
    for number in range(3):
        second.report([msgspec.structs.replace(event(20 + number), observed_ts_millis=round(wrong.wall * 1000))])
        wrong.pass_(3_601)
        wrong.wall += jump  # also while the reporter runs
    second.close()
    with second._engine.begin() as connection:
        kept = connection.exec_driver_sql("SELECT body FROM spark_events WHERE CAST(body AS INTEGER) < 20").all()
    return sorted(int(body) for (body,) in kept), [0, 1, 2, 3, 4]


def rotation_deletes_no_new_file(jump: int, folder: Path) -> Checked:
    """A driver whose clock is wrong does not rotate the file at each batch, which would delete the old files."""
    path, clocks = folder / "events.jsonl", VirtualClocks(START / 1000 + jump)
    for _ in range(3):
        reporter = FileReporter(FileConfig(str(path), max_age=float(DAY), keep=2), clocks.clocks)
        reporter.open()
        for number in range(5):
            waiting = reporter.report([event(number)])
            assert waiting is None or asyncio.run(_awaited(waiting)) is None
        reporter.close()
    files = [one for one in folder.iterdir() if one.name.startswith("events.jsonl")]
    return sum(len(one.read_bytes().splitlines()) for one in files), 15


async def _awaited(waiting: Any) -> None:
    await waiting


def a_monitor_ends_its_alert_by_its_own_clock(jump: int, _: Path) -> Checked:
    """The end of the watchdog alert depends on the monitor's clock only."""
    clocks, bodies = VirtualClocks(), set()
    life = Life("app-1", "shop", lambda: clocks.wall)
    for life.offset in (0, jump):
        bodies.add(FORMATS["alertmanager"]("http://monitor", Signal.ALIVE, life.beat(), START).body)
    return len(bodies), 1


def the_report_shows_a_silent_run(jump: int, folder: Path) -> Checked:
    """One event with a wrong time neither extends the period of the report nor hides that a run is silent."""
    clocks = VirtualClocks()
    life = Life("app-1", "shop", lambda: clocks.wall)
    events = [life.start()]
    for minute in range(5):
        clocks.pass_(INTERVAL)
        life.offset = jump if minute == 3 else 0
        events.append(life.beat())
    path = folder / "events.jsonl"
    path.write_bytes(encode_lines(events))
    clocks.pass_(14 * INTERVAL)
    now = clocks.clocks.wall_millis()
    with EventTable() as table:
        Reading(table, None).read(str(path))
        report = build(table, ReportOptions(), now)
    return (report.until, any("no event" in one.text for one in report.findings if one.now)), (now, True)


PLACES: dict[str, Callable[[int, Path], Checked]] = {
    "heartbeats": heartbeats_continue,
    "folder, driver": lambda jump, folder: watch_of(Folder(folder), jump, 0),
    "folder, watcher": lambda jump, folder: watch_of(Folder(folder), 0, jump),
    "folder, both": lambda jump, folder: watch_of(Folder(folder), jump, jump),
    "database, driver": lambda jump, folder: watch_of(Database(folder), jump, 0),
    "database, watcher": lambda jump, folder: watch_of(Database(folder), 0, jump),
    "one heartbeat": one_heartbeat_with_a_wrong_time,
    "open runs": the_next_run_finds_an_open_run,
    "mark": a_mark_on_another_machine,
    "retention": retention_keeps_new_events,
    "rotation": rotation_deletes_no_new_file,
    "monitor": a_monitor_ends_its_alert_by_its_own_clock,
    "report": the_report_shows_a_silent_run,
}


@pytest.mark.parametrize("jump", JUMPS.values(), ids=list(JUMPS))
@pytest.mark.parametrize("place", PLACES.values(), ids=list(PLACES))
def test_a_wrong_clock_suppresses_nothing(place: Callable[[int, Path], Checked], jump: int, tmp_path: Path) -> None:
    """Each place works with a clock that is set back or ahead."""
    found, expected = place(jump, tmp_path)
    assert found == expected


@pytest.mark.parametrize("jump", [*JUMPS.values(), 1, -1])
def test_a_step_of_the_wall_clock_is_found_once(jump: int) -> None:
    """The step is the difference from the monotonic clock; time that passes and a slow drift are no steps."""
    time = VirtualClocks()
    steps = ClockSteps(time.clocks)
    for _ in range(100):
        time.pass_(30)
        time.wall += 0.5
        assert steps.take() == 0
    time.wall += jump
    assert [steps.take(), steps.take()] == [jump * 1000, 0]
