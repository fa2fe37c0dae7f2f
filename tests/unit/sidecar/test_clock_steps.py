"""Tests of a whole driver session whose wall clock is set while work runs; time is virtual."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import application_end, application_start, goodbye, hello, query_progress, query_started, read_events
from property.applications import iso
from watching import VirtualClocks

from spark_events.event.heartbeat import HEARTBEAT
from spark_events.sidecar.acknowledgements import MessageWriter
from spark_events.sidecar.driver_session import DriverSession, DriverSessionOptions

MINUTE, HOUR = 60, 3_600
LIMITED = ("DeadlineStatusChangeEvent", "WatermarkStatusChangeEvent")
SETTINGS = {
    "events.dispatcher.type": "sync",
    "events.deadline.resources": "off",
    "events.deadline.job": "6min",
    "events.heartbeat.interval": "1min",
    "events.watermark.idle-timeout": "1min",
    "events.reporter.audit.type": "file",
    "events.reporter.audit.heartbeats": "true",
}


class Day:
    """Driver whose time passes only while the session waits for records.

    Args:
        time: clocks of the driver and of the session.
        plan: what happens, by seconds since the start: records of the driver, or a change of the clocks.
    """

    def __init__(self, time: VirtualClocks, plan: dict[float, Callable[[], list[dict[str, Any]]]]) -> None:
        self._time = time
        self._start = time.monotonic
        self._plan = sorted(plan.items(), key=lambda one: one[0])
        self._lines: list[bytes] = []
        self._seq = 0
        self.closed = False

    def read(self, timeout: float | None = None) -> list[bytes]:
        lines, self._lines = self._lines, []
        if lines:
            return lines
        at, happens = self._plan[0]
        left = max(0.0, self._start + at - self._time.monotonic)
        if timeout is not None and timeout < left:
            # Waits end a little late.
            self._time.pass_(timeout + 0.001)
            return []
        self._time.pass_(left)
        del self._plan[0]
        self.tell(*happens())
        # The session sees a change of the clock, or the records, only now.
        lines, self._lines = self._lines, []
        return lines

    def wake(self) -> None:
        pass

    def tell(self, *records: dict[str, Any]) -> None:
        for record in records:
            is_numbered = record["kind"] not in ("hello", "goodbye")
            self._seq += is_numbered
            about = {"seq": self._seq, "at": round(self._time.wall * 1000)} if is_numbered else {}
            self._lines.append(json.dumps({**record, **about}).encode())

    def receive(self, line: bytes) -> None:
        """Answer the session's questions: the job runs."""
        message = json.loads(line)
        if message["kind"] == "inspect":
            asked = {"asked": message["asked"], "overdue": message["overdue"]}
            self.tell({"kind": "inspection", "executors": 1, "cores": 1, "jobs": [[1, 1]], **asked})


def day(path: Path, step: float, at: float) -> list[tuple[str, str, float]]:
    """Return name, severity and time of the events of a day in which the clock is set once.

    The times are seconds since the start, without the step.
    """
    time, before = VirtualClocks(), 0

    def now() -> int:
        return round(time.wall * 1000)

    def begins() -> list[dict[str, Any]]:
        stamp, event_time = iso(now()), {"watermark": iso(now() - 1_000)}
        job = {"kind": "job_start", "job_id": 1, "time": now(), "stages": [1]}
        started = [application_start(time=now()), query_started(timestamp=stamp)]
        return [*started, query_progress(0, timestamp=stamp, eventTime=event_time), job]

    def set_clock() -> list[dict[str, Any]]:
        nonlocal before
        # The reporter has written all events so far, because the dispatcher waits for it.
        before = len(read_events(path))
        time.wall += step
        return []

    def ends() -> list[dict[str, Any]]:
        return [application_end(time=now()), goodbye()]

    driver = Day(time, {0: begins, at: set_clock, 20 * MINUTE: ends})
    driver.tell(hello({**SETTINGS, "events.reporter.audit.path": str(path)}))
    began = time.wall
    options = DriverSessionOptions(clocks=time.clocks)
    session = DriverSession.open(driver, MessageWriter(driver.receive), lambda _: False, options)
    assert session is not None
    session.run()
    times = [one["observed_ts_millis"] / 1000 - began for one in read_events(path)]
    real = [time - (step if number >= before else 0) for number, time in enumerate(times)]
    return [(one["name"], one["severity"], at) for one, at in zip(read_events(path), real, strict=True)]


@pytest.mark.parametrize("step", [-400 * 24 * HOUR, -HOUR, -10, 10, HOUR, 400 * 24 * HOUR])
def test_time_limits_and_heartbeats_survive_a_step_of_the_clock(step: float, tmp_path: Path) -> None:
    """The same deadlines, idle timeouts and heartbeats as without the step, at the time that has really passed."""
    still, stepped = (day(tmp_path / str(by), by, 4 * MINUTE + 7) for by in (0, step))
    limits = [
        [(name, severity, round(at)) for name, severity, at in events if name in LIMITED] for events in (still, stepped)
    ]
    # Deadline after 6 min, idle watermark, three times the deadline, and the end of the job.
    assert [round(at / MINUTE) for *_, at in limits[0]] == [6, 10, 18, 20]
    assert limits[1] == limits[0]
    beats = [sum(name == HEARTBEAT for name, *_ in events) for events in (still, stepped)]
    assert beats[0] >= 20
    assert abs(beats[1] - beats[0]) <= 1
