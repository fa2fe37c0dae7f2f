"""A client of Spark Connect, where the server or PySpark does what it should not."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from spark_events.bridge import client


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session whose listeners cannot be taken out."""
    released = threading.Event()
    monkeypatch.setattr(client, "_REMOVE_SECONDS", 0.05)
    monkeypatch.setattr(client, "_listener", lambda records: records)
    streams = SimpleNamespace(
        active=[], addListener=lambda listener: None, removeListener=lambda listener: released.wait()
    )
    yield SimpleNamespace(streams=streams, conf={"spark.app.name": "shop"}, version="4.0.0")
    released.set()


def test_a_listener_that_cannot_be_taken_out_keeps_nobody(hanging: Any) -> None:
    """The goodbye is said all the same: what has happened up to now is delivered."""
    bridge = client.ClientBridge(hanging, {}, "start", patience=10.0)
    bridge.listen()
    bridge.stop()
    kinds = [json.loads(line)["kind"] for line in bridge.records.read()]
    assert kinds == ["hello", "restored", "goodbye"]
