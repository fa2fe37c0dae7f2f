"""What tests of one reporter's delivery share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spark_events import Reporter
from spark_events.dispatch.breaker import Breaker, BreakerConfig
from spark_events.dispatch.config import DeliveryConfig
from spark_events.dispatch.delivery import Delivery
from spark_events.dispatch.mailbox import Mailbox

Begin = Callable[..., Delivery]


class Kept(Mailbox):
    """A store that is safe by its own word; it knows with how much time left it was closed, and who waited for room."""

    def __init__(self, capacity: int = 100, is_durable: bool = True) -> None:
        super().__init__(capacity)
        self.left = 0.0
        self.waits = 0
        self.is_durable = is_durable

    def wait_for_room(self, weight: int, timeout: float) -> bool:
        self.waits += 1
        return super().wait_for_room(weight, timeout)

    def close(self, deadline: float) -> None:
        self.left = deadline - time.monotonic()
        super().close(deadline)


@pytest.fixture
def tardy(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """RetryLoop that did their work, but came back behind their timeout: each is a failure, by nobody's script.

    On a busy machine any may, where the timeout is short.
    """
    told: list[str] = []
    failed = Breaker.failed

    def noted(breaker: Breaker, why: str) -> None:
        if why.startswith("an attempt took"):
            told.append(why)
        failed(breaker, why)

    monkeypatch.setattr(Breaker, "failed", noted)
    return told


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Starts deliveries that are never left alone, and stops them at the end of the test."""
    begun: list[Delivery] = []

    def _begin(name: str, make: Callable[[], Reporter], capacity: int, **config: Any) -> Delivery:
        begun.append(Delivery(name, make, DeliveryConfig(**config), capacity, breaker=BreakerConfig(failures=1000)))
        begun[-1].start()
        return begun[-1]

    yield _begin
    for delivery in begun:
        delivery.request_stop(time.monotonic() + 0.5)
        delivery.join()
