"""Stateful test of a watcher of a folder: no false, no missed and no repeated LOST event.

A run is LOST if and only if its driver and its sidecar died, whatever the clocks show, and however its file is renamed,
replaced or protected meanwhile. One machine checks with one watcher, as with ``--every``. Another machine checks with a
new watcher each time, which remembers the last check, as with cron.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from watching import INTERVAL, Life, ListDestination, VirtualClocks

from spark_events import Event, Severity
from spark_events.event import encode_lines
from spark_events.watch.json_folder import RECORD, JsonFolder
from spark_events.watch.remembered import Memory
from spark_events.watch.watcher import WatchConfig, Watcher

#: Jumps of a clock, in seconds. All times are whole numbers, so that their sums are exact.
JUMPS = (-86_400, -3_600, -90, 90, 3_600, 400 * 86_400)
#: Time until the next check, in seconds; less than the time after which a run is LOST.
PAUSES = (1, 20, 59, 61, 110)
LIMIT = 2 * INTERVAL


@dataclasses.dataclass(eq=False)
class Run:
    """One run in the model; times are those of the monotonic clock."""

    life: Life
    application: str
    file: Path
    beaten: float
    started: float
    lives: bool = True
    has_ended: bool = False
    succeeded: float | None = None
    #: Check that first read the last sign of life; None if no check has read it.
    seen: float | None = None
    was_seen: bool = False
    has_jumped: bool = False


class WatchMachine(RuleBasedStateMachine):
    """Applications that write to a folder, and its watcher."""

    is_restarted = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        (self.folder / "events").mkdir()
        self.time = VirtualClocks()
        self.wall_offset = 0.0
        self.destination = ListDestination()
        self.memory = Memory(self.folder / "memory.json")
        self.watcher = self._watcher()
        self.runs: list[Run] = []
        self.files = 0
        # Applications whose successes may have been deleted with a file.
        self.forgotten: set[str] = set()
        self.protected: dict[Path, Path] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def _watcher(self) -> Watcher:
        source = JsonFolder(self.folder / "events")
        return Watcher(source, lambda: self.destination, WatchConfig(), self.time.clocks, self.memory)

    def _write(self, file: Path, *events: Event) -> None:
        # A driver keeps its file open, so it writes also while other users cannot read the file.
        with self.protected.get(file, file).open("ab") as opened:
            opened.write(encode_lines(events))

    def _alive(self) -> list[Run]:
        return [run for run in self.runs if run.lives]

    @rule(application=st.sampled_from(["shop", "etl"]), shares_file=st.booleans(), ahead=st.sampled_from([0, 3_600]))
    def start(self, application: str, shares_file: bool, ahead: float) -> None:
        """Start a run. A clock that is behind when the watcher first sees the run is a documented limit."""
        now = self.time.monotonic
        ahead += self.wall_offset if self.is_restarted else 0.0
        self.files += 1
        file = self.folder / "events" / ("shared.jsonl" if shares_file else f"own-{self.files}.jsonl")
        life = Life(f"{application}-{self.files}", application, lambda: self.time.wall - self.wall_offset)
        life.offset = ahead
        run = Run(life, application, file, now, now)
        run.has_jumped = ahead > 0 or self.wall_offset != 0
        self.runs.append(run)
        self._write(file, run.life.start(), run.life.beat())

    @precondition(lambda self: self._alive())
    @rule(data=st.data(), jump=st.sampled_from(JUMPS))
    def set_driver_clock(self, data: st.DataObject, jump: float) -> None:
        """Set the clock of a driver that a watcher knows."""
        run = data.draw(st.sampled_from(self._alive()))
        if run.was_seen:
            run.life.offset += jump
            run.has_jumped = True

    @rule(jump=st.sampled_from(JUMPS))
    def set_watcher_clock(self, jump: float) -> None:
        """Set the clock of the watcher's machine.

        A new watcher trusts its clock when it sees a run for the first time, and ignores events that are older than a
        week; these are documented limits.
        """
        is_known = all(run.was_seen for run in self.runs)
        if not self.is_restarted or (is_known and abs(self.wall_offset + jump) < 86_400):
            self.time.wall += jump
            self.wall_offset += jump

    @precondition(lambda self: self._alive())
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self._alive()))
        self._write(run.file, run.life.commit())
        run.succeeded = self.time.monotonic

    @precondition(lambda self: self._alive())
    @rule(data=st.data(), status=st.sampled_from(["FINISHED", "FAILED", "CANCELLED"]))
    def end(self, data: st.DataObject, status: str) -> None:
        run = data.draw(st.sampled_from(self._alive()))
        run.lives, run.has_ended, run.seen = False, True, None
        self._write(run.file, run.life.end(status))
        if status == "FINISHED":
            run.succeeded = self.time.monotonic

    @precondition(lambda self: self._alive())
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self._alive())).lives = False

    @precondition(lambda self: self._alive())
    @rule(data=st.data(), works=st.booleans(), pauses=st.lists(st.sampled_from(PAUSES), max_size=3))
    def crash_and_restart(self, data: st.DataObject, works: bool, pauses: list[float]) -> None:
        """A driver dies, and its application starts again; the new run may commit before the loss is reported."""
        run = data.draw(st.sampled_from(self._alive()))
        run.lives = False
        self.start(run.application, True, 0)
        if works:
            self._write(self.runs[-1].file, self.runs[-1].life.commit())
            self.runs[-1].succeeded = self.time.monotonic
        self.check(pauses)

    @precondition(lambda self: any(not run.lives and run.file not in self.protected for run in self.runs))
    @rule(data=st.data(), dies=st.booleans())
    def reuse_inode(self, data: st.DataObject, dies: bool) -> None:
        """Replace the file of a reported or ended run by that of a new run, with the same inode and a larger size."""
        over = [
            run.file
            for run in self.runs
            if run.file.name != "shared.jsonl"
            and run.file not in self.protected
            and ((run.has_ended and run.seen is not None) or run.life.app_id in self.destination.lost())
        ]
        if not over:
            return
        file = data.draw(st.sampled_from(over))
        size = file.stat().st_size
        file.write_bytes(b"")
        self.forgotten |= {run.application for run in self.runs if run.file == file}
        self.runs = [run for run in self.runs if run.file != file]
        self.start("shop", False, 0)
        run = self.runs[-1]
        run.file.unlink()
        run.file = file
        self._write(file, run.life.start(), run.life.beat())
        while file.stat().st_size <= size:
            self._write(file, run.life.commit())
        run.lives = not dies

    @rule()
    def rotate(self) -> None:
        """Rotate the shared file."""
        shared = self.folder / "events" / "shared.jsonl"
        if shared.exists() and shared not in self.protected:
            self.files += 1
            shared.rename(f"{shared}.2026{self.files:04}T100000.000000Z")

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def protect(self, data: st.DataObject) -> None:
        """Make a file unreadable, as for another user; the tests may run as root, who can read every file."""
        file = data.draw(st.sampled_from(self.runs)).file
        if file not in self.protected and file.exists():
            hidden = self.folder / f"hidden-{file.name}"
            file.rename(hidden)
            file.symlink_to(file)  # a link to itself cannot be opened
            self.protected[file] = hidden

    @precondition(lambda self: self.protected)
    @rule(data=st.data())
    def unprotect(self, data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(sorted(self.protected)))
        file.unlink()
        self.protected.pop(file).rename(file)

    @rule(pauses=st.lists(st.sampled_from(PAUSES), min_size=1, max_size=4))
    def check(self, pauses: list[float]) -> None:
        """Let time pass, with the heartbeats that are due, then check; repeat."""
        for pause in pauses:
            self._check(pause)

    def _check(self, pause: float) -> None:
        end = self.time.monotonic + pause
        while True:
            due = min((run.beaten + INTERVAL for run in self._alive()), default=math.inf)
            if due > end:
                break
            self.time.pass_(due - self.time.monotonic)
            for run in self._alive():
                if run.beaten + INTERVAL <= self.time.monotonic:
                    run.beaten, run.seen = self.time.monotonic, None
                    self._write(run.file, run.life.beat())
        self.time.pass_(end - self.time.monotonic)
        if self.is_restarted:
            self.watcher = self._watcher()
        before = {event.event_id for event in self.destination.events}
        result = self.watcher.look()
        self._judge([event for event in self.destination.events if event.event_id not in before])
        assert result.undelivered == 0
        assert set(result.unread) == set(self.protected)
        assert list(result.unwatched) == []

    def _judge(self, new: list[Event]) -> None:
        now = self.time.monotonic
        lost = self.destination.lost()
        assert len(lost) == len(set(lost)), "a loss was reported twice"
        for run in self.runs:
            if run.lives or run.has_ended:
                assert run.life.app_id not in lost, "a false LOST"
            if run.file in self.protected:
                continue
            run.was_seen = True
            run.seen = now if run.seen is None else run.seen
            if not run.lives and not run.has_ended and now - run.seen > LIMIT:
                assert run.life.app_id in lost, "a missed LOST"
        for event in new:
            self._judge_severity(event)

    def _judge_severity(self, event: Event) -> None:
        """A LOST event is WARN if the next run has shown success since; compared only if no clock was wrong."""
        (run,) = [run for run in self.runs if run.life.app_id == event.attributes["spark.app.id"]]
        rivals = [one for one in self.runs if one.application == run.application]
        if any(one.has_jumped for one in rivals) or self.protected or run.application in self.forgotten:
            return
        later = [one for one in rivals if one.started > run.started and one.succeeded is not None]
        since = [one.succeeded - run.beaten for one in later if one.succeeded is not None]
        if any(difference > 0 for difference in since):
            assert (event.severity, event.attributes["incident.role"]) == (Severity.WARN, "member")
        elif all(difference < -INTERVAL for difference in since):
            assert (event.severity, event.attributes["incident.role"]) == (Severity.FATAL, "alarm")

    @invariant()
    def the_record_is_in_the_folder(self) -> None:
        record = self.folder / "events" / RECORD
        assert record.exists() == bool(self.destination.events)


class RestartedWatchMachine(WatchMachine):
    """The same with a new watcher for each check."""

    is_restarted = True


TestOneWatcher = WatchMachine.TestCase
TestRestartedWatcher = RestartedWatchMachine.TestCase
TestOneWatcher.settings = TestRestartedWatcher.settings = settings(max_examples=60, stateful_step_count=30)
