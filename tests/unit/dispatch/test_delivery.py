"""Tests of a single reporter's delivery: order, retries, deadlines and counters."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from fakes import (
    FaultyReporter,
    GatedReporter,
    Step,
    balances,
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
from misbehaving import NoException, UnprintableError

from spark_events import Event, PermanentError, Reporter, Severity, ThrottledError
from spark_events.dispatch.breaker import BreakerConfig
from spark_events.dispatch.breaker_stage import BreakerStage
from spark_events.dispatch.delivery import Delivery, Hooks
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.dispatcher import Dispatcher
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.reporter_thread import ReporterThread
from spark_events.dispatch.turn import Settlement
from unit.dispatch.conftest import Begin, RecordingStore, entries

NEVER = BreakerConfig(failures=1000)
QUICK = {"retry_initial": 0.001, "retry_max": 0.002, "timeout": 20.0}
Start = Callable[..., Delivery]


@pytest.fixture
def start(begin: Begin) -> Start:
    """Return a function that starts the delivery for a reporter that opens immediately."""

    def _start(reporter: Reporter, capacity: int = 100, **config: Any) -> Delivery:
        return begin("audit", lambda: reporter, capacity, **{**QUICK, **config})

    return _start


def stop(delivery: Delivery, within: float) -> float:
    """Stop the delivery, and return the duration of the stop in seconds."""
    before = time.monotonic()
    delivery.request_stop(before + within)
    delivery.join()
    return time.monotonic() - before


def test_events_are_delivered_in_batches_and_in_order(start: Start) -> None:
    """A reporter receives its events in order, in batches of at most the configured size."""
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


class LimitedReporter(FaultyReporter):
    """Reporter with its own batch limit, which may be invalid."""

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
def test_the_reporter_s_own_batch_limit_applies(start: Start, most: Any, largest: int) -> None:
    """A reporter's own batch limit splits batches, so that one call makes one request. Invalid limits are ignored."""
    reporter = LimitedReporter(most)
    delivery = start(reporter, batch_size=4)
    delivery.put(entries(12))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == list(range(12))
    assert max(map(len, reporter.attempts)) == largest


@pytest.mark.parametrize(
    "fault", [transient, throttled(0.002), exits, cancels], ids=["error", "slow", "exit", "cancel"]
)
def test_a_failed_batch_is_retried_before_later_events(start: Start, fault: Any) -> None:
    reporter = FaultyReporter([ok, fault, fault, ok])
    delivery = start(reporter, batch_size=2)
    delivery.put(entries(6))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == list(range(6))
    assert reporter.attempts[1] == reporter.attempts[2] == reporter.attempts[3]
    assert (delivery.counters().delivered, delivery.counters().failures) == (6, 2)


def test_a_throttled_reporter_is_retried_after_the_requested_delay(start: Start) -> None:
    """The delay that a throttled reporter requests replaces a shorter back-off."""
    reporter = FaultyReporter([throttled(0.05)])
    delivery = start(reporter)
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    assert reporter.attempted_at[1] - reporter.attempted_at[0] >= 0.045


def test_a_requested_delay_of_zero_does_not_shorten_the_back_off(start: Start) -> None:
    """If the requested delay is zero, for example because of a date in the past, the back-off applies."""
    reporter = FaultyReporter([throttled(0.0)] * 3)
    delivery = start(reporter, retry_initial=0.02, retry_max=1.0)
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    assert reporter.attempted_at[3] - reporter.attempted_at[0] >= 0.02 + 0.04 + 0.08


def test_a_hanging_call_is_cancelled_and_retried(start: Start, late_attempts: list[str]) -> None:
    """A call that exceeds its timeout is cancelled, counted as a failure and retried."""
    reporter = FaultyReporter([hang, ok])
    delivery = start(reporter, timeout=0.02)
    delivery.put(entries(2))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == [0, 1]
    assert delivery.counters().failures - len(late_attempts) == 1


def test_events_removed_from_the_list_are_retried(start: Start) -> None:
    """If a reporter empties its list of events and then fails, the next attempt still receives the whole batch."""
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


