"""One reporter's delivery: in order, as often as it takes, and never longer than it may."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import (
    FaultyReporter,
    GatedReporter,
    Step,
    cancels,
    event,
    eventually,
    exits,
    hang,
    numbers,
    ok,
    partly,
    permanent,
    throttled,
    transient,
)
from misbehaving import NoException, Untold

from spark_events import Event, PermanentError, Reporter, Severity, ThrottledError
from spark_events.dispatch import retry_loop as retry_loop_module
from spark_events.dispatch.breaker import BreakerConfig
from spark_events.dispatch.config import DeliveryConfig
from spark_events.dispatch.delivery import Delivery, Hooks
from spark_events.dispatch.dispatcher import AsyncQueuedDispatcher
from spark_events.dispatch.entries import Entries, Entry
from spark_events.dispatch.retry_loop import RetryLoop
from unit.dispatch.conftest import Begin, Kept

NEVER = BreakerConfig(failures=1000)
QUICK = {"retry_initial": 0.001, "retry_max": 0.002, "timeout": 20.0}
Start = Callable[..., Delivery]


@pytest.fixture
def start(begin: Begin) -> Start:
    """Starts the delivery of a reporter that is there."""

    def _start(reporter: Reporter, capacity: int = 100, **config: Any) -> Delivery:
        return begin("audit", lambda: reporter, capacity, **{**QUICK, **config})

    return _start


def entries(count: int, first: int = 0) -> Entries:
    return Entries([Entry(number + 1, event(number)) for number in range(first, first + count)])


def stop(delivery: Delivery, within: float) -> float:
    """Stops it; returns how long that took."""
    before = time.monotonic()
    delivery.request_stop(before + within)
    delivery.join()
    return time.monotonic() - before


def test_events_are_delivered_in_batches_and_in_order(start: Start) -> None:
    """A batch is as large as it may be, and the next goes on where it ended."""
    reporter = FaultyReporter()
    delivery = start(reporter, batch_size=3)
    delivery.put(entries(8))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == list(range(8))
    assert max(map(len, reporter.attempts)) <= 3
    assert (
        delivery.counters().delivered,
        delivery.counters().failures,
        delivery.counters().dropped.get("rejected", 0),
    ) == (
        8,
        0,
        0,
    )


class Modest(FaultyReporter):
    """Says of itself how much it takes, in whatever way."""

    def __init__(self, most: Any) -> None:
        super().__init__()
        self._most = most

    @property
    def max_batch_size(self) -> Any:  # type: ignore[override]
        if self._most is None:
            raise AttributeError("not known yet")
        return self._most


@pytest.mark.parametrize(
    ("most", "largest"),
    [(1, 1), (2, 2), (100, 4), (2**70, 4), (0, 4), (-1, 4), ("2", 4), (2.5, 4), (True, 4), (None, 4)],
)
def test_a_reporter_that_takes_less_at_once_gets_less(start: Start, most: Any, largest: int) -> None:
    """So that one request of its destination is one call; of what cannot be understood, nothing is made."""
    reporter = Modest(most)
    delivery = start(reporter, batch_size=4)
    delivery.put(entries(12))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == list(range(12))
    assert max(map(len, reporter.attempts)) == largest


@pytest.mark.parametrize(
    "fault", [transient, throttled(0.002), exits, cancels], ids=["error", "slow", "exit", "cancel"]
)
def test_the_same_events_are_handed_over_until_they_are_taken(start: Start, fault: Any) -> None:
    """After a failure the same batch comes again: order is kept over retries, nothing overtakes."""
    reporter = FaultyReporter([ok, fault, fault, ok])
    delivery = start(reporter, batch_size=2)
    delivery.put(entries(6))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == list(range(6))
    assert reporter.attempts[1] == reporter.attempts[2] == reporter.attempts[3]
    assert (delivery.counters().delivered, delivery.counters().failures) == (6, 2)


def test_a_throttled_reporter_is_left_alone_as_long_as_it_asks(start: Start) -> None:
    """The pause is the one that the destination named, not the shorter one of a retry."""
    reporter = FaultyReporter([throttled(0.05)])
    delivery = start(reporter)
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    assert reporter.attempted_at[1] - reporter.attempted_at[0] >= 0.045


def test_a_pause_of_nothing_makes_no_attempt_sooner(start: Start) -> None:
    """A date that has passed by the clock of this machine, say: the next attempts are not made at once."""
    reporter = FaultyReporter([throttled(0.0)] * 3)
    delivery = start(reporter, retry_initial=0.02, retry_max=1.0)
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    assert reporter.attempted_at[3] - reporter.attempted_at[0] >= 0.02 + 0.04 + 0.08


def test_a_call_that_hangs_is_cut_off_and_repeated(start: Start, tardy: list[str]) -> None:
    """An attempt may take as long as its timeout; then it has failed like any other."""
    reporter = FaultyReporter([hang, ok])
    delivery = start(reporter, timeout=0.02)
    delivery.put(entries(2))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == [0, 1]
    assert delivery.counters().failures - len(tardy) == 1


def test_what_a_reporter_takes_out_of_its_list_is_tried_again(start: Start) -> None:
    """It may empty the list as it sends; when it fails in the middle, the next attempt gets all of the batch."""
    sent: list[Event] = []

    class Empties(Reporter):
        failed = False

        def report(self, events: Sequence[Event]) -> None:
            if not self.failed:
                self.failed = True
                assert isinstance(events, list)
                events.clear()
                raise OSError("connection reset")
            sent.extend(events)

    delivery = start(Empties())
    delivery.put(entries(5))
    assert delivery.wait_until_settled(20)
    assert numbers(sent) == list(range(5))
    assert delivery.counters().delivered == 5


def test_a_permanent_failure_gives_up_these_events_only(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """What will never be taken is not tried again, is counted, and what comes behind it is delivered."""
    reporter = FaultyReporter([permanent])
    delivery = start(reporter, batch_size=2)
    delivery.put(entries(4))
    assert delivery.wait_until_settled(20)
    assert reporter.attempts == [(0, 1), (2, 3)]
    assert (
        delivery.counters().delivered,
        delivery.counters().dropped.get("rejected", 0),
        delivery.counters().failures,
    ) == (
        2,
        2,
        1,
    )
    assert "reporter audit: failed, not tried again: PermanentError: no such table" in caplog.text


def test_what_is_wrong_with_one_event_costs_that_event_alone(start: Start) -> None:
    """A reporter that says how many of a batch were refused has answered for the others: they are delivered."""
    reporter = FaultyReporter([partly(1), partly(5)])
    delivery = start(reporter, batch_size=4)
    delivery.put(entries(4))
    assert delivery.wait_until_settled(20)
    assert (delivery.counters().delivered, delivery.counters().dropped) == (3, {"rejected": 1})
    delivery.put(entries(4))
    assert delivery.wait_until_settled(20)
    # It cannot have lost more than it was given.
    assert (delivery.counters().delivered, delivery.counters().dropped) == (3, {"rejected": 5})
    assert delivery.counters().balances


@pytest.mark.parametrize(("rejected", "expected"), [(0, 0), (1, 1), (3, 3), (99, 3), (-1, 0), (None, 3)])
def test_a_reporter_that_could_deliver_the_rest_says_how_many_it_could_not(
    start: Start, rejected: int | None, expected: int
) -> None:
    """The others count as delivered; a number that cannot be is held to what there was."""

    def refusal() -> PermanentError:
        error = PermanentError("too old")
        # Of a class of the user's own, say: nobody has looked at it.
        error.rejected = rejected
        return error

    delivery = start(FaultyReporter([Step(error=refusal), ok, permanent]), batch_size=3)
    delivery.put(entries(9))
    assert delivery.wait_until_settled(20)
    books = delivery.counters()
    assert (books.delivered, books.dropped.get("rejected", 0)) == (9 - expected - 3, expected + 3)
    assert books.balances


def test_how_many_were_rejected_says_nothing_of_the_next_batch(start: Start) -> None:
    """Of that one nothing was delivered, whatever was said before."""
    reporter = FaultyReporter([partly(1)], forever=transient)
    delivery = start(reporter, batch_size=3)
    delivery.put(entries(6))
    eventually(lambda: len(reporter.attempts) > 1)
    delivery.request_stop(time.monotonic() + 0.2)
    eventually(lambda: not delivery.counters().held)
    assert (delivery.counters().delivered, delivery.counters().dropped) == (2, {"rejected": 1, "shutdown": 3})


def test_every_kind_of_step_in_one_script(start: Start, tardy: list[str]) -> None:
    """All verdicts one after the other: only what was given up is missing, the rest is in order."""
    reporter = FaultyReporter([ok, transient, throttled(0.05), hang, permanent])
    delivery = start(reporter, batch_size=1, timeout=0.02)
    delivery.put(entries(4))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == [0, 2, 3]
    assert reporter.attempts == [(0,), (1,), (1,), (1,), (1,), (2,), (3,)]
    books = delivery.counters()
    assert (books.delivered, books.dropped.get("rejected", 0), books.failures - len(tardy)) == (3, 1, 4)


class Asks(ThrottledError):
    """With what is no number of seconds."""

    def __init__(self, retry_after: Any) -> None:
        Exception.__init__(self, "busy")
        self.retry_after = retry_after


class Rejects(PermanentError):
    """With what is no number of events."""

    rejected = "some"  # type: ignore[assignment]


@pytest.mark.parametrize(
    "verdict",
    [
        lambda: ThrottledError("busy", "1"),  # type: ignore[arg-type]  # as the header has it
        lambda: ThrottledError("busy", None),  # type: ignore[arg-type]
        lambda: ThrottledError("busy", float("nan")),
        lambda: PermanentError("no", -1),
        lambda: Asks("1"),
        lambda: Asks(None),
        lambda: Asks(float("nan")),
    ],
)
def test_a_verdict_that_is_no_number_is_a_failure_that_passes(start: Start, verdict: Callable[[], Exception]) -> None:
    """What is wrong with how it fails does not keep the events from being tried again."""
    taken: list[Event] = []

    class Garbles(Reporter):
        failed = False

        def report(self, events: Sequence[Event]) -> None:
            if not self.failed:
                self.failed = True
                raise verdict()
            taken.extend(events)

    delivery = start(Garbles())
    delivery.put(entries(3))
    assert delivery.wait_until_settled(20)
    assert numbers(taken) == [0, 1, 2]
    assert (delivery.counters().delivered, delivery.counters().failures) == (3, 1)


@pytest.mark.parametrize("asked", [math.inf, 1.7e12, 10**400], ids=["for ever", "a moment", "more than a float"])
def test_a_pause_that_nobody_can_wait_for_ends_no_delivery(start: Start, asked: float) -> None:
    """The destination is left alone for an hour at most, and at the end its events are delivered."""
    taken: list[Event] = []

    class Busy(Reporter):
        failed = False

        def report(self, events: Sequence[Event]) -> None:
            if not self.failed:
                self.failed = True
                raise ThrottledError("slow", asked)
            taken.extend(events)

    delivery = start(Busy())
    delivery.put(entries(3))
    eventually(lambda: delivery.counters().failures == 1)
    assert (delivery.counters().held, delivery.counters().dropped) == (3, {})
    delivery.begin_drain()
    assert delivery.wait_until_settled(20)
    assert numbers(taken) == [0, 1, 2]


def test_no_pause_is_longer_than_the_longest_though_the_first_would_be(start: Start) -> None:
    """Neither the pause nor its jitter: who shortens retry.max alone means what it says."""
    reporter = FaultyReporter([transient, transient])
    delivery = start(reporter, retry_initial=36_500 * 86_400.0, retry_max=0.002)
    delivery.put(entries(3))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == [0, 1, 2]


def test_what_is_wrong_with_the_retries_does_not_end_the_delivery(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory left, say, just there: its thread is replaced, and nothing is given up."""
    reporter = FaultyReporter([transient])
    delivery = start(reporter)
    backoff, defects = RetryLoop._backoff, [MemoryError()]

    def fails_once(attempts: RetryLoop, state: Any) -> float:
        if defects:
            raise defects.pop()
        return backoff(attempts, state)

    monkeypatch.setattr(RetryLoop, "_backoff", fails_once)
    delivery.put(entries(3))
    eventually(lambda: delivery.counters().delivered == 3, meanwhile=lambda: delivery.check(time.monotonic()))
    assert numbers(reporter.events) == [0, 1, 2]
    assert delivery.counters().dropped == {}


