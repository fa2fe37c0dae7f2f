"""Tests of heartbeats in a real sidecar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fakes import FakeDriver, application_end, application_start, eventually, goodbye, read_events


def heartbeats(path: Path) -> list[dict[str, Any]]:
    return [event for event in read_events(path) if event["name"] == "HeartbeatEvent"]


def test_a_sidecar_sends_heartbeats_to_the_reporters_that_ask(tmp_path: Path) -> None:
    """Heartbeats need no records in between; they stop when the application ends."""
    asks, other = tmp_path / "asks.jsonl", tmp_path / "other.jsonl"
    settings = {
        "events.heartbeat.interval": "200ms",
        "events.reporter.asks.type": "file",
        "events.reporter.asks.path": str(asks),
        "events.reporter.asks.heartbeats": "true",
        "events.reporter.asks.filter.min-severity": "WARN",
        "events.reporter.other.type": "file",
        "events.reporter.other.path": str(other),
    }
    with FakeDriver(tmp_path / "errors", settings) as driver:
        driver.send_records(application_start())
        eventually(lambda: len(heartbeats(asks)) >= 3, what="three heartbeats")
        driver.send_records(application_end())
        driver.send(goodbye())
        assert driver.await_exit() == 0
    assert heartbeats(other) == []
    assert [event["name"] for event in read_events(other)] == ["JobStatusChangeEvent"] * 2 + ["DispatcherReportEvent"]
    sequences = [event["sequence"] for event in heartbeats(asks)]
    assert sequences == sorted(set(sequences))