def test_a_permanent_failure_drops_only_its_batch(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """If a batch fails permanently, it is not retried, and its events count as rejected. Later events are delivered."""
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
    assert "reporter audit: failed; dropping the rejected events: PermanentError: no such table" in caplog.text


def test_a_partial_rejection_counts_the_rest_as_delivered(start: Start) -> None:
    """After a partial rejection, the rejected events count as rejected, and the rest of the batch as delivered."""
    reporter = FaultyReporter([partly(1), partly(5)])
    delivery = start(reporter, batch_size=4)
    delivery.put(entries(4))
    assert delivery.wait_until_settled(20)
    assert (delivery.counters().delivered, delivery.counters().dropped) == (3, {"rejected": 1})
    delivery.put(entries(4))
    assert delivery.wait_until_settled(20)
    # A number larger than the batch rejects the whole batch.
    assert (delivery.counters().delivered, delivery.counters().dropped) == (3, {"rejected": 5})
    assert balances(delivery.counters())


@pytest.mark.parametrize(("rejected", "expected"), [(0, 0), (1, 1), (3, 3), (99, 3), (-1, 0), (None, 3)])
def test_the_number_of_rejected_events_is_limited_to_the_batch(
    start: Start, rejected: int | None, expected: int
) -> None:
    """The number of rejected events is limited to the batch's size, and the rest of the batch counts as delivered."""

    def refusal() -> PermanentError:
        error = PermanentError("too old")
        # The base class of errors does not validate the values that a user's subclass sets.
        error.rejected = rejected
        return error

    delivery = start(FaultyReporter([Step(error=refusal), ok, permanent]), batch_size=3)
    delivery.put(entries(9))
    assert delivery.wait_until_settled(20)
    counters = delivery.counters()
    assert (counters.delivered, counters.dropped.get("rejected", 0)) == (9 - expected - 3, expected + 3)
    assert balances(counters)


def test_a_partial_rejection_does_not_affect_the_next_batch(start: Start) -> None:
    reporter = FaultyReporter([partly(1)], forever=transient)
    delivery = start(reporter, batch_size=3)
    delivery.put(entries(6))
    eventually(lambda: len(reporter.attempts) > 1)
    delivery.request_stop(time.monotonic() + 0.2)
    eventually(lambda: not delivery.counters().held)
    assert (delivery.counters().delivered, delivery.counters().dropped) == (2, {"rejected": 1, "shutdown": 3})


def test_all_kinds_of_outcomes_in_sequence(start: Start, late_attempts: list[str]) -> None:
    """After outcomes of every kind, only the permanently rejected event is missing. All others arrive in order."""
    reporter = FaultyReporter([ok, transient, throttled(0.05), hang, permanent])
    delivery = start(reporter, batch_size=1, timeout=0.02)
    delivery.put(entries(4))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == [0, 2, 3]
    assert reporter.attempts == [(0,), (1,), (1,), (1,), (1,), (2,), (3,)]
    counters = delivery.counters()
    assert (counters.delivered, counters.dropped.get("rejected", 0), counters.failures - len(late_attempts)) == (
        3,
        1,
        4,
    )


class ThrottledBadly(ThrottledError):
    """Error whose ``retry_after`` is not a number of seconds."""

    def __init__(self, retry_after: Any) -> None:
        Exception.__init__(self, "busy")
        self.retry_after = retry_after


class RejectedBadly(PermanentError):
    """Error whose ``rejected`` is not a number of events."""

    rejected = "some"  # type: ignore[assignment]


@pytest.mark.parametrize(
    "verdict",
    [
        lambda: ThrottledError("busy", "1"),  # type: ignore[arg-type]  # HTTP headers are strings
        lambda: ThrottledError("busy", None),  # type: ignore[arg-type]
        lambda: ThrottledError("busy", float("nan")),
        lambda: PermanentError("no", -1),
        lambda: ThrottledBadly("1"),
        lambda: ThrottledBadly(None),
        lambda: ThrottledBadly(float("nan")),
    ],
)
def test_an_error_with_an_invalid_number_is_transient(start: Start, verdict: Callable[[], Exception]) -> None:
    """An error whose ``retry_after`` or ``rejected`` is invalid counts as transient, so the events are retried."""
    taken: list[Event] = []

    class RaisesOnce(Reporter):
        failed = False

        def report(self, events: Sequence[Event]) -> None:
            if not self.failed:
                self.failed = True
                raise verdict()
            taken.extend(events)

    delivery = start(RaisesOnce())
    delivery.put(entries(3))
    assert delivery.wait_until_settled(20)
    assert numbers(taken) == [0, 1, 2]
    assert (delivery.counters().delivered, delivery.counters().failures) == (3, 1)


@pytest.mark.parametrize("asked", [math.inf, 1.7e12, 10**400], ids=["for ever", "a moment", "more than a float"])
def test_an_excessive_delay_is_limited_to_an_hour(start: Start, asked: float) -> None:
    """A requested delay is at most one hour. At the application's end, the delay stops and the events are delivered."""
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


def test_retry_max_applies_to_the_first_back_off(start: Start) -> None:
    """``retry.max`` also limits the first back-off and its jitter, so users need to reduce only this setting."""
    reporter = FaultyReporter([transient, transient])
    delivery = start(reporter, retry_initial=36_500 * 86_400.0, retry_max=0.002)
    delivery.put(entries(3))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == [0, 1, 2]


def test_an_error_in_the_retry_loop_does_not_end_the_delivery(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error in the retry loop itself, such as a MemoryError, a new thread continues; no event is dropped."""
    reporter = FaultyReporter([transient])
    delivery = start(reporter)
    pause, defects = BreakerStage.pause, [MemoryError()]

    def fails_once(stage: BreakerStage) -> float:
        if reporter.attempts and defects:
            raise defects.pop()
        return pause(stage)

    monkeypatch.setattr(BreakerStage, "pause", fails_once)
    delivery.put(entries(3))
    eventually(lambda: delivery.counters().delivered == 3, meanwhile=lambda: delivery.check(time.monotonic()))
    assert not defects
    assert numbers(reporter.events) == [0, 1, 2]
    assert delivery.counters().dropped == {}


def test_a_rejection_with_an_invalid_number_rejects_the_whole_batch(start: Start) -> None:

    class Refuses(Reporter):
        def report(self, events: Sequence[Event]) -> None:
            raise RejectedBadly("no")

    delivery = start(Refuses())
    delivery.put(entries(3))
    assert delivery.wait_until_settled(20)
    assert delivery.counters().dropped == {"rejected": 3}


def test_errors_validate_their_numbers() -> None:
    """The constructor of an error rejects an invalid number. The message contains this value and the allowed values."""
    with pytest.raises(TypeError, match=r"ThrottledError: retry_after is '1'; allowed: a number of seconds"):
        ThrottledError("busy", "1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"PermanentError: rejected is -1; allowed: a whole number from 0, or None"):
        PermanentError("no", -1)


def test_unusual_exceptions_do_not_end_the_delivery(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Exceptions that do not derive from `Exception` are retried. If ``__str__`` raises, the log omits the message."""
    reporter = FaultyReporter([Step(error=NoException), Step(error=UnprintableError), ok])
    delivery = start(reporter, batch_size=1)
    delivery.put(entries(2))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == [1]
    counters = delivery.counters()
    assert (counters.delivered, counters.dropped, counters.failures) == (1, {"rejected": 1}, 2)
    assert "RuntimeError: the reporter raised a BaseException that is not an Exception: NoException: odd" in caplog.text
    assert (
        "dropping the rejected events: UnprintableError: (not printable: its __str__ raises ValueError)" in caplog.text
    )


@pytest.mark.parametrize("verdict", [OSError, PermanentError])
def test_an_error_text_may_contain_any_file_name(
    start: Start, caplog: pytest.LogCaptureFixture, verdict: Callable[[str], Exception]
) -> None:
    """An error message with lone surrogates, as in a file name that is not UTF-8, is handled like other messages."""
    delivery = start(FaultyReporter([Step(error=lambda: verdict(os.fsdecode(b"caf\xe9.json")))]))
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    rejected = verdict is PermanentError
    counters = delivery.counters()
    assert (counters.delivered, counters.dropped, counters.failures) == (
        1 - rejected,
        {"rejected": 1} if rejected else {},
        1,
    )
    assert f"{verdict.__name__}: caf?.json" in caplog.text


def test_a_long_error_is_truncated_in_the_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """A long error is truncated in the log, because logging the full message would delay other reporters."""
    delivery = start(FaultyReporter([Step(error=lambda: OSError("x" * 5_000_000))]))
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    assert "OSError: " + "x" * 2000 + "\n" in caplog.text


def test_an_outage_is_logged_at_its_start_and_end(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """The driver's log contains one line at the start and one line at the end of an outage."""
    delivery = start(FaultyReporter([transient] * 5))
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert messages == [
        "reporter audit: failed; holding its events and retrying: OSError: connection reset",
        "reporter audit: works again",
    ]


def test_a_reporter_that_cannot_be_opened_yet_is_opened_later(start: Start) -> None:
    """If a destination starts after the driver, the events are held until the reporter has been opened."""
    reporter = FaultyReporter(opening=[transient, transient])
    delivery = start(reporter)
    delivery.put(entries(3))
    assert delivery.wait_until_settled(20)
    assert reporter.opened == 3
    assert numbers(reporter.events) == [0, 1, 2]


def test_events_of_a_reporter_that_fails_to_open_permanently_are_dropped(start: Start) -> None:
    """If a reporter permanently fails to open, its events count as rejected, so a driver with `sync` does not wait."""
    reporter = FaultyReporter(opening=[permanent])
    delivery = start(reporter)
    for first in (0, 3):
        delivery.put(entries(3, first))
        assert delivery.wait_until_settled(20)
    assert (delivery.counters().delivered, delivery.counters().dropped.get("rejected", 0)) == (0, 6)
    assert delivery.store.oldest_seq() is None
    assert reporter.attempts == []


@pytest.mark.parametrize("closing", [transient, permanent, exits])
def test_an_error_in_close_is_only_logged(start: Start, caplog: pytest.LogCaptureFixture, closing: Any) -> None:
    """An error in a reporter's close() is only logged, because all events have already been delivered."""
    reporter = FaultyReporter(closing=closing)
    delivery = start(reporter)
    delivery.put(entries(2))
    stop(delivery, within=20)
    assert (numbers(reporter.events), reporter.closed) == ([0, 1], 1)
    assert "reporter audit: could not be closed" in caplog.text


def test_a_stop_delivers_the_remaining_events(start: Start) -> None:
    reporter = FaultyReporter([transient, transient])
    delivery = start(reporter, batch_size=1, retry_initial=0.01)
    delivery.put(entries(5))
    stop(delivery, within=20)
    assert numbers(reporter.events) == [0, 1, 2, 3, 4]
    assert reporter.closed == 1


@pytest.mark.parametrize("forever", [transient, throttled(60), hang], ids=["fails", "throttled", "hangs"])
def test_a_stop_ends_at_its_deadline(start: Start, caplog: pytest.LogCaptureFixture, forever: Any) -> None:
    """A stop returns by its deadline. A reporter that delivers nothing loses only its own events."""
    reporter = FaultyReporter(forever=forever)
    delivery = start(reporter, capacity=10)
    delivery.put(entries(4))
    eventually(lambda: reporter.attempts)
    assert stop(delivery, within=0.2) < 10
    assert delivery.store.oldest_seq() is None
    assert (delivery.counters().delivered, delivery.counters().dropped) == (0, {"shutdown": 4})
    assert "4 events were not delivered before the shutdown timeout and are lost" in caplog.text


def test_the_end_of_an_application_ends_a_requested_delay(start: Start) -> None:
    """The end of an application cuts a requested delay short. A wait for deliveries, as in a replay, does not."""
    reporter = FaultyReporter([throttled(3600)])
    delivery = start(reporter)
    delivery.put(entries(3))
    eventually(lambda: delivery.counters().failures == 1)
    dispatcher = Dispatcher([delivery], 10.0)
    dispatcher.drain(time.monotonic() + 0.3)
    assert len(reporter.attempts) == 1
    dispatcher.begin_drain()
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == [0, 1, 2]


#: In seconds; longer than any test.
_LONGER_THAN_ANY_TEST = 3600.0


def test_lingering_combines_sparse_events(start: Start) -> None:
    """With ``batch_linger``, ten events at intervals are delivered in fewer than ten calls."""
    reporter = FaultyReporter()
    delivery = start(reporter, batch_linger=0.5)
    for number in range(10):
        delivery.put(entries(1, number))
    eventually(lambda: len(reporter.events) == 10)
    assert len(reporter.attempts) < 10
    # The linger time starts again with the next event.
    delivery.put(entries(1, 10))
    eventually(lambda: len(reporter.events) == 11)
    assert numbers(reporter.events) == list(range(11))


@pytest.mark.parametrize("why", ["a failure", "a full batch", "the end", "a stop"])
def test_lingering_ends_early(start: Start, why: str) -> None:
    """The linger time ends early for an urgent event, for a full batch, and at shutdown."""
    reporter = FaultyReporter()
    delivery = start(reporter, batch_linger=_LONGER_THAN_ANY_TEST, batch_size=3)
    eventually(lambda: reporter.opened)
    delivery.put(entries(2))
    if why == "a failure":
        delivery.put([Entry(9, event(2, Severity.WARN))])
    elif why == "a full batch":
        delivery.put(entries(1, 2))
    elif why == "the end":
        delivery.begin_drain()
    else:
        delivery.request_stop(time.monotonic() + 20)
    eventually(lambda: len(reporter.events) >= 2)
    assert numbers(reporter.events) == ([0, 1] if why in ("the end", "a stop") else [0, 1, 2])


def test_the_rest_of_a_full_batch_does_not_linger(start: Start) -> None:
    """Events beyond a full batch are sent without lingering, because they have already waited."""
    reporter = FaultyReporter()
    delivery = start(reporter, batch_linger=_LONGER_THAN_ANY_TEST, batch_size=3)
    delivery.put(entries(4))
    eventually(lambda: len(reporter.events) == 4)
    assert numbers(reporter.events) == [0, 1, 2, 3]


def test_the_reporter_s_own_linger_applies_unless_configured(start: Start) -> None:
    """The reporter's own linger time applies unless ``batch.linger`` is set. An invalid linger time does not apply."""

    class Patient(FaultyReporter):
        linger = _LONGER_THAN_ANY_TEST

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


#: Shutdown timeout, in seconds. With a dead destination, the shutdown is far shorter, even on a busy machine.
_WHOLE_TIME = 60.0


class SlowReporter(FaultyReporter):
    """Reporter whose calls take a number of seconds of the delivery's clock, in which the test waits for nothing."""

    ahead = 0.0
    seconds = 0.0

    def clock(self) -> float:
        return time.monotonic() + self.ahead

    async def report(self, events: Sequence[Event]) -> None:
        self.ahead += self.seconds
        await super().report(events)


@dataclasses.dataclass(frozen=True)
class End:
    """Behavior of a destination around the end of its application, and the expected result.

    Attributes:
        script: the first steps of the reporter.
        forever: the steps after the script.
        attempts: number of attempts before the end.
        seconds: duration of each call during the end, on the delivery's clock.
        breaker: number of failures that opens the breaker, for an hour.
        is_durable: whether the events are on disk.
        timeout: time limit of a call.
        retry: pause after a failure.
        is_dead: whether the destination counts as dead, so that its events are dropped or stay on disk.
        last: number of attempts during the end; None: any.
    """

    script: Sequence[Step]
    forever: Step = ok
    attempts: int = 4
    seconds: float = 0.0
    breaker: int = 1000
    is_durable: bool = False
    timeout: float = 20.0
    retry: float = 0.001
    is_dead: bool = False
    last: int | None = None


_DEAD = End([], transient, 3, breaker=3, is_dead=True, last=1)
_HANGS = End([transient] * 2, hang, 3, seconds=2.5, timeout=_WHOLE_TIME, is_dead=True, last=0)
ENDS = {
    "dead: one last attempt": _DEAD,
    "dead, on disk: one last attempt": dataclasses.replace(_DEAD, is_durable=True),
    "dead and hangs: two seconds": _HANGS,
    "found dead, then hangs: two seconds": End(
        [hang, transient, transient], hang, 1, seconds=2.5, timeout=0.05, is_dead=True
    ),
    "is back: the whole time": End([transient] * 4, retry=0.1),
    "asks for pauses: the whole time": End([throttled(0.001)] * 40),
    "asks for pauses, on disk: the whole time": End([throttled(0.0)] * 10, is_durable=True),
    "slow: the whole time": End([transient], attempts=1, seconds=2.5, retry=0.1),
}


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS.keys())
def test_the_end_of_the_application(case: End) -> None:
    """A dead destination gets one last attempt or two seconds; any other destination may use all of the time."""
    reporter, store = SlowReporter(case.script, forever=case.forever), RecordingStore(is_durable=case.is_durable)
    config = DeliveryConfig(batch_size=1, timeout=case.timeout, retry_initial=case.retry, retry_max=case.retry)
    breaker = BreakerConfig(failures=case.breaker, open_initial=3600.0)
    delivery = Delivery(
        "audit",
        lambda: reporter,
        config,
        100,
        breaker=breaker,
        store=lambda wake, tell: store,
        clock=reporter.clock,
    )
    delivery.start()
    delivery.put(entries(5))
    eventually(lambda: len(reporter.attempts) >= case.attempts)
    eventually(lambda: case.breaker == 1000 or delivery.is_paused)
    before, began = len(reporter.attempts), time.monotonic()
    reporter.seconds = case.seconds
    dispatcher = Dispatcher([delivery], 10.0)
    dispatcher.begin_drain()
    # A call that hangs since before the end is not repeated, so the time passes here.
    reporter.ahead += case.seconds
    dispatcher.drain(began + 0.9 * _WHOLE_TIME)
    dispatcher.stop(began + _WHOLE_TIME)
    dropped = {"shutdown": 5} if case.is_dead else {}
    assert numbers(reporter.events) == ([] if case.is_dead else [0, 1, 2, 3, 4])
    assert (delivery.counters().dropped, delivery.counters().delivered) == (dropped, 0 if case.is_dead else 5)
    assert case.last is None or len(reporter.attempts) - before == case.last
    assert reporter.clock() - began < _WHOLE_TIME / 2
    # The store has the rest of the time.
    assert store.left > _WHOLE_TIME / 2


@pytest.mark.parametrize("later", ["slow", "quick"])
def test_a_success_after_the_timeout_counts_as_delivered_and_as_a_failure(
    later: str,
) -> None:
    """A blocking call that succeeds after its timeout counts as delivered, but as a failure for the breaker."""
    naps = [50.0, 50.0] if later == "slow" else [50.0, 0.0]
    changes: list[str] = []
    now = time.monotonic()

    class Naps(Reporter):
        def report(self, events: Sequence[Event]) -> None:
            nonlocal now
            if naps:
                now += naps.pop(0)

    config = DeliveryConfig(timeout=20.0, batch_size=1, retry_initial=0.001, retry_max=0.002)
    hooks = Hooks(on_breaker=lambda _name, _old, new, _why: changes.append(new.value))
    breaker = BreakerConfig(failures=2, open_initial=60.0)
    # This test uses a separate clock, so that it does not measure other delays of the thread.
    delivery = Delivery("audit", Naps, config, 100, hooks, breaker=breaker, clock=lambda: now)
    delivery.start()
    delivery.put(entries(3))
    delivered = 2 if later == "slow" else 3
    eventually(lambda: delivery.counters().delivered == delivered)
    counters = delivery.counters()
    assert (counters.failures, counters.breaker) == ((2, "open") if later == "slow" else (1, "closed"))
    delivery.request_stop(now + 200.0)
    delivery.join()
    assert delivery.counters().delivered == 3
    assert changes == (["open", "closed"] if later == "slow" else [])


def test_a_stop_ends_a_requested_delay(start: Start) -> None:
    """A stop cuts a requested delay of one minute short: the reporter makes one last attempt at once."""
    reporter = FaultyReporter([throttled(60)])
    delivery = start(reporter)
    delivery.put(entries(2))
    eventually(lambda: reporter.attempts)
    assert stop(delivery, within=20) < 20
    assert numbers(reporter.events) == [0, 1]


def test_a_blocking_reporter_loses_only_its_own_events(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """If a reporter blocks its thread, only its own events are lost: the stop logs the loss and does not wait."""
    blocked, other = GatedReporter(), FaultyReporter()
    first, second = start(blocked), start(other)
    for delivery in (first, second):
        delivery.put(entries(3))
    assert blocked.entered.wait(20)
    assert second.wait_until_settled(20)
    assert stop(first, within=0.05) < 10
    assert "reporter audit: 3 events were not delivered before the shutdown timeout and are lost" in caplog.text
    assert numbers(other.events) == [0, 1, 2]
    blocked.gate.set()


def test_a_reporter_that_ends_its_thread_gets_a_new_thread(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    """If a reporter stops its event loop, the stop is logged and counted once. A new thread retries the events."""
    taken = FaultyReporter()

    class Stops(Reporter):
        async def report(self, events: Sequence[Event]) -> None:
            asyncio.get_running_loop().stop()
            # On Python 3.12 and newer, report() would return before the loop stops without this sleep.
            await asyncio.sleep(0)

    reporters: list[Reporter] = [Stops(), Stops(), taken]
    delivery = begin("audit", lambda: reporters.pop(0), 100, **QUICK)
    delivery.put(entries(3))
    eventually(lambda: not reporters, meanwhile=lambda: delivery.check(time.monotonic()))
    assert delivery.wait_until_settled(20)
    assert numbers(taken.events) == [0, 1, 2]
    counters = delivery.counters()
    assert (counters.delivered, counters.failures, counters.hung, balances(counters)) == (3, 2, 0, True)
    message = (
        "reporter audit: ended its thread (RuntimeError: Event loop stopped before Future completed.); another thread"
        " retries its events;"
    )
    assert caplog.text.count(message) == 2


def test_events_beyond_the_capacity_are_dropped_and_logged(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Events beyond the capacity are dropped and logged. At shutdown, each accepted event is delivered or dropped."""
    reporter = GatedReporter()
    delivery = start(reporter, capacity=4, batch_size=1)
    delivery.put(entries(1))
    assert reporter.entered.wait(20)
    delivery.put(entries(9, first=1))
    reporter.gate.set()
    stop(delivery, within=20)
    assert numbers(reporter.events) == [0, 7, 8, 9]
    assert delivery.counters().delivered == 4
    assert "reporter audit: 6 events were dropped because its mailbox was full" in caplog.text


def test_a_nearly_full_mailbox_is_logged_once(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """A nearly full mailbox is logged with its fill level and settings, and again only once it has been half empty."""
    reporter = GatedReporter()
    delivery = start(reporter, capacity=10, batch_size=1)
    delivery.put(entries(8))
    delivery.check(time.monotonic())
    assert "its mailbox is" not in caplog.text
    delivery.put(entries(1))
    delivery.check(time.monotonic())
    delivery.check(time.monotonic())
    (warning,) = (record.getMessage() for record in caplog.records if "its mailbox is" in record.getMessage())
    assert warning.startswith("reporter audit: its mailbox is 90 % full because events arrive faster than it delivers")
    assert "spark.events.dispatcher.queue.size" in warning
    assert "spark.events.reporter.audit.delivery.guarantee=at-least-once" in warning
    reporter.gate.set()
    assert delivery.wait_until_settled(20)
    delivery.check(time.monotonic())
    reporter.gate.clear()
    delivery.put(entries(10))
    delivery.check(time.monotonic())
    assert caplog.text.count("its mailbox is") == 2
    reporter.gate.set()


def test_a_batch_never_empties_a_full_mailbox(start: Start) -> None:
    """A batch of a full mailbox excludes one event, so that a later and more severe event can replace this event."""
    reporter = GatedReporter()
    delivery = start(reporter, capacity=4, batch_size=100)
    delivery.put(entries(4))
    assert reporter.entered.wait(20)
    delivery.put([Entry(9, event(9, Severity.ERROR))])
    reporter.gate.set()
    stop(delivery, within=20)
    assert numbers(reporter.events)[-1] == 9
    assert delivery.counters().dropped == {"mailbox-full": 1}


def start_with_store(reporter: Reporter, store: RecordingStore, **config: Any) -> Delivery:
    """Return a started delivery with the given store."""
    times = DeliveryConfig(**{**QUICK, **config})
    delivery = Delivery("audit", lambda: reporter, times, 100, breaker=NEVER, store=lambda wake, tell: store)
    delivery.start()
    return delivery


def test_the_driver_waits_again_only_for_a_quick_reporter() -> None:
    """The driver waits for a full mailbox again only after a quick delivery, because each wait delays all reporters."""
    reporter, store = GatedReporter(), RecordingStore(1, is_durable=False)
    delivery = start_with_store(reporter, store)
    delivery.put(entries(1))
    assert reporter.entered.wait(20)
    for _ in range(5):
        delivery.wait_for_room(1)
    assert store.waits == 1
    reporter.gate.set()
    assert delivery.wait_until_settled(20)
    # One late answer does not prove that the reporter is fast again.
    delivery.wait_for_room(1)
    assert store.waits == 1

    def waits_again() -> bool:
        # On a busy machine, a batch may take a long time.
        delivery.put(entries(1))
        delivery.wait_until_settled(20)
        delivery.wait_for_room(1)
        return store.waits > 1

    eventually(waits_again)
    stop(delivery, within=20)


def test_the_driver_does_not_wait_for_a_failing_reporter() -> None:
    store = RecordingStore(2, is_durable=False)
    delivery = start_with_store(FaultyReporter(forever=transient), store)
    delivery.put(entries(2))
    eventually(lambda: delivery.counters().failures)
    delivery.wait_for_room(1)
    assert store.waits == 0
    stop(delivery, within=0.1)


@pytest.mark.parametrize(("is_durable", "held", "dropped"), [(True, 3, {}), (False, 0, {"shutdown": 3})])
def test_durable_events_remain_at_shutdown(is_durable: bool, held: int, dropped: dict[str, int]) -> None:
    """At shutdown, durable events stay on disk for the next run. Events in memory are lost."""
    store = RecordingStore(is_durable=is_durable)
    delivery = Delivery("audit", FaultyReporter, DeliveryConfig(), 100, store=lambda wake, tell: store)
    delivery.put(entries(3))
    turn = delivery._threads.current._turn
    assert numbers(turn.take(10)) == [0, 1, 2]
    turn.settle(Settlement("shutdown"), 0.1)
    assert (delivery.counters().held, delivery.counters().dropped) == (held, dropped)


@pytest.mark.parametrize(
    ("script", "timeout"), [([transient], 60.0), ([], 0.3)], ids=["has failed, then hangs", "fails at the end"]
)
def test_durable_events_delay_the_end_by_at_most_a_second(script: list[Step], timeout: float) -> None:
    store, reporter = RecordingStore(), FaultyReporter(script, forever=hang)
    delivery = start_with_store(reporter, store, timeout=timeout)
    delivery.put(entries(1))
    eventually(lambda: len(reporter.attempts) > len(script))
    assert stop(delivery, within=30) < 20
    assert store.left > 10


def test_durable_events_remain_if_the_reporter_cannot_be_opened() -> None:
    """If the reporter cannot be opened, durable events are kept, because the next run may be able to open it."""
    store, reporter = RecordingStore(), FaultyReporter(opening=[permanent])
    delivery = start_with_store(reporter, store)
    delivery.put(entries(3))
    eventually(lambda: delivery.counters().failures)
    delivery._threads.current.join(20)
    assert (delivery.counters().held, delivery.counters().dropped) == (3, {})
    stop(delivery, within=20)


def test_the_last_moment_is_reserved_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if a destination hangs, the last moments before the deadline are reserved for writing events to disk."""
    waits: list[float] = []
    # The test does not wait for the hanging call; it only checks how long the delivery would wait.
    monkeypatch.setattr(ReporterThread, "join", lambda thread, timeout: waits.append(timeout))
    store, reporter = RecordingStore(), FaultyReporter(forever=hang)
    delivery = start_with_store(reporter, store)
    delivery.put(entries(1))
    eventually(lambda: reporter.attempts)
    stop(delivery, within=60)
    (waited,) = waits
    assert waited <= 60 - 0.1
    assert store.left > 0


def test_progress_is_reported_for_every_settled_batch() -> None:
    """The delivery reports progress after each delivered or rejected batch, because the driver waits for progress."""
    progress: list[int | None] = []
    reporter = FaultyReporter([ok, permanent, ok])
    delivery = Delivery(
        "a", lambda: reporter, DeliveryConfig(batch_size=1, retry_initial=0.001), 10, Hooks(lambda: progress.append(1))
    )
    delivery.put(entries(3))
    delivery.start()
    assert delivery.wait_until_settled(20)
    stop(delivery, within=20)
    assert len(progress) == 3


class _WithTask(Reporter):
    """Reporter with a background task in its event loop. ``how`` selects the method that creates the task."""

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
        if self._how.startswith("by a plain report"):
            self._task = asyncio.get_running_loop().create_task(self._tick())
        if self._how == "by a plain report that fails until the task runs" and not self.ticks:
            raise OSError("not connected yet")
        return self._report() if self._how == "by an async report" else None


class _ObservingTask(_WithTask):
    """Reporter that records at each call how often its background task has run."""

    def __init__(self) -> None:
        super().__init__("by a plain open")
        self.seen: list[int] = []

    async def _tick(self) -> None:
        while True:
            self.ticks += 1
            await asyncio.sleep(0)

    def report(self, events: Sequence[Event]) -> None:
        self.seen.append(self.ticks)


def test_a_reporter_s_task_runs_during_many_calls(start: Start) -> None:
    """A background task of a reporter runs between plain calls, also if events arrive without a pause."""
    reporter = _ObservingTask()
    delivery = start(reporter, batch_size=1)
    delivery.put(entries(100))
    assert delivery.wait_until_settled(20)
    assert reporter.seen[-1] - reporter.seen[0] >= 90


@pytest.mark.parametrize(
    "how",
    [
        "by a plain open",
        "by a plain report",
        "by a plain report that fails until the task runs",
        "by an async report",
    ],
)
def test_a_reporter_s_task_runs_between_calls(start: Start, how: str) -> None:
    """A background task, for example to keep a connection alive, also runs without calls."""
    reporter = _WithTask(how)
    delivery = start(reporter)
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    before = reporter.ticks
    eventually(lambda: reporter.ticks > before + 3)


class _WithTimer(Reporter):
    """Reporter with a timer in its event loop, but without a task and without an async method."""

    def __init__(self) -> None:
        self.has_rung = False

    def report(self, events: Sequence[Event]) -> None:
        asyncio.get_running_loop().call_later(0.001, self._ring)

    def _ring(self) -> None:
        self.has_rung = True


def test_a_reporter_s_timer_expires_between_calls(start: Start) -> None:
    """A timer of a reporter with plain methods expires without another call."""
    reporter = _WithTimer()
    delivery = start(reporter)
    delivery.put(entries(1))
    eventually(lambda: reporter.has_rung)
    assert delivery.counters().delivered == 1


class _WithEndlessTask(_WithTask):
    """Reporter whose background task still runs at shutdown. With ``stays``, the task ignores its cancellation."""

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


def test_a_reporter_s_task_is_cancelled_at_the_end_without_warnings(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """A background task is cancelled before the loop closes, so asyncio logs no warning."""
    reporter = _WithEndlessTask(stays=False)
    delivery = start(reporter)
    eventually(lambda: reporter.ticks)
    stop(delivery, within=20)
    # asyncio logs its warning when the task object is destroyed.
    del reporter._task
    gc.collect()
    assert reporter.ended == 1
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_a_task_that_ignores_cancellation_does_not_delay_the_end(start: Start) -> None:
    """The shutdown waits only briefly for a background task that ignores its cancellation."""
    reporter = _WithEndlessTask(stays=True)
    delivery = start(reporter)
    eventually(lambda: reporter.ticks)
    assert stop(delivery, within=20) < 10
    assert reporter.ended == 1
