"""Fixtures for tests of a single reporter's delivery."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes import event

from spark_events import Reporter
from spark_events.dispatch.breaker import Breaker, BreakerConfig
from spark_events.dispatch.delivery import Delivery
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.mailbox import Mailbox

Begin = Callable[..., Delivery]


def entries(count: int, first: int = 0) -> list[Entry]:
    """Return one entry per record; the body of the first event is ``first``, its record number is 1 higher."""
    return [Entry(number + 1, event(number)) for number in range(first, first + count)]


class RecordingStore(Mailbox):
    """Store that records the time that remains at ``close``, and the number of waits for space.

    Args:
        capacity: number of events.
        is_durable: value of the property.
    """

    def __init__(self, capacity: int = 100, is_durable: bool = True) -> None:
        super().__init__(capacity)
        self.left = 0.0
        self.waits = 0
        self.is_durable = is_durable

    def wait_for_room(self, weight: int, timeout: float) -> bool:
        self.waits += 1
        return super().wait_for_room(weight, timeout)

    def close(self, until: float) -> None:
        self.left = until - time.monotonic()
        super().close(until)


@pytest.fixture
def late_attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the messages about attempts that succeeded after their timeout.

    Each of these attempts counts as a failure although no fault was scripted. On a busy machine, a short timeout may
    cause such attempts.
    """
    settled: list[str] = []
    failed = Breaker.failed

    def record(breaker: Breaker, why: str) -> None:
        if why.startswith("an attempt took"):
            settled.append(why)
        failed(breaker, why)

    monkeypatch.setattr(Breaker, "failed", record)
    return settled


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Return a function that starts a delivery without a circuit breaker.

    After the test, the fixture stops all deliveries.
    """
    begun: list[Delivery] = []

    def _begin(name: str, make: Callable[[], Reporter], capacity: int, **config: Any) -> Delivery:
        begun.append(Delivery(name, make, DeliveryConfig(**config), capacity, breaker=BreakerConfig(failures=1000)))
        begun[-1].start()
        return begun[-1]

    yield _begin
    for delivery in begun:
        delivery.request_stop(time.monotonic() + 0.5)
        delivery.join()
