"""Fan-out to every reporter: what is complete, who waits for whom, and how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
from fakes import FaultyReporter, GatedReporter, event, eventually, hang, numbers, permanent, transient

from spark_events import Reporter
from spark_events.dispatch.breaker import BreakerConfig
from spark_events.dispatch.delivery import Delivery, DeliveryConfig, Hooks
from spark_events.dispatch.dispatcher import AsyncQueuedDispatcher, DispatcherConfig, SyncDispatcher, create
from spark_events.dispatch.store import Entry

NEVER = BreakerConfig(failures=1000)


def _same(reporter: Reporter) -> Reporter:
    return reporter


def deliveries(*reporters: Reporter) -> list[Delivery]:
    config = DeliveryConfig(retry_initial=0.001, retry_max=0.002, batch_size=10)
    return [
        Delivery(f"r{i}", partial(_same, reporter), config, 100, breaker=NEVER) for i, reporter in enumerate(reporters)
    ]


@pytest.fixture
def gated() -> Iterator[GatedReporter]:
    reporter = GatedReporter()
    yield reporter
    reporter.gate.set()


def entries(first: int, last: int) -> list[Entry]:
    """One entry a record, from ``first`` to ``last``."""
    return [Entry(number, event(number)) for number in range(first, last + 1)]


def test_the_configuration_chooses_the_type() -> None:
    """sync and async-queued are the names of FLIP-545."""
    assert type(create(DispatcherConfig(type="sync"), [])) is SyncDispatcher
    assert type(create(DispatcherConfig(type="async-queued"), [])) is AsyncQueuedDispatcher


def test_every_reporter_gets_every_event() -> None:
    """Fan-out: the same events, in the same order, for all."""
    reporters = [FaultyReporter(), FaultyReporter([transient])]
    dispatcher = SyncDispatcher(deliveries(*reporters), timeout=20)
    dispatcher.start()
    dispatcher.dispatch(entries(1, 5), 5)
    dispatcher.stop(time.monotonic() + 20)
    assert [numbers(reporter.events) for reporter in reporters] == [[1, 2, 3, 4, 5]] * 2


def test_sync_returns_when_all_have_answered() -> None:
    """Having returned, every event is with every reporter, retries included."""
    reporters = [FaultyReporter([transient, transient]), FaultyReporter([permanent])]
    dispatcher = SyncDispatcher(deliveries(*reporters), timeout=20)
    dispatcher.start()
    dispatcher.dispatch(entries(1, 3), 3)
    assert numbers(reporters[0].events) == [1, 2, 3]
    assert (dispatcher.completed_through(), dispatcher.timeouts) == (3, 0)
    dispatcher.stop(time.monotonic() + 20)


def test_sync_gives_up_waiting_and_counts_it(gated: GatedReporter, caplog: pytest.LogCaptureFixture) -> None:
    """A reporter that does not answer costs one timeout, is counted and named; the others get their events."""
    other = FaultyReporter()
    dispatcher = SyncDispatcher(deliveries(gated, other), timeout=0.05)
    dispatcher.start()
    dispatcher.dispatch(entries(1, 1), 1)
    assert (dispatcher.timeouts, dispatcher.completed_through()) == (1, 0)
    assert caplog.text.count("reporter r0: has not answered within events.dispatcher.sync.timeout") == 1
    eventually(lambda: numbers(other.events) == [1])
    gated.gate.set()
    dispatcher.stop(time.monotonic() + 20)


def test_sync_waits_again_for_a_reporter_that_has_caught_up(
    gated: GatedReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Being late costs one timeout and not one a record; having caught up, it is waited for as before."""
    (delivery,) = deliveries(gated)
    patience: list[bool] = []

    def wait(timeout: float) -> bool:
        patience.append(timeout > 0)
        return Delivery.wait_until_answered(delivery, timeout)

    monkeypatch.setattr(delivery, "wait_until_answered", wait)
    dispatcher = SyncDispatcher([delivery], timeout=0.05)
    dispatcher.start()
    for number in (1, 2, 3):
        dispatcher.dispatch(entries(number, number), number)
    gated.gate.set()
    eventually(lambda: dispatcher.completed_through() == 3)
    for number in (4, 5):
        dispatcher.dispatch(entries(number, number), number)
    # Late after the first; then asked before and behind each; caught up before the fourth.
    assert patience == [True, False, False, False, False, False, True, True]
    dispatcher.stop(time.monotonic() + 20)
    assert numbers(gated.events) == [1, 2, 3, 4, 5]


