"""Tests of a driver's JVM that exits while a stream starts."""

from __future__ import annotations

import pytest

from spark_events.errors import SessionError
from spark_events.stream import start as start_module
from spark_events.stream.driver_bridge import DriverBridge


class EndedJvm:
    """Test double of a JVM that exits between two calls. A real JVM cannot exit at an exact moment."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def fetch(self, milliseconds: int) -> bytes:
        raise ConnectionError(f"the JVM has gone, within {milliseconds} ms")

    def __getattr__(self, name: str) -> object:
        return lambda *_: self.calls.append(name)


def test_a_driver_that_ends_during_the_start_raises_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the driver exits during the start, one error contains the reason, and no stream is registered."""
    shim = EndedJvm()
    monkeypatch.setattr(start_module, "session_of", lambda spark: spark)
    monkeypatch.setattr(start_module, "_application_of", lambda session: "gone")
    monkeypatch.setattr(start_module, "_open", lambda *_: DriverBridge(shim))
    with pytest.raises(SessionError, match="the driver ended, or did not answer") as caught:
        start_module.start(object())
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert "gone" not in start_module._running
    assert "listen" not in shim.calls
