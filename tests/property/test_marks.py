"""Stateful test of the marks in a spool directory: each run that is over is reported, and none that is alive.

Runs on this machine and on another machine start, die and end, with and without a sidecar. Each start looks for earlier
runs, may be killed before or after their events are settled, and may find a full disk.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from watching import VirtualClocks

from spark_events import Event
from spark_events.clocks import boot
from spark_events.records.types import ApplicationStart
from spark_events.watch.marks import LeftMark, MarkConfig, Marks

CONFIG = MarkConfig()
END = b'{"kind":"application_end","seq":9,"at":5,"time":5,"ending":"STOPPED"}\n'
FULL = OSError(errno.ENOSPC, "No space left on device")


@dataclasses.dataclass(eq=False)
class Run:
    """One run in the model."""

    app_id: str
    environment: str
    is_here: bool
    marks: Marks
    folder: Path
    lives: bool = True
    has_sidecar: bool = True
    #: Whether its driver has stored its end.
    has_end: bool = False
    #: Whether it was reported by a run that lived until the event was settled.
    is_settled: bool = False


class MarkMachine(RuleBasedStateMachine):
    """Runs of one application name, which share a spool directory."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.time = VirtualClocks()
        self.count = 0
        self.runs: list[Run] = []
        self.reported: dict[str, list[Event]] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    def _now(self) -> tuple[int, int]:
        """Return the time of the file system, which is not that of any other clock."""
        now = 1_000_000_000 * round(self.time.monotonic) + self.count
        return now, now

    def _lock_of(self, run: Run) -> Path:
        return run.folder.with_name(f"{run.folder.name}.lock")

    @rule(
        environment=st.sampled_from(["prod", "prod", "test"]),
        is_here=st.booleans(),
        is_full=st.booleans(),
        is_killed=st.booleans(),
    )
    def start(self, environment: str, is_here: bool, is_full: bool, is_killed: bool) -> None:
        """Start a run; it reports the runs that are over, unless it is killed before the events are settled."""
        self.count += 1
        app_id = f"app-{self.count}"
        start = ApplicationStart(app_id=app_id, app_name="shop", attempt_id=None, user="", time=1, spark_version="")
        scope = {"spark.app.id": app_id, "incident.key": f"shop/{environment}/failure"}
        driver = f"{boot() if is_here else 'another-boot'} {4_000_000 + self.count} 1"
        marks = Marks(self.directory, start, scope, driver, self.time.clocks, CONFIG)
        if is_full:
            with mock.patch.object(Path, "write_bytes", side_effect=FULL):
                assert marks.place() is None
        else:
            folder = marks.place()
            assert folder is not None
            run = Run(app_id, environment, is_here, marks, folder)
            if not is_here:
                # The file system keeps locks on each machine, so this machine does not see the lock.
                assert marks._own is not None
                fcntl.flock(marks._own._descriptor, fcntl.LOCK_UN)
            self._touch(run)
        left = [*marks.left()]
        for _ in range(CONFIG.missed + 1):
            self.pass_(CONFIG.touch)
            left += marks.left()
        self._judge_left(environment, left)
        self._report(environment, left, is_killed)
        if not is_full:
            self.runs.append(run)
            if is_killed:
                self._release(run, left)
        else:
            self._release(None, left)

    def _judge_left(self, environment: str, left: list[LeftMark]) -> None:
        """After the longest wait, exactly the runs that are over are found, each once."""
        over = [run for run in self.runs if run.environment == environment and not run.lives and not run.is_settled]
        assert sorted(one.identity[0] for one in left) == sorted(run.app_id for run in over)

    def _report(self, environment: str, left: list[LeftMark], is_killed: bool) -> None:
        for one in left:
            app_id = one.identity[0]
            (run,) = [run for run in self.runs if run.app_id == app_id]
            assert not run.is_settled, "reported twice"
            assert run.environment == environment, "a run of another environment"
            assert run.has_end or not run.lives, "an alive run"
            events = one.events()
            before = self.reported.setdefault(app_id, events)
            assert [event.event_id for event in before] == [event.event_id for event in events]
            assert {event.attributes["incident.key"] for event in events if not run.has_end} <= {
                f"shop/{environment}/failure"
            }
            (status,) = {event.attributes.get("spark.status.new") for event in events}
            assert status == ("ENDED" if run.has_end else "LOST")
            if not is_killed:
                one.delete()
                run.is_settled = True

    def _release(self, run: Run | None, left: list[LeftMark]) -> None:
        """Kill a sidecar with its driver: its locks are free."""
        for one in left:
            if not next(other for other in self.runs if other.app_id == one.identity[0]).is_settled:
                one._folder.release()
        if run is not None and run.marks._own is not None:
            run.lives = run.has_sidecar = False
            run.marks._own.release()

    def _touch(self, run: Run) -> None:
        os.utime(run.folder / "start.json", ns=self._now())

    @rule(seconds=st.sampled_from([1, 10, 45, 100]))
    def pass_(self, seconds: float) -> None:
        """Let time pass; living runs touch their marks."""
        end = self.time.monotonic + seconds
        while self.time.monotonic < end:
            self.time.pass_(min(CONFIG.touch, end - self.time.monotonic))
            self.count += 1
            for run in self.runs:
                if run.lives and run.has_sidecar:
                    self._touch(run)

    def _drawn(self, data: st.DataObject) -> Run:
        return data.draw(st.sampled_from([run for run in self.runs if run.lives and run.has_sidecar]))

    @precondition(lambda self: any(run.lives and run.has_sidecar for run in self.runs))
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self._release(self._drawn(data), [])

    @precondition(lambda self: any(run.lives and run.has_sidecar for run in self.runs))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """End a run in order; nothing remains of it."""
        run = self._drawn(data)
        run.marks.remove()
        assert not run.folder.exists()
        assert not self._lock_of(run).exists()
        self.runs.remove(run)

    @precondition(lambda self: any(run.lives and run.has_sidecar for run in self.runs))
    @rule(data=st.data())
    def end_without_sidecar(self, data: st.DataObject) -> None:
        """The sidecar dies for good, and the driver ends in order: it stores its end beside the mark."""
        run = self._drawn(data)
        self._release(run, [])
        run.has_end = True
        (run.folder / "end.json").write_bytes(END)

    @invariant()
    def settled_runs_leave_nothing(self) -> None:
        kept = {run.folder for run in self.runs if not run.is_settled}
        assert {path.parent for path in self.directory.rglob("start.json")} == kept


TestMarks = MarkMachine.TestCase
TestMarks.settings = settings(max_examples=40, stateful_step_count=15)
