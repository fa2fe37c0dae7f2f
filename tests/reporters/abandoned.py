"""Reporter whose thread is abandoned during a call, as by a destination that does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Sequence

import psutil
from fakes import eventually

from spark_events import Event, MemoryReporter, Reporter
from spark_events.dispatch.delivery import Delivery
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.entries import Entry

__all__ = ["connections", "deliver_abandoned"]

_HOUR = 3600.0


class Blocking(Reporter):
    """Reporter that blocks its thread after another reporter has delivered the events."""

    def __init__(self, inner: Reporter) -> None:
        super().__init__()
        self._inner = inner
        self.gate = threading.Event()
        self.entered = threading.Event()

    def open(self) -> Awaitable[None] | None:
        return self._inner.open()

    async def report(self, events: Sequence[Event]) -> None:
        if (rest := self._inner.report(events)) is not None:
            await rest
        self.entered.set()
        self.gate.wait()

    def close(self) -> Awaitable[None] | None:
        return self._inner.close()

    def release(self) -> Awaitable[None] | None:
        return self._inner.release()


def deliver_abandoned(reporter: Reporter, events: Sequence[Event], port: int) -> None:
    """Deliver events, abandon the reporter's thread, and let its call return; the thread must leave no connection.

    Args:
        reporter: the reporter.
        events: delivered by the reporter; its replacement delivers them to nobody.
        port: port of the destination.
    """
    blocking = Blocking(reporter)
    reporters: list[Reporter] = [blocking, MemoryReporter()]
    delivery = Delivery("peer", lambda: reporters.pop(0), DeliveryConfig(timeout=60.0), 100)
    delivery.start()
    thread = delivery._threads.current
    try:
        delivery.put([Entry(0, event) for event in events])
        assert blocking.entered.wait(60)
        assert connections(port)
        delivery.check(time.monotonic() + _HOUR)
        assert delivery.tally.hung == 1
    finally:
        blocking.gate.set()
        delivery.request_stop(time.monotonic() + 20)
        delivery.join()
    eventually(lambda: not thread.is_alive, what="the end of the abandoned thread")
    # librdkafka closes its connections in threads of its own.
    eventually(lambda: not connections(port), what="the end of the connections")


def connections(port: int) -> list[str]:
    """Return the states of this process's connections to a port."""
    found = psutil.Process().net_connections("tcp")
    return [one.status for one in found if one.raddr and one.raddr.port == port and one.status != "TIME_WAIT"]
