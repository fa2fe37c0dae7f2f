"""Other people's logging in the sidecar: it costs no event, and does not cut the driver's log off."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fakes import FakeDriver, application_start, eventually, goodbye, query_started, read_events
from lateness import Witness

pytestmark = pytest.mark.faults

_EVENTS = 21


def driver_of(tmp_path: Path, kind: str, isolation: str) -> FakeDriver:
    keys = {"type": kind, "isolation": isolation, "path": str(tmp_path / "events.jsonl")}
    settings = {f"events.reporter.rude.{key}": value for key, value in keys.items()}
    settings |= {"events.reporter.lines.type": "log", "events.reporter.lines.destination": "log4j"}
    settings |= {"events.dispatcher.type": "async-queued", "events.reporter.rude.batch.size": "1"}
    return FakeDriver(tmp_path / "stderr", settings)


@pytest.mark.parametrize(
    ("kind", "isolation"), [("SetsItUpAnew", "thread"), ("SetsItUpAnew", "process"), ("SwitchesItOff", "thread")]
)
def test_who_sets_logging_up_does_not_cut_the_driver_s_log_off(
    tmp_path: Path, kind: str, isolation: str, witness: Witness
) -> None:
    """What counts as delivered into the driver's log is there, and so is what the sidecar itself has to say."""
    with driver_of(tmp_path, f"logs_badly:{kind}", isolation) as driver:
        driver.tell(application_start(), *(query_started(f"r{n}", f"q{n}") for n in range(_EVENTS - 1)))
        eventually(lambda: len(read_events(tmp_path / "events.jsonl")) == _EVENTS)
        (tmp_path / "events.jsonl").unlink()
        (tmp_path / "events.jsonl").mkdir()
        driver.tell(query_started("r", "last"))
        eventually(lambda: any("reporter rude: failed" in one.get("message", "") for one in driver.answers))
        deadline = time.monotonic() + 5
        driver.send(goodbye(5_000))
        assert driver.await_exit(within=20) == 0
    lines = [one["message"] for one in driver.answers if one["kind"] == "event"]
    assert sum(line.startswith("JobStatusChangeEvent: ") for line in lines) == _EVENTS + 1
    # For this one a tenth of that time is left, behind all others; where the machine stood still, nothing. A breaker
    # that opens is told of, too.
    reports = [line for line in lines if line.startswith("DispatcherReportEvent: ")]
    told = len(lines) - len(reports)
    reported = any("rude 21 of " in line and f"lines {told} of {told} delivered" in line for line in reports)
    assert reported or witness.took(deadline - 1, deadline) < 0.5, lines


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_line_that_cannot_be_logged_does_not_fail_the_delivery(tmp_path: Path, isolation: str) -> None:
    """Logging never raises; a batch that was delivered is not delivered again for what was said about it."""
    with driver_of(tmp_path, "logs_badly:LogsWhatCannotBe", isolation) as driver:
        driver.tell(application_start(), *(query_started(f"r{n}", f"q{n}") for n in range(_EVENTS - 1)))
        driver.send(goodbye(10_000))
        assert driver.await_exit(within=20) == 0
    events = read_events(tmp_path / "events.jsonl")
    assert [one["sequence"] for one in events] == list(range(1, _EVENTS + 2))
    assert events[-1]["body"].startswith(f"Events by reporter: rude {_EVENTS} of {_EVENTS} delivered; ")
    said = {one["message"] for one in driver.answers if one["kind"] == "log"}
    assert "skipped caf?" in said
    assert any(line.startswith("%d items (cannot be formatted: TypeError: ") for line in said)
