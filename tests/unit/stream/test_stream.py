"""Tests of a stream whose driver does not answer."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from spark_events.sidecar.driver_session import DriverSession
from spark_events.stream.driver_bridge import DriverBridge
from spark_events.stream.event_history import EventHistory
from spark_events.stream.event_stream import EventStream


class Silent:
    """Test double of a driver session that ends on request, and of its bridge, whose ``stop`` fails."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def run(self) -> None:
        self.over.wait()

    def stop(self) -> None:
        self.over.set()
        raise RuntimeError("no such method")

    def __getattr__(self, name: str) -> Any:
        return lambda: None


def test_a_failed_request_to_stop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """If the driver cannot stop the recording, the stream logs the error and ends with its driver session."""
    silent = Silent()
    ended: list[EventStream] = []
    stream = EventStream(
        cast(DriverSession, silent), cast(DriverBridge, silent), EventHistory(1), 10.0, "here", False, ended.append
    )
    stream.begin()
    stream.stop()
    assert not stream.is_running
    assert ended == [stream]
    assert "cannot stop recording Spark's events; the stream ends with the JVM: RuntimeError" in caplog.text