def test_sync_without_events_does_not_wait_for_anybody() -> None:
    """A record that means nothing costs nothing."""
    dispatcher = SyncDispatcher(deliveries(FaultyReporter()), timeout=20)
    dispatcher.start()
    dispatcher.dispatch([], 9)
    assert dispatcher.completed_through() == 9
    dispatcher.stop(time.monotonic() + 20)


def test_async_returns_while_a_reporter_is_stuck(gated: GatedReporter) -> None:
    """Offering to a mailbox never waits, and one stuck reporter does not hold up the next."""
    other = FaultyReporter()
    dispatcher = AsyncQueuedDispatcher(deliveries(gated, other))
    dispatcher.start()
    dispatcher.dispatch(entries(1, 1), 1)
    assert gated.entered.wait(20)
    dispatcher.dispatch(entries(2, 50), 50)
    assert not gated.events
    eventually(lambda: len(other.events) == 50)
    gated.gate.set()
    dispatcher.stop(time.monotonic() + 20)
    assert numbers(gated.events) == list(range(1, 51))


def test_a_record_is_complete_when_every_reporter_has_settled_it(gated: GatedReporter) -> None:
    """The slowest reporter decides what may be acknowledged."""
    progressed = threading.Event()
    quick = Delivery("quick", FaultyReporter, DeliveryConfig(), 100, Hooks(progressed.set))
    (slow,) = deliveries(gated)
    dispatcher = AsyncQueuedDispatcher([quick, slow])
    assert dispatcher.completed_through() == 0
    dispatcher.start()
    dispatcher.dispatch(entries(1, 1), 3)
    assert gated.entered.wait(20)
    assert progressed.wait(20)
    assert dispatcher.completed_through() == 0
    dispatcher.dispatch(entries(4, 4), 5)
    assert dispatcher.completed_through() == 0
    gated.gate.set()
    eventually(lambda: dispatcher.completed_through() == 5)
    dispatcher.stop(time.monotonic() + 20)


def test_records_without_events_are_complete_up_to_the_next_that_has_some(gated: GatedReporter) -> None:
    """Everything before the oldest event that is under way is done with."""
    dispatcher = AsyncQueuedDispatcher(deliveries(gated))
    dispatcher.start()
    dispatcher.dispatch(entries(7, 7), 9)
    assert dispatcher.completed_through() == 6
    gated.gate.set()
    eventually(lambda: dispatcher.completed_through() == 9)
    dispatcher.stop(time.monotonic() + 20)


def test_events_that_were_given_up_are_complete() -> None:
    """A permanent failure must not keep records in the driver for ever."""
    dispatcher = SyncDispatcher(deliveries(FaultyReporter(forever=permanent)), timeout=20)
    dispatcher.start()
    dispatcher.dispatch(entries(1, 2), 2)
    assert dispatcher.completed_through() == 2
    dispatcher.stop(time.monotonic() + 20)


def test_a_stop_is_one_deadline_for_all() -> None:
    """Reporters that hang are waited for side by side, not one after the other."""
    reporters = [FaultyReporter(forever=hang) for _ in range(4)]
    dispatcher = AsyncQueuedDispatcher(deliveries(*reporters))
    dispatcher.start()
    dispatcher.dispatch(entries(1, 3), 3)
    for reporter in reporters:
        eventually(lambda reporter=reporter: reporter.attempts)
    before = time.monotonic()
    dispatcher.stop(before + 0.5)
    assert time.monotonic() - before < 1.9
