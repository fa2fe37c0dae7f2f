"""Tests of heartbeats in a real sidecar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import FakeDriver, application_end, application_start, eventually, goodbye, read_events

from spark_events.config import Settings
from spark_events.dispatch.pipeline_plan import read


def heartbeats(path: Path) -> list[dict[str, Any]]:
    return [event for event in read_events(path) if event["name"] == "HeartbeatEvent"]


def test_a_sidecar_sends_heartbeats_to_reporters_that_enable_them(tmp_path: Path) -> None:
    """Heartbeats need no records, reach only reporters with `heartbeats`, and stop when the application ends."""
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


@pytest.mark.parametrize(("heartbeats", "warnings"), [("false", 1), ("true", 0)])
def test_an_interval_that_no_reporter_uses_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, heartbeats: str, warnings: int
) -> None:
    """An interval without a reporter that receives heartbeats causes a warning: `spark-events watch` needs them."""
    read(
        Settings.of(
            {
                "events.heartbeat.interval": "1min",
                "events.reporter.audit.type": "file",
                "events.reporter.audit.path": str(tmp_path / "events.jsonl"),
                "events.reporter.audit.heartbeats": heartbeats,
            }
        )
    )
    found = [record for record in caplog.messages if "no reporter reports heartbeats" in record]
    assert len(found) == warnings
