"""Tests of reporters that reconfigure logging: no event is lost, and the driver's log still receives messages."""

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
    ("kind", "isolation"),
    [("ReconfiguresLogging", "thread"), ("ReconfiguresLogging", "process"), ("DisablesLogging", "thread")],
)
def test_reconfigured_logging_does_not_disconnect_the_driver_s_log(
    tmp_path: Path, kind: str, isolation: str, witness: Witness
) -> None:
    """All events are counted as delivered, and the driver's log contains the sidecar's messages."""
    with driver_of(tmp_path, f"logs_badly:{kind}", isolation) as driver:
        driver.send_records(application_start(), *(query_started(f"r{n}", f"q{n}") for n in range(_EVENTS - 1)))
        eventually(lambda: len(read_events(tmp_path / "events.jsonl")) == _EVENTS)
        (tmp_path / "events.jsonl").unlink()
        (tmp_path / "events.jsonl").mkdir()
        driver.send_records(query_started("r", "last"))
        eventually(lambda: any("reporter rude: failed" in one.get("message", "") for one in driver.answers))
        deadline = time.monotonic() + 5
        driver.send(goodbye(5_000))
        assert driver.await_exit(within=20) == 0
    lines = [one["message"] for one in driver.answers if one["kind"] == "event"]
    assert sum("] JobStatusChangeEvent: " in line for line in lines) == _EVENTS + 1
    # The sidecar sends its final report in the last tenth of the time, so the report may be missing if the machine
    # stalls. The report also counts the event about the opened circuit breaker.
    reports = [line for line in lines if "] DispatcherReportEvent: " in line]
    logged = len(lines) - len(reports)
    reported = any("rude 21 of " in line and f"lines {logged} of {logged} delivered" in line for line in reports)
    assert reported or witness.took(deadline - 1, deadline) < 0.5, lines


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_logging_error_does_not_fail_the_delivery(tmp_path: Path, isolation: str) -> None:
    """If a reporter's log call fails, no error is raised, so a delivered batch is not repeated."""
    with driver_of(tmp_path, "logs_badly:LogsBadMessages", isolation) as driver:
        driver.send_records(application_start(), *(query_started(f"r{n}", f"q{n}") for n in range(_EVENTS - 1)))
        driver.send(goodbye(10_000))
        assert driver.await_exit(within=20) == 0
    events = read_events(tmp_path / "events.jsonl")
    assert [one["sequence"] for one in events] == list(range(1, _EVENTS + 2))
    assert events[-1]["body"].startswith(f"shop: events by reporter: rude {_EVENTS} of {_EVENTS} delivered; ")
    messages = {one["message"] for one in driver.answers if one["kind"] == "log"}
    assert "skipped caf?" in messages
    assert any(line.startswith("%d items (cannot be formatted: TypeError: ") for line in messages)
