"""Tests of the statistics that the dispatcher reports periodically."""

from __future__ import annotations

import threading
from typing import Any

from spark_events.dispatch.telemetry import DeliveryCounters, DispatcherTelemetry


def counters(delivered: int) -> dict[str, DeliveryCounters]:
    return {
        "r": DeliveryCounters(
            9, delivered, {}, 9 - delivered, failures=0, hung=0, latency=0.0, oldest_age=0.0, breaker="closed"
        )
    }


def test_the_final_numbers_are_reported_last() -> None:
    """The final statistics are sent last, even if another thread is still sending earlier statistics."""
    reports: list[Any] = []
    telemetry = DispatcherTelemetry(lambda: None, reports.append)
    end = threading.Thread(target=lambda: telemetry.numbers(lambda: counters(9), at_once=True))

    def earlier() -> dict[str, DeliveryCounters]:
        end.start()
        # Let the other thread run first; its final statistics must still wait for this thread.
        end.join(0.2)
        return counters(5)

    telemetry.numbers(earlier)
    end.join(20)
    assert [numbers["r"]["delivered"] for numbers in reports] == [5, 9]
