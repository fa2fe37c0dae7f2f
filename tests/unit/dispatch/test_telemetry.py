"""What the dispatch tells of itself while it runs."""

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


def test_the_last_numbers_are_told_last() -> None:
    """Those of the end come from another thread than those before, which may be at it in that moment."""
    told: list[Any] = []
    telemetry = DispatcherTelemetry(lambda: None, told.append)
    end = threading.Thread(target=lambda: telemetry.numbers(lambda: counters(9), at_once=True))

    def earlier() -> dict[str, DeliveryCounters]:
        end.start()
        # It must wait: it has all the time to come first.
        end.join(0.2)
        return counters(5)

    telemetry.numbers(earlier)
    end.join(20)
    assert [numbers["r"]["delivered"] for numbers in told] == [5, 9]
