"""Reporter in its own pipeline, which is built from settings as in the sidecar."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fakes import balances, eventually

from spark_events import Event
from spark_events.config import Settings
from spark_events.dispatch.delivery import Delivery
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.pipeline import build
from spark_events.dispatch.telemetry import DeliveryCounters

__all__ = ["IMPATIENT", "Running"]

#: Settings for tests with unavailable destinations: short retry pauses, and a circuit breaker that stays closed.
IMPATIENT = {"retry.initial": "20ms", "retry.max": "50ms", "circuit-breaker.failures": "1000"}


class Running:
    """Running reporter, as a context manager that stops the reporter and verifies its counters.

    Args:
        type_name: type of the reporter.
        settings: settings of the reporter, without the prefix.
        grace: how long a call may exceed its time limit, in seconds. Raise it if a slow machine could make a call count
            as blocking.
    """

    def __init__(self, type_name: str, settings: dict[str, str], grace: float = Delivery.grace) -> None:
        keys = {f"events.reporter.peer.{key}": value for key, value in {**settings, "type": type_name}.items()}
        keys |= {"events.dispatcher.queue.size": "20000", "events.dispatcher.type": "async-queued"}
        pipeline = build(Settings.of(keys))
        self._dispatcher = pipeline.dispatcher
        (self._delivery,) = pipeline.deliveries
        self._delivery.grace = grace
        self._stopped = False
        self._dispatcher.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._stopped:
            self.stop()

    @property
    def counters(self) -> DeliveryCounters:
        return self._delivery.counters()

    def put(self, events: Sequence[Event]) -> None:
        self._dispatcher.dispatch([Entry(0, event) for event in events], 0)

    def deliver(self, events: Sequence[Event] = (), within: float = 30) -> None:
        """Enqueue events and wait until all enqueued events are settled."""
        self.put(events)
        assert self._delivery.wait_until_settled(within), self.counters

    def await_failures(self, count: int = 1) -> None:
        """Wait until ``count`` further attempts have failed."""
        before = self.counters.failures
        eventually(lambda: self.counters.failures >= before + count, what=f"{count} failures after {before}")

    def stop(self, within: float = 10) -> float:
        """Stop the reporter and return the time at which the stop began."""
        self._stopped = True
        began = time.monotonic()
        self._dispatcher.stop(began + within)
        assert balances(self.counters)
        return began
