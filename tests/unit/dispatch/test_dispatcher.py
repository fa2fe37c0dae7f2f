"""Tests of the dispatchers: fan-out, completion, waiting, and shutdown."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
from fakes import FaultyReporter, GatedReporter, event, eventually, hang, numbers, permanent, transient
from lateness import Witness

from spark_events import Reporter
from spark_events.dispatch.breaker import BreakerConfig
from spark_events.dispatch.delivery import Delivery, Hooks
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.dispatcher import Dispatcher
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.mailbox import Mailbox
from unit.dispatch.conftest import RecordingStore

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
    """Return one entry per record, with the numbers from ``first`` to ``last``."""
    return [Entry(number, event(number)) for number in range(first, last + 1)]


def test_every_reporter_gets_every_event() -> None:
    reporters = [FaultyReporter(), FaultyReporter([transient])]
    dispatcher = Dispatcher(deliveries(*reporters), 20, sync=True)
    dispatcher.start()
    dispatcher.dispatch(entries(1, 5), 5)
    dispatcher.stop(time.monotonic() + 20)
    assert [numbers(reporter.events) for reporter in reporters] == [[1, 2, 3, 4, 5]] * 2


def test_sync_returns_when_all_reporters_have_settled() -> None:
    """The sync dispatcher returns when every reporter has settled every event, including retries and rejections."""
    reporters = [FaultyReporter([transient, transient]), FaultyReporter([permanent])]
    dispatcher = Dispatcher(deliveries(*reporters), 20, sync=True)
    dispatcher.start()
    dispatcher.dispatch(entries(1, 3), 3)
    eventually(lambda: dispatcher.progress().answered_seq == 3)
    assert numbers(reporters[0].events) == [1, 2, 3]
    dispatcher.stop(time.monotonic() + 20)


def test_sync_skips_a_late_reporter_until_it_has_caught_up(
    gated: GatedReporter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late reporter delays the dispatcher by one timeout and is logged once.

    Afterwards, the dispatcher does not wait for this reporter.
    """
    other, age, timeout = FaultyReporter(), Mailbox.unanswered_for, 3600.0
    both = deliveries(gated, other)
    ages: dict[object, float] = dict.fromkeys((one.store for one in both), 0.0)
    late = both[0].store
    # Instead of waiting, the test sets the age of unanswered events.
    monkeypatch.setattr(Mailbox, "unanswered_for", lambda box: age(box) and ages[box])
    dispatcher = Dispatcher(both, timeout, sync=True)
    dispatcher.start()
    dispatcher.dispatch(entries(1, 1), 1)
    assert gated.entered.wait(20)
    assert dispatcher.progress().answered_seq == 0
    ages[late] = timeout + 1
    eventually(lambda: dispatcher.progress().answered_seq == 1)
    dispatcher.dispatch(entries(2, 2), 2)
    eventually(lambda: dispatcher.progress().answered_seq == 2)
    assert (dispatcher.progress().settled_seq, numbers(other.events)) == (0, [1, 2])
    assert dispatcher.counters()["r0"].timeouts == 1
    assert dispatcher.counters()["r1"].timeouts == 0
    gated.gate.set()
    eventually(lambda: dispatcher.progress().settled_seq == 2)
    eventually(lambda: not dispatcher._late)
    gated.gate.clear()
    gated.entered.clear()
    ages[late] = 0.0
    dispatcher.dispatch(entries(3, 3), 3)
    assert gated.entered.wait(20)
    # The reporter has delivered its backlog, so the dispatcher waits for it again. Now the reporter is late again.
    assert dispatcher.progress().answered_seq == 2
    ages[late] = timeout + 1
    eventually(lambda: dispatcher.progress().answered_seq == 3)
    assert dispatcher.counters()["r0"].timeouts == 2
    assert caplog.text.count("reporter r0: did not answer within spark.events.dispatcher.sync.timeout") == 1
    gated.gate.set()
    dispatcher.stop(time.monotonic() + 20)
    assert numbers(gated.events) == [1, 2, 3]


def test_sync_does_not_wait_for_an_open_breaker() -> None:
    """While a destination's circuit breaker is open, no timeout occurs, because the events are held."""
    dead = Delivery(
        "dead",
        lambda: FaultyReporter(forever=transient),
        DeliveryConfig(retry_initial=0.001),
        100,
        breaker=BreakerConfig(failures=2),
    )
    dispatcher = Dispatcher([dead, *deliveries(FaultyReporter())], 3600, sync=True)
    dispatcher.start()
    dispatcher.dispatch(entries(1, 1), 1)
    eventually(lambda: dispatcher.progress().answered_seq == 1)
    assert (dispatcher.progress().settled_seq, dead.counters().timeouts) == (0, 0)
    dispatcher.stop(time.monotonic())


