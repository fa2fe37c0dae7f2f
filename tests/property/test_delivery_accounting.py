"""Tests that every event is delivered in order or counted as dropped, regardless of the reporter's faults."""

from __future__ import annotations

import time

from fakes import FaultyReporter, Step, balances, event, numbers, ok, partly, permanent, throttled, transient
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_events.dispatch.breaker import BreakerConfig
from spark_events.dispatch.delivery import Delivery
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.entries import Entry

STEPS = st.sampled_from([ok, transient, throttled(0.001), permanent, partly(0), partly(2)])


@settings(max_examples=60, deadline=None)
@given(
    script=st.lists(STEPS, max_size=12),
    opening=st.lists(STEPS, max_size=3),
    puts=st.lists(st.integers(0, 5), max_size=5),
    batch=st.integers(1, 4),
    capacity=st.integers(1, 12),
)
def test_every_event_is_delivered_or_dropped_exactly_once(
    script: list[Step], opening: list[Step], puts: list[int], batch: int, capacity: int
) -> None:
    """When all events are settled, accepted = delivered + dropped by reason, and events were delivered in order."""
    reporter = FaultyReporter(script, opening=opening)
    config = DeliveryConfig(batch_size=batch, retry_initial=0.0005, retry_max=0.001)
    delivery = Delivery("r", lambda: reporter, config, capacity, breaker=BreakerConfig(failures=1000))
    delivery.start()
    accepted = 0
    for count in puts:
        delivery.put([Entry(accepted + i + 1, event(accepted + i)) for i in range(count)])
        accepted += count
    assert delivery.wait_until_settled(20)
    delivery.request_stop(time.monotonic() + 20)
    delivery.join()
    counters = delivery.counters()
    assert balances(counters)
    assert (counters.accepted, counters.held) == (accepted, 0)
    seen = numbers(reporter.events)
    assert seen == sorted(set(seen))
    assert len(seen) == counters.delivered
    assert reporter.closed == 1