def test_a_rejection_of_no_number_rejects_all(start: Start) -> None:
    """The destination refuses for good; how many, nobody can tell."""

    class Refuses(Reporter):
        def report(self, events: Sequence[Event]) -> None:
            raise Rejects("no")

    delivery = start(Refuses())
    delivery.put(entries(3))
    assert delivery.wait_until_settled(20)
    assert delivery.counters().dropped == {"rejected": 3}


def test_verdicts_say_what_is_wrong_with_them() -> None:
    """What was given, and what is allowed."""
    with pytest.raises(TypeError, match=r"ThrottledError: retry_after is '1'; allowed: seconds, as a number"):
        ThrottledError("busy", "1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"PermanentError: rejected is -1; allowed: a whole number from 0, or None"):
        PermanentError("no", -1)


def test_errors_of_a_strange_kind_do_not_end_the_delivery(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """What is no Exception is tried again; what cannot be told is said without its words."""
    reporter = FaultyReporter([Step(error=NoException), Step(error=Untold), ok])
    delivery = start(reporter, batch_size=1)
    delivery.put(entries(2))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == [1]
    books = delivery.counters()
    assert (books.delivered, books.dropped, books.failures) == (1, {"rejected": 1}, 2)
    assert "RuntimeError: the reporter raised what is no Exception: NoException: odd" in caplog.text
    assert "not tried again: Untold: (not printable: its __str__ raises ValueError)" in caplog.text


@pytest.mark.parametrize("verdict", [OSError, PermanentError])
def test_an_error_may_quote_any_name_of_a_file(
    start: Start, caplog: pytest.LogCaptureFixture, verdict: Callable[[str], Exception]
) -> None:
    """Names that are no UTF-8 have lone surrogates; what a verdict means does not depend on its words."""
    delivery = start(FaultyReporter([Step(error=lambda: verdict(os.fsdecode(b"caf\xe9.json")))]))
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    rejected = verdict is PermanentError
    books = delivery.counters()
    assert (books.delivered, books.dropped, books.failures) == (1 - rejected, {"rejected": 1} if rejected else {}, 1)
    assert f"{verdict.__name__}: caf?.json" in caplog.text


def test_of_a_long_error_only_the_beginning_is_told(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """One that quotes all that it was sent would fill the log, and with it the time that others have at the end."""
    delivery = start(FaultyReporter([Step(error=lambda: OSError("x" * 5_000_000))]))
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    assert "OSError: " + "x" * 2000 + "\n" in caplog.text


def test_a_failing_spell_is_said_once_and_so_is_its_end(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """The driver's log is not flooded: one line when it begins, one when it works again."""
    delivery = start(FaultyReporter([transient] * 5))
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == [
        "reporter audit: failed, its events are held and tried again: OSError: connection reset",
        "reporter audit: works again",
    ]


def test_a_reporter_that_cannot_be_opened_yet_is_opened_later(start: Start) -> None:
    """Events wait for a destination that comes up after the driver."""
    reporter = FaultyReporter(opening=[transient, transient])
    delivery = start(reporter)
    delivery.put(entries(3))
    assert delivery.wait_until_settled(20)
    assert reporter.opened == 3
    assert numbers(reporter.events) == [0, 1, 2]


def test_nobody_waits_for_a_reporter_that_can_never_be_opened(start: Start) -> None:
    """Its events are given up and counted, so that a synchronous driver does not stand still."""
    reporter = FaultyReporter(opening=[permanent])
    delivery = start(reporter)
    for first in (0, 3):
        delivery.put(entries(3, first))
        assert delivery.wait_until_settled(20)
    assert (delivery.counters().delivered, delivery.counters().dropped.get("rejected", 0)) == (0, 6)
    assert delivery.store.oldest_record() is None
    assert reporter.attempts == []


@pytest.mark.parametrize("closing", [transient, permanent, exits])
def test_a_close_that_raises_is_said_and_ends_all_the_same(
    start: Start, caplog: pytest.LogCaptureFixture, closing: Any
) -> None:
    """At the end an error is only worth a line in the log: everything is delivered by then."""
    reporter = FaultyReporter(closing=closing)
    delivery = start(reporter)
    delivery.put(entries(2))
    stop(delivery, within=20)
    assert (numbers(reporter.events), reporter.closed) == ([0, 1], 1)
    assert "reporter audit: could not be closed" in caplog.text


def test_a_stop_delivers_what_is_left(start: Start) -> None:
    """Stopping is not dropping: the mailbox is emptied first, and the reporter is closed after it."""
    reporter = FaultyReporter([transient, transient])
    delivery = start(reporter, batch_size=1, retry_initial=0.01)
    delivery.put(entries(5))
    stop(delivery, within=20)
    assert numbers(reporter.events) == [0, 1, 2, 3, 4]
    assert reporter.closed == 1


@pytest.mark.parametrize("forever", [transient, throttled(60), hang], ids=["fails", "throttled", "hangs"])
def test_a_stop_ends_at_its_deadline(start: Start, caplog: pytest.LogCaptureFixture, forever: Any) -> None:
    """A reporter that will not take anything costs its own events, and no more time than there is."""
    reporter = FaultyReporter(forever=forever)
    delivery = start(reporter, capacity=10)
    delivery.put(entries(4))
    eventually(lambda: reporter.attempts)
    assert stop(delivery, within=0.2) < 10
    assert delivery.store.oldest_record() is None
    assert (delivery.counters().delivered, delivery.counters().dropped) == (0, {"shutdown": 4})
    assert "4 events were not delivered in time and are lost" in caplog.text


def test_the_end_of_an_application_cuts_a_pause_short(start: Start) -> None:
    """And nothing else: who only waits for the deliveries, as a replay does, leaves a destination its pause."""
    reporter = FaultyReporter([throttled(3600)])
    delivery = start(reporter)
    delivery.put(entries(3))
    eventually(lambda: delivery.counters().failures == 1)
    dispatcher = AsyncQueuedDispatcher([delivery], 10.0)
    dispatcher.drain(time.monotonic() + 0.3)
    assert len(reporter.attempts) == 1
    dispatcher.begin_drain()
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == [0, 1, 2]


#: Longer than any test waits.
_FOR_EVER = 3600.0


def test_events_wait_for_others_so_that_one_call_has_several(start: Start) -> None:
    """Where each call is a request, ten sparse events are one."""
    reporter = FaultyReporter()
    delivery = start(reporter, batch_linger=0.5)
    for number in range(10):
        delivery.put(entries(1, number))
    eventually(lambda: len(reporter.events) == 10)
    assert len(reporter.attempts) < 10
    # The linger begins anew with the next event.
    delivery.put(entries(1, 10))
    eventually(lambda: len(reporter.events) == 11)
    assert numbers(reporter.events) == list(range(11))


@pytest.mark.parametrize("why", ["a failure", "a full batch", "the end", "a stop"])
def test_events_do_not_wait_for_others(start: Start, why: str) -> None:
    """Where somebody acts on one, where waiting saves no call, and where no more will come."""
    reporter = FaultyReporter()
    delivery = start(reporter, batch_linger=_FOR_EVER, batch_size=3)
    eventually(lambda: reporter.opened)
    delivery.put(entries(2))
    if why == "a failure":
        delivery.put(Entries([Entry(9, event(2, Severity.WARN))]))
    elif why == "a full batch":
        delivery.put(entries(1, 2))
    elif why == "the end":
        delivery.begin_drain()
    else:
        delivery.request_stop(time.monotonic() + 20)
    eventually(lambda: len(reporter.events) >= 2)
    assert numbers(reporter.events) == ([0, 1] if why in ("the end", "a stop") else [0, 1, 2])


def test_what_is_left_of_a_full_batch_does_not_wait_again(start: Start) -> None:
    """It has waited already, and may hold a failure."""
    reporter = FaultyReporter()
    delivery = start(reporter, batch_linger=_FOR_EVER, batch_size=3)
    delivery.put(entries(4))
    eventually(lambda: len(reporter.events) == 4)
    assert numbers(reporter.events) == [0, 1, 2, 3]


def test_a_reporter_says_how_long_its_events_may_wait(start: Start) -> None:
    """``batch.linger`` wins over that; what is no time is none."""

    class Patient(FaultyReporter):
        linger = _FOR_EVER

    class Odd(FaultyReporter):
        linger = "0.2"  # type: ignore[assignment]

    patient, hasty, odd = Patient(), Patient(), Odd()
    waits, works, also = start(patient), start(hasty, batch_linger=0.0), start(odd)
    for delivery in (waits, works, also):
        delivery.put(entries(2))
    eventually(lambda: len(hasty.events) == len(odd.events) == 2)
    assert patient.attempts == []
    waits.begin_drain()
    eventually(lambda: len(patient.events) == 2)


#: Far more than a dead destination is given at the end, and than a busy machine takes.
_WHOLE_TIME = 60.0


def end(delivery: Delivery) -> float:
    """Ends it as an application does; returns how long that took."""
    began = time.monotonic()
    dispatcher = AsyncQueuedDispatcher([delivery], 10.0)
    dispatcher.begin_drain()
    dispatcher.drain(began + 0.9 * _WHOLE_TIME)
    dispatcher.stop(began + _WHOLE_TIME)
    return time.monotonic() - began


@pytest.mark.parametrize("guarantee", ["best-effort", "at-least-once"])
def test_a_dead_destination_gets_one_last_attempt_at_the_end(guarantee: str) -> None:
    """It is refused at once, and nothing is waited for; what is left is dropped, or stays on disk."""
    reporter, store = FaultyReporter(forever=transient), Kept(is_durable=guarantee == "at-least-once")
    config = DeliveryConfig(guarantee=guarantee, batch_size=2, retry_initial=0.001)
    breaker = BreakerConfig(failures=3, open_initial=3600.0)
    delivery = Delivery("audit", lambda: reporter, config, 100, breaker=breaker, store=lambda wake, tell: store)
    delivery.start()
    delivery.put(entries(5))
    eventually(lambda: delivery.counters().breaker == "open")
    assert end(delivery) < _WHOLE_TIME / 2
    assert reporter.attempts == [(0, 1)] * 4
    assert (delivery.counters().delivered, delivery.counters().dropped) == (0, {"shutdown": 5})
    assert store.left > _WHOLE_TIME / 2


@pytest.mark.parametrize("script", [[transient] * 2, []], ids=["known", "found"])
def test_a_dead_destination_that_hangs_costs_two_seconds_of_the_end(start: Start, script: list[Step]) -> None:
    """Whether it is known to be dead when the end comes, or its attempts fail only then."""
    reporter = FaultyReporter([*script, hang, *([transient] * 2), hang], forever=hang)
    delivery = start(reporter, timeout=_WHOLE_TIME if script else 0.5)
    delivery.put(entries(3))
    eventually(lambda: len(reporter.attempts) > len(script))
    took = end(delivery)
    assert took < _WHOLE_TIME / 2
    assert delivery.counters().dropped == {"shutdown": 3}


@pytest.mark.parametrize("forever", [[transient] * 4, [throttled(0.001)] * 40], ids=["is back", "asks for pauses"])
def test_a_destination_that_answers_at_the_end_has_the_whole_time(start: Start, forever: list[Step]) -> None:
    """It is as good as any other."""
    reporter = FaultyReporter(forever)
    delivery = start(reporter, batch_size=1, retry_initial=0.1 if len(forever) < 10 else 0.001)
    delivery.put(entries(5))
    eventually(lambda: len(reporter.attempts) >= 4)
    end(delivery)
    assert numbers(reporter.events) == [0, 1, 2, 3, 4]


def test_a_destination_that_is_slow_has_the_whole_time(start: Start) -> None:
    """Longer than a dead one."""
    reporter = GatedReporter()
    delivery = start(reporter, batch_size=1)
    delivery.put(entries(3))
    assert reporter.entered.wait(20)
    opening = threading.Timer(2.5, reporter.gate.set)
    opening.start()
    end(delivery)
    assert numbers(reporter.events) == [0, 1, 2]


@pytest.mark.parametrize("later", ["slow", "quick"])
def test_an_attempt_that_took_too_long_is_a_failure_though_it_did_its_work(
    later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not be cut off, for it blocked its thread: delivered, counted, and seen by the breaker."""
    naps = [50.0, 50.0] if later == "slow" else [50.0, 0.0]
    changes: list[str] = []
    now = time.monotonic()
    # Its own clock: what else keeps the thread does not count.
    monkeypatch.setattr(retry_loop_module, "time", SimpleNamespace(monotonic=lambda: now))

    class Naps(Reporter):
        def report(self, events: Sequence[Event]) -> None:
            nonlocal now
            if naps:
                now += naps.pop(0)

    config = DeliveryConfig(timeout=20.0, batch_size=1, retry_initial=0.001, retry_max=0.002)
    hooks = Hooks(on_breaker=lambda _name, _old, new, _why: changes.append(new.value))
    breaker = BreakerConfig(failures=2, open_initial=60.0)
    delivery = Delivery("audit", Naps, config, 100, hooks, breaker=breaker)
    delivery.start()
    delivery.put(entries(3))
    delivered = 2 if later == "slow" else 3
    eventually(lambda: delivery.counters().delivered == delivered)
    books = delivery.counters()
    assert (books.failures, books.breaker) == ((2, "open") if later == "slow" else (1, "closed"))
    stop(delivery, 200.0)
    assert delivery.counters().delivered == 3
    assert changes == (["open", "closed"] if later == "slow" else [])


def test_a_stop_cuts_a_pause_short(start: Start) -> None:
    """A reporter that was to be left alone for a minute gets its last chance at once."""
    reporter = FaultyReporter([throttled(60)])
    delivery = start(reporter)
    delivery.put(entries(2))
    eventually(lambda: reporter.attempts)
    assert stop(delivery, within=20) < 20
    assert numbers(reporter.events) == [0, 1]


def test_a_blocking_reporter_costs_its_own_events_only(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Code that blocks its thread cannot be cut off: the stop ends without it, and says what is lost."""
    blocked, other = GatedReporter(), FaultyReporter()
    first, second = start(blocked), start(other)
    for delivery in (first, second):
        delivery.put(entries(3))
    assert blocked.entered.wait(20)
    assert second.wait_until_settled(20)
    assert stop(first, within=0.05) < 10
    assert "reporter audit: 3 events were not delivered in time and are lost" in caplog.text
    assert numbers(other.events) == [0, 1, 2]
    blocked.gate.set()


def test_a_reporter_that_ends_its_thread_gets_another_one(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    """It stops its own event loop: said, counted as a failure, and its events are tried again by the next."""
    taken = FaultyReporter()

    class Stops(Reporter):
        async def report(self, events: Sequence[Event]) -> None:
            asyncio.get_running_loop().stop()
            # Without this it would have returned before the loop stops, in Python 3.12 and newer.
            await asyncio.sleep(0)

    reporters: list[Reporter] = [Stops(), Stops(), taken]
    delivery = begin("audit", lambda: reporters.pop(0), 100, **QUICK)
    delivery.put(entries(3))
    eventually(lambda: not reporters, meanwhile=lambda: delivery.check(time.monotonic()))
    assert delivery.wait_until_settled(20)
    assert numbers(taken.events) == [0, 1, 2]
    books = delivery.counters()
    assert (books.delivered, books.failures, books.hung, books.balances) == (3, 2, 0, True)
    told = (
        "reporter audit: ended its thread (RuntimeError: Event loop stopped before Future completed.); another thread"
        " retries its events;"
    )
    assert caplog.text.count(told) == 2


@pytest.mark.parametrize("how", ["plain", "async", "raises"])
def test_a_copy_that_a_fork_has_made_does_not_stay(start: Start, how: str) -> None:
    """The child comes back from the call: it ends there, and delivers nothing a second time."""
    children: list[int] = []
    taken: list[Event] = []

    def fork(events: Sequence[Event]) -> None:
        child = os.fork()
        if child:
            children.append(child)
            taken.extend(events)
        elif how == "raises":
            raise OSError("in the child")

    class Forks(Reporter):
        def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
            if how == "async":
                return self._later(events)
            fork(events)
            return None

        async def _later(self, events: Sequence[Event]) -> None:
            fork(events)

    delivery = start(Forks())
    delivery.put(entries(2))
    assert delivery.wait_until_settled(20)
    assert numbers(taken) == [0, 1]
    (child,) = children

    def ended() -> tuple[int, int] | None:
        found = os.waitpid(child, os.WNOHANG)
        return found if found != (0, 0) else None

    assert os.waitstatus_to_exitcode(eventually(ended)[1]) == 0


def test_events_beyond_the_capacity_are_dropped_and_said(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """The books at the end: what was accepted was delivered or dropped."""
    reporter = GatedReporter()
    delivery = start(reporter, capacity=4, batch_size=1)
    delivery.put(entries(1))
    assert reporter.entered.wait(20)
    delivery.put(entries(9, first=1))
    reporter.gate.set()
    stop(delivery, within=20)
    assert numbers(reporter.events) == [0, 7, 8, 9]
    assert delivery.counters().delivered == 4
    assert "reporter audit: 6 events were dropped, its mailbox was full" in caplog.text


def test_not_all_that_a_mailbox_holds_is_handed_over_at_once(start: Start) -> None:
    """Else what comes then and is worth more would find nothing in whose place it could be."""
    reporter = GatedReporter()
    delivery = start(reporter, capacity=4, batch_size=100)
    delivery.put(entries(4))
    assert reporter.entered.wait(20)
    delivery.put(Entries([Entry(9, event(9, Severity.ERROR))]))
    reporter.gate.set()
    stop(delivery, within=20)
    assert numbers(reporter.events)[-1] == 9
    assert delivery.counters().dropped == {"mailbox-full": 1}


def kept(reporter: Reporter, store: Kept, **config: Any) -> Delivery:
    """The delivery of what a store of its own holds; it is started."""
    times = DeliveryConfig(**{**QUICK, **config})
    delivery = Delivery("audit", lambda: reporter, times, 100, breaker=NEVER, store=lambda wake, tell: store)
    delivery.start()
    return delivery


def test_one_that_was_waited_for_in_vain_is_not_waited_for_until_it_is_quick() -> None:
    """Each such wait is one that all the others wait as well."""
    reporter, store = GatedReporter(), Kept(1, is_durable=False)
    delivery = kept(reporter, store)
    delivery.put(entries(1))
    assert reporter.entered.wait(20)
    for _ in range(5):
        delivery.wait_for_room(1)
    assert store.waits == 1
    reporter.gate.set()
    assert delivery.wait_until_settled(20)
    # That it has answered at last says nothing: it took its time.
    delivery.wait_for_room(1)
    assert store.waits == 1

    def waits_again() -> bool:
        # A machine that is busy may take its time with a batch.
        delivery.put(entries(1))
        delivery.wait_until_settled(20)
        delivery.wait_for_room(1)
        return store.waits > 1

    eventually(waits_again)
    stop(delivery, within=20)


def test_one_that_fails_is_not_waited_for() -> None:
    """Not even once."""
    store = Kept(2, is_durable=False)
    delivery = kept(FaultyReporter(forever=transient), store)
    delivery.put(entries(2))
    eventually(lambda: delivery.counters().failures)
    delivery.wait_for_room(1)
    assert store.waits == 0
    stop(delivery, within=0.1)


@pytest.mark.parametrize(("is_durable", "held", "dropped"), [(True, 3, {}), (False, 0, {"shutdown": 3})])
def test_what_nobody_has_time_for_stays_where_it_is_safe(is_durable: bool, held: int, dropped: dict[str, int]) -> None:
    """It is the next run's; what is in memory alone is lost."""
    store = Kept(is_durable=is_durable)
    delivery = Delivery("audit", FaultyReporter, DeliveryConfig(), 100, store=lambda wake, tell: store)
    delivery.put(entries(3))
    worker = delivery._worker
    assert numbers(delivery.take(worker, 10)) == [0, 1, 2]
    delivery.ack(worker, "shutdown", 0.1)
    assert (delivery.counters().held, delivery.counters().dropped) == (held, dropped)


@pytest.mark.parametrize(
    ("script", "timeout"), [([transient], 60.0), ([], 0.3)], ids=["has failed, then hangs", "fails at the end"]
)
def test_what_is_safe_is_tried_for_a_second_at_the_end(script: list[Step], timeout: float) -> None:
    """A destination that does not answer costs no more of the application's end than that."""
    store, reporter = Kept(), FaultyReporter(script, forever=hang)
    delivery = kept(reporter, store, timeout=timeout)
    delivery.put(entries(1))
    eventually(lambda: len(reporter.attempts) > len(script))
    assert stop(delivery, within=30) < 20
    assert store.left > 10


def test_what_is_safe_stays_where_the_reporter_can_never_be_opened() -> None:
    """It is the reporter that is refused, not the events: they are for one that can be opened."""
    store, reporter = Kept(), FaultyReporter(opening=[permanent])
    delivery = kept(reporter, store)
    delivery.put(entries(3))
    eventually(lambda: delivery.counters().failures)
    delivery._worker.join(20)
    assert (delivery.counters().held, delivery.counters().dropped) == (3, {})
    stop(delivery, within=20)


def test_the_last_moment_is_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is still to be written is not lost behind a destination that hangs until the end."""
    monkeypatch.setattr("spark_events.dispatch.delivery._CLOSE_SECONDS", 1.0)
    store, reporter = Kept(), FaultyReporter(forever=hang)
    delivery = kept(reporter, store)
    delivery.put(entries(1))
    eventually(lambda: reporter.attempts)
    stop(delivery, within=2.5)
    assert store.left > 0


def test_progress_is_told_for_every_batch_that_comes_to_its_end() -> None:
    """Delivered or given up: somebody waits for the acknowledgement either way."""
    told: list[int | None] = []
    reporter = FaultyReporter([ok, permanent, ok])
    delivery = Delivery(
        "a", lambda: reporter, DeliveryConfig(batch_size=1, retry_initial=0.001), 10, Hooks(lambda: told.append(1))
    )
    delivery.put(entries(3))
    delivery.start()
    assert delivery.wait_until_settled(20)
    stop(delivery, within=20)
    assert len(told) == 3


class _Ticking(Reporter):
    """Something of its own lives in its loop; ``how`` it came there."""

    def __init__(self, how: str) -> None:
        self.ticks = 0
        self._how = how

    async def _tick(self) -> None:
        while True:
            self.ticks += 1
            await asyncio.sleep(0.001)

    def open(self) -> Awaitable[None] | None:
        if self._how == "by a plain open":
            self._task = asyncio.get_running_loop().create_task(self._tick())
        return None

    async def _report(self) -> None:
        if self._how == "by an async report":
            self._task = asyncio.get_running_loop().create_task(self._tick())
            self._how = "done"

    def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
        return self._report() if self._how == "by an async report" else None


class _Looking(_Ticking):
    """Sees at each call how often that had its turn."""

    def __init__(self) -> None:
        super().__init__("by a plain open")
        self.seen: list[int] = []

    async def _tick(self) -> None:
        while True:
            self.ticks += 1
            await asyncio.sleep(0)

    def report(self, events: Sequence[Event]) -> None:
        self.seen.append(self.ticks)


def test_what_lives_in_a_reporter_s_loop_has_its_turn_however_many_events_there_are(start: Start) -> None:
    """A plain method gives it none: it is between the calls, also where nothing is waited for."""
    reporter = _Looking()
    delivery = start(reporter, batch_size=1)
    delivery.put(entries(100))
    assert delivery.wait_until_settled(20)
    assert reporter.seen[-1] - reporter.seen[0] >= 90


@pytest.mark.parametrize("how", ["by a plain open", "by an async report"])
def test_what_lives_in_a_reporter_s_loop_goes_on_between_the_calls(start: Start, how: str) -> None:
    """A connection that has to be kept alive, say: nobody has events for it, and still it has its turns."""
    reporter = _Ticking(how)
    delivery = start(reporter)
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    before = reporter.ticks
    eventually(lambda: reporter.ticks > before + 3)


class _Lingering(_Ticking):
    """Something of its own outlives it in its loop; ``stays``: also where it is told to end."""

    def __init__(self, stays: bool) -> None:
        super().__init__("by a plain open")
        self.ended = 0
        self._stays = stays

    async def _tick(self) -> None:
        while self._stays or not self.ended:
            self.ticks += 1
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.ended += 1
        raise OSError("of no interest any more")


def test_what_lives_in_a_reporter_s_loop_is_ended_with_it_without_a_word(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop that is closed over it would have asyncio complain, in the driver's log, of what nobody has done wrong."""
    reporter = _Lingering(stays=False)
    delivery = start(reporter)
    eventually(lambda: reporter.ticks)
    stop(delivery, within=20)
    # What complains is the end of an object.
    del reporter._task
    gc.collect()
    assert reporter.ended == 1
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_what_does_not_end_does_not_hold_up_the_end(start: Start) -> None:
    """Something of a reporter's own that catches whatever it is told costs the end a moment."""
    reporter = _Lingering(stays=True)
    delivery = start(reporter)
    eventually(lambda: reporter.ticks)
    assert stop(delivery, within=20) < 10
    assert reporter.ended == 1