def test_time_with_an_open_breaker_does_not_count_as_late(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Time with an open breaker does not count towards the timeout. A reporter that is late afterwards is skipped."""
    monkeypatch.setattr(Mailbox, "unanswered_for", lambda box: 11.0)
    held, config = threading.Event(), DeliveryConfig(retry_initial=0.001)
    hooks = Hooks(on_breaker=lambda *change: held.set())
    dead = Delivery(
        "dead", lambda: FaultyReporter(forever=transient), config, 100, hooks, breaker=BreakerConfig(failures=2)
    )
    dead.start()
    dead.put(entries(1, 1))
    assert held.wait(20)
    dispatcher = Dispatcher([dead], 10, sync=True)
    dispatcher.note_late()
    assert dead.counters().timeouts == 0
    assert "events.dispatcher.sync.timeout" not in caplog.text
    monkeypatch.setattr(Delivery, "is_paused", False)
    dispatcher.note_late()
    assert not dispatcher.waits_for(dead)
    assert dead.counters().timeouts == 0
    dead.request_stop(time.monotonic())
    dead.join()


def test_async_waits_only_for_guaranteed_reporters(gated: GatedReporter) -> None:
    """With async-queued, the driver waits only for guaranteed reporters, and never waits if there are none."""
    promised = FaultyReporter()
    config = DeliveryConfig(guarantee="guaranteed")
    dispatcher = Dispatcher([*deliveries(gated), Delivery("p", lambda: promised, config, 100)], 3600)
    dispatcher.start()
    dispatcher.dispatch(entries(1, 1), 1)
    eventually(lambda: dispatcher.progress().answered_seq == 1)
    assert (numbers(promised.events), dispatcher.progress().settled_seq) == ([1], 0)
    gated.gate.set()
    dispatcher.stop(time.monotonic() + 20)
    assert Dispatcher(deliveries(FaultyReporter()), 3600).progress().answered_seq == 0


def test_sync_without_events_does_not_wait() -> None:
    dispatcher = Dispatcher(deliveries(FaultyReporter()), 20, sync=True)
    dispatcher.start()
    dispatcher.dispatch([], 9)
    assert (dispatcher.progress().settled_seq, dispatcher.progress().answered_seq) == (9, 9)
    dispatcher.stop(time.monotonic() + 20)


def test_async_returns_while_a_reporter_is_stuck(gated: GatedReporter) -> None:
    """With async-queued, a hanging reporter delays neither the driver nor other reporters."""
    other = FaultyReporter()
    dispatcher = Dispatcher(deliveries(gated, other), 20)
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
    progressed = threading.Event()
    quick = Delivery("quick", FaultyReporter, DeliveryConfig(), 100, Hooks(progressed.set))
    (slow,) = deliveries(gated)
    dispatcher = Dispatcher([quick, slow], 20)
    assert dispatcher.progress().settled_seq == 0
    dispatcher.start()
    dispatcher.dispatch(entries(1, 1), 3)
    assert gated.entered.wait(20)
    assert progressed.wait(20)
    assert dispatcher.progress().settled_seq == 0
    dispatcher.dispatch(entries(4, 4), 5)
    assert dispatcher.progress().settled_seq == 0
    gated.gate.set()
    eventually(lambda: dispatcher.progress().settled_seq == 5)
    dispatcher.stop(time.monotonic() + 20)


def test_records_without_events_are_complete_up_to_the_oldest_pending_event(gated: GatedReporter) -> None:
    dispatcher = Dispatcher(deliveries(gated), 20)
    dispatcher.start()
    dispatcher.dispatch(entries(7, 7), 9)
    assert dispatcher.progress().settled_seq == 6
    gated.gate.set()
    eventually(lambda: dispatcher.progress().settled_seq == 9)
    dispatcher.stop(time.monotonic() + 20)


def test_rejected_events_are_complete() -> None:
    """Permanently rejected events complete their record, so the driver can delete the record."""
    dispatcher = Dispatcher(deliveries(FaultyReporter(forever=permanent)), 20, sync=True)
    dispatcher.start()
    dispatcher.dispatch(entries(1, 2), 2)
    assert eventually(lambda: dispatcher.progress().settled_seq == 2)
    dispatcher.stop(time.monotonic() + 20)


def test_a_stop_has_one_deadline_for_all_reporters(witness: Witness) -> None:
    """All hanging reporters share the deadline of a stop, so their delays do not add up."""
    reporters = [FaultyReporter(forever=hang) for _ in range(4)]
    dispatcher = Dispatcher(deliveries(*reporters), 20)
    dispatcher.start()
    dispatcher.dispatch(entries(1, 3), 3)
    eventually(lambda: all(reporter.attempts for reporter in reporters))
    deadline = time.monotonic() + 0.5
    dispatcher.stop(deadline)
    assert witness.late(deadline) < 1.4


def test_events_without_a_record_do_not_reset_the_progress() -> None:
    """Events without a record, such as the event about a killed driver, do not affect which records are complete."""
    dispatcher = Dispatcher(deliveries(FaultyReporter()), 20, sync=True)
    dispatcher.start()
    dispatcher.dispatch(entries(1, 3), 3)
    dispatcher.dispatch([Entry(0, event(9))], 0)
    dispatcher.stop(time.monotonic() + 20)
    assert dispatcher.progress() == (3, 3)


def test_reporters_with_unwritten_events_are_stopped_first(gated: GatedReporter) -> None:
    """Reporters with unwritten events are stopped first, because a hanging reporter may use up the remaining time."""
    kept = RecordingStore()
    config = DeliveryConfig(retry_initial=0.001, retry_max=0.002)
    hanging = Delivery("hanging", lambda: gated, config, 100, breaker=NEVER)
    written = Delivery("written", FaultyReporter, config, 100, breaker=NEVER, store=lambda wake, tell: kept)
    dispatcher = Dispatcher([hanging, written], 20)
    dispatcher.start()
    dispatcher.dispatch(entries(1, 1), 1)
    assert gated.entered.wait(20)
    dispatcher.stop(time.monotonic() + 2)
    assert kept.left > 0
