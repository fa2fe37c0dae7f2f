"""Tests of a Spark Connect client, and of the workarounds for PySpark defects."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from spark_events.stream import client_bridge


class Server:
    """Test double of a server that sends one more event while its listener is being removed."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def execute_command(self, _: Any) -> None:
        self.asked.set()

    def execute_command_as_iterator(self, _: Any) -> Iterator[dict[str, Any]]:
        import pyspark.sql.connect.proto as pb2

        kind = "streaming_query_listener_events_result"
        yield {kind: pb2.StreamingQueryListenerEventsResult(listener_bus_listener_added=True)}
        assert self.asked.wait(20)
        run = "00000000-0000-0000-0000-000000000001"
        idle = json.dumps({"id": run, "runId": run, "timestamp": "2026-01-31T10:00:00.000Z"})
        event = pb2.StreamingQueryListenerEvent(event_json=idle, event_type=pb2.QUERY_IDLE_EVENT)
        yield {kind: pb2.StreamingQueryListenerEventsResult(events=[event])}


@pytest.fixture
def session() -> Any:
    """Return a session that has PySpark's listener bus but no server."""
    from pyspark.sql.connect.streaming import query

    manager: Any = SimpleNamespace(active=[], _session=SimpleNamespace(client=Server()))
    manager._sqlb = query.StreamingQueryListenerBus(manager)
    manager.addListener, manager.removeListener = manager._sqlb.append, manager._sqlb.remove
    return SimpleNamespace(streams=manager, conf={"spark.app.name": "shop"}, version="4.0.0")


def kinds(bridge: client_bridge.ClientBridge) -> list[str]:
    return [json.loads(line)["kind"] for line in bridge.records.read()]


def test_event_during_listener_removal_causes_no_deadlock(session: Any) -> None:
    """If an event arrives while the listener is being removed, PySpark's two threads do not deadlock."""
    bridge = client_bridge.ClientBridge(session, {}, "start", patience=10.0, removal=1.0)
    bridge.listen()
    handler = session.streams._sqlb._execution_thread
    bridge.stop()
    handler.join(20)
    assert not handler.is_alive()
    assert kinds(bridge) == ["hello", "restored", "query_idle", "goodbye"]
    # The lock has been released, so the session can start another stream.
    assert session.streams._sqlb._lock.acquire(timeout=20)


def test_slow_listener_of_the_user_keeps_its_lock(session: Any) -> None:
    """If a user's slow listener holds PySpark's lock, the lock stays held, and the listener receives the next event."""
    listeners = session.streams._sqlb
    bridge = client_bridge.ClientBridge(session, {}, "start", patience=10.0, removal=1.0)
    bridge.listen()
    listeners._listener_bus.append(object())
    with listeners._lock:
        bridge.stop()
        assert listeners._lock.locked()
    assert kinds(bridge) == ["hello", "restored", "goodbye"]
    session.streams._session.client.asked.set()


def test_goodbye_is_sent_if_no_thread_can_be_started(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no thread can be started, as at interpreter shutdown, the previous records and the goodbye are still sent."""

    def cannot(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    bridge = client_bridge.ClientBridge(session, {}, "start", patience=10.0, removal=1.0)
    bridge.listen()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot)
        bridge.stop()
    assert kinds(bridge)[-1] == "goodbye"
    bridge.stop()
