"""Tests that reporters that block or terminate their threads do not affect other reporters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from fakes import FaultyReporter, event, eventually, numbers, permanent, transient

from spark_events import Event, PermanentError, Reporter
from spark_events.dispatch import delivery as delivery_module
from spark_events.dispatch import retry_loop as retry_loop_module
from spark_events.dispatch.breaker import BreakerConfig, BreakerState
from spark_events.dispatch.config import DeliveryConfig
from spark_events.dispatch.delivery import Delivery, Hooks
from spark_events.dispatch.dispatcher import AsyncQueuedDispatcher
from spark_events.dispatch.entries import Entries, Entry

QUICK_BREAKER = BreakerConfig(failures=2, open_initial=0.05, open_max=0.1)


class Blocking(Reporter):
    """Reporter that blocks its thread and event loop until the gate opens, and then accepts the events."""

    def __init__(self, gate: threading.Event, taken: list[Event]) -> None:
        super().__init__()
        self._gate = gate
        self._taken = taken
        self.entered = threading.Event()

    async def report(self, events: Sequence[Event]) -> None:
        self.entered.set()
        self._gate.wait()
        self._taken.extend(events)


class Spins(Reporter):
    """Reporter with a busy loop that runs until the test ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.released = False

    def report(self, events: Sequence[Event]) -> None:
        self.entered.set()
        while not self.released:
            sum(range(100))


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    opened = threading.Event()
    yield opened
    opened.set()


def entries(count: int, first: int = 0) -> Entries:
    return Entries([Entry(number + 1, event(number)) for number in range(first, first + count)])


def started(make: Callable[[], Reporter], hooks: Hooks | None = None, timeout: float = 0.05) -> Delivery:
    delivery = Delivery(
        "r",
        make,
        DeliveryConfig(timeout=timeout, retry_initial=0.001),
        100,
        hooks,
        None,
        QUICK_BREAKER,
    )
    delivery.start()
    return delivery


def test_a_blocked_thread_is_replaced(gate: threading.Event) -> None:
    """If a reporter blocks its thread, a replacement in a new thread receives the same events in order."""
    blocked, taken = Blocking(gate, []), FaultyReporter()
    reporters: list[Reporter] = [blocked, taken]
    delivery = started(lambda: reporters.pop(0))
    delivery.put(entries(3))
    assert blocked.entered.wait(20)
    eventually(lambda: delivery.hung == 1, meanwhile=lambda: delivery.check(time.monotonic()))
    assert delivery.wait_until_settled(20)
    assert numbers(taken.events) == [0, 1, 2]
    counters = delivery.counters()
    assert (counters.hung, counters.delivered, counters.balances) == (1, 3, True)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_an_abandoned_call_that_returns_changes_no_count(gate: threading.Event) -> None:
    """If an abandoned call returns later, its events are not counted twice."""
    first, second = Blocking(gate, []), FaultyReporter()
    reporters: list[Reporter] = [first, second]
    delivery = started(lambda: reporters.pop(0))
    delivery.put(entries(2))
    assert first.entered.wait(20)
    abandoned = delivery._worker
    eventually(lambda: delivery.hung == 1, meanwhile=lambda: delivery.check(time.monotonic()))
    assert delivery.wait_until_settled(20)
    gate.set()
    eventually(lambda: not abandoned.is_alive)
    delivery.put(entries(1, 2))
    assert delivery.wait_until_settled(20)
    counters = delivery.counters()
    assert (counters.accepted, counters.delivered, counters.held, counters.balances) == (3, 3, 0, True)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_the_number_of_blocked_threads_is_bounded(gate: threading.Event) -> None:
    """If a reporter always blocks, its events are held as soon as the limit of blocked threads is reached."""
    delivery = started(lambda: Blocking(gate, []), Hooks(), timeout=0.01)
    delivery.put(entries(1))
    eventually(lambda: delivery.hung == 4, within=60, meanwhile=lambda: delivery.check(time.monotonic()))
    until = time.monotonic() + 1
    eventually(lambda: time.monotonic() > until, meanwhile=lambda: delivery.check(time.monotonic()))
    assert (delivery.hung, delivery.counters().held) == (4, 1)
    delivery.request_stop(time.monotonic())
    delivery.join()


def test_a_returned_thread_does_not_count_towards_the_limit(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that has returned does not count towards the limit of blocked threads."""
    monkeypatch.setattr(delivery_module, "_MOST_HUNG", 2)
    first = threading.Event()
    gates = [first]
    delivery = started(lambda: Blocking(gates.pop() if gates else gate, []), timeout=0.01)
    returned = delivery._worker
    delivery.put(entries(1))
    eventually(lambda: delivery.hung == 2, meanwhile=lambda: delivery.check(time.monotonic()))
    first.set()
    eventually(lambda: not returned.is_alive)
    eventually(lambda: delivery.hung == 3, meanwhile=lambda: delivery.check(time.monotonic()))
    delivery.request_stop(time.monotonic())
    delivery.join()


def test_the_breaker_opens_for_a_reporter_that_always_blocks(gate: threading.Event) -> None:
    """The breaker opens for a reporter that always blocks, although open() of each replacement succeeds."""
    changes: list[BreakerState] = []
    hooks = Hooks(on_breaker=lambda name, old, new, why: changes.append(new))
    delivery = started(lambda: Blocking(gate, []), hooks, timeout=0.01)
    delivery.put(entries(1))
    eventually(lambda: delivery.hung == 4, within=60, meanwhile=lambda: delivery.check(time.monotonic()))
    opened, trying = BreakerState.OPEN, BreakerState.HALF_OPEN
    # Two blocked threads open the breaker; each further blocked thread is a failed probe.
    assert changes[:5] == [opened, trying, opened, trying, opened]
    delivery.request_stop(time.monotonic())
    delivery.join()


def test_a_successful_open_closes_the_breaker() -> None:
    """Even without events, a successful open() closes the breaker. Otherwise, the next failure would reopen it."""
    states: list[BreakerState] = []
    reporter = FaultyReporter(opening=[transient] * 3)
    hooks = Hooks(on_breaker=lambda _name, _old, new, _why: states.append(new))
    delivery = started(lambda: reporter, hooks, timeout=20.0)
    eventually(lambda: reporter.opened == 4)
    eventually(lambda: not delivery.is_held_back)
    assert states[0] is BreakerState.OPEN
    assert states[-1] is BreakerState.CLOSED
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_replacement_during_the_drain_ignores_the_open_breaker(gate: threading.Event) -> None:
    """During the drain, a replacement starts despite an open breaker, because the open time exceeds the deadline."""
    reporters: list[Reporter] = [Blocking(gate, []), FaultyReporter()]
    config, hour = DeliveryConfig(timeout=0.05, retry_initial=0.001), BreakerConfig(failures=1, open_initial=300.0)
    delivery = Delivery("r", lambda: reporters.pop(0), config, 100, breaker=hour)
    delivery.start()
    delivery.begin_drain()
    delivery.put(entries(3))
    eventually(lambda: delivery.hung == 1, meanwhile=lambda: delivery.check(time.monotonic()))
    assert delivery.wait_until_settled(20)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_permanent_failure_closes_the_breaker() -> None:
    """A permanent failure closes the breaker, because it proves that the destination answers."""
    delivery = started(lambda: FaultyReporter([transient, transient, permanent]), timeout=20.0)
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    assert delivery.counters().dropped == {"rejected": 1}
    assert not delivery.is_held_back
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


class EndsSlowly(Reporter):
    """Reporter whose call returns shortly after its cancellation."""

    cancelled = 0

    async def report(self, events: Sequence[Event]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await asyncio.sleep(0.1)
            raise


def test_a_cancelled_attempt_may_end_slowly() -> None:
    """If a cancelled attempt returns slowly, its thread does not count as blocked and is used again."""
    reporter = EndsSlowly()
    delivery = started(lambda: reporter)
    delivery.put(entries(1))
    eventually(lambda: reporter.cancelled >= 3, meanwhile=lambda: delivery.check(time.monotonic()))
    assert delivery.hung == 0
    delivery.request_stop(time.monotonic())
    delivery.join()


def test_a_busy_thread_is_abandoned_and_replaced(late_attempts: list[str]) -> None:
    """A thread with a busy loop is abandoned and counted. A replacement delivers the events."""
    spinning = Spins()
    reporters: list[Reporter] = [spinning, FaultyReporter()]
    delivery = started(lambda: reporters.pop(0))
    abandoned = delivery._worker
    delivery.put(entries(3))
    assert spinning.entered.wait(20)
    eventually(lambda: delivery.hung == 1, meanwhile=lambda: delivery.check(time.monotonic()))
    assert delivery.wait_until_settled(20)
    assert abandoned.is_alive
    spinning.released = True
    eventually(lambda: not abandoned.is_alive)
    counters = delivery.counters()
    assert (counters.hung, counters.delivered, counters.failures - len(late_attempts), counters.balances) == (
        1,
        3,
        1,
        True,
    )
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_failing_replacement_is_retried(gate: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    """If the constructor of a replacement raises, it is retried and logged once. Supervision continues."""
    blocked, taken = Blocking(gate, []), FaultyReporter()
    outcomes: list[Reporter | None] = [blocked, None, None, taken]

    def make() -> Reporter:
        made = outcomes.pop(0)
        if made is None:
            raise OSError("Too many open files")
        return made

    delivery = started(make)
    delivery.put(entries(3))
    assert blocked.entered.wait(20)
    eventually(lambda: delivery.hung == 1, meanwhile=lambda: delivery.check(time.monotonic()))
    assert delivery.wait_until_settled(20)
    assert numbers(taken.events) == [0, 1, 2]
    message = "cannot create a replacement reporter; holding its events and retrying: OSError: Too many open files"
    assert caplog.text.count(message) == 1
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def overdue(delivery: Delivery) -> None:
    """Wait until the reporter's thread counts as blocked at the next check by the supervision."""
    eventually(lambda: delivery._worker.overdue(time.monotonic())[0] > 0.6)


@pytest.fixture
def thread_limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Return a function that allows or prevents the start of threads."""
    start, reached = threading.Thread.start, False

    def start_if_there_is_one(thread: threading.Thread) -> None:
        if reached:
            raise RuntimeError("can't start new thread")
        start(thread)

    def reach(is_reached: bool) -> None:
        nonlocal reached
        reached = is_reached

    monkeypatch.setattr(threading.Thread, "start", start_if_there_is_one)
    return reach


def test_a_failed_thread_start_is_logged_once_per_blocked_thread(
    gate: threading.Event, caplog: pytest.LogCaptureFixture, thread_limit: Callable[[bool], None]
) -> None:
    """If no thread can be started, each blocked thread causes one message, however often the start fails."""
    blocked = [Blocking(gate, []), Blocking(gate, [])]
    reporters: list[Reporter] = [*blocked, FaultyReporter()]
    delivery = started(lambda: reporters.pop(0))
    delivery.put(entries(3))
    message = (
        "blocks its thread, which is abandoned; cannot start a replacement thread, retrying:"
        " RuntimeError: can't start new thread"
    )
    for hung, one in enumerate(blocked, 1):
        assert one.entered.wait(20)
        overdue(delivery)
        thread_limit(True)
        delivery.check(time.monotonic())
        delivery.check(time.monotonic())
        thread_limit(False)
        delivery.check(time.monotonic())
        assert (delivery.hung, caplog.text.count(message)) == (hung, 1)
        caplog.clear()
    assert delivery.wait_until_settled(20)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_returned_thread_that_blocks_again_is_logged_again(
    gate: threading.Event, caplog: pytest.LogCaptureFixture, thread_limit: Callable[[bool], None]
) -> None:
    """If a blocked thread that was not replaced returns and blocks again, a second message is logged."""
    blocked = Blocking(gate, [])
    delivery = started(lambda: blocked)
    thread_limit(True)
    for number in range(2):
        gate.clear()
        blocked.entered.clear()
        delivery.put(entries(1, number))
        assert blocked.entered.wait(20)
        overdue(delivery)
        delivery.check(time.monotonic())
        assert "blocks its thread, which is abandoned; cannot start a replacement" in caplog.text
        gate.set()
        assert delivery.wait_until_settled(20)
        delivery.check(time.monotonic())
        caplog.clear()
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_failed_thread_starts_do_not_count_as_failures(
    gate: threading.Event,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    thread_limit: Callable[[bool], None],
) -> None:
    """A failed thread start does not count as another failure, and its event loop is closed."""
    loops: list[asyncio.AbstractEventLoop] = []
    new_loop = asyncio.new_event_loop

    def noted() -> asyncio.AbstractEventLoop:
        loops.append(new_loop())
        return loops[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", noted)
    blocked, taken = Blocking(gate, []), FaultyReporter()
    reporters: list[Reporter] = [blocked, taken]
    changes: list[BreakerState] = []
    delivery = started(lambda: reporters.pop(0), Hooks(on_breaker=lambda name, old, new, why: changes.append(new)))
    delivery.put(entries(3))
    assert blocked.entered.wait(20)
    thread_limit(True)
    eventually(lambda: "can't start new thread" in caplog.text, meanwhile=lambda: delivery.check(time.monotonic()))
    delivery.check(time.monotonic())
    assert [loop.is_closed() for loop in loops] == [False, True, True]
    thread_limit(False)
    delivery.check(time.monotonic())
    assert (delivery.hung, delivery.counters().failures) == (1, 1)
    assert delivery.wait_until_settled(20)
    assert changes == []
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_blocking_constructor_delays_only_its_reporter(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constructor that blocks, for example on an unreachable host, delays neither supervision nor shutdown."""
    monkeypatch.setattr(retry_loop_module, "_MAKING_SECONDS", 0.1)
    blocked, taken, connecting = Blocking(gate, []), FaultyReporter(), threading.Event()
    made: list[int] = []

    def make() -> Reporter:
        made.append(len(made))
        if len(made) == 2:
            connecting.set()
            gate.wait()
        return blocked if len(made) == 1 else taken

    delivery = started(make)
    delivery.put(entries(3))
    assert blocked.entered.wait(20)
    eventually(lambda: delivery.hung == 1, meanwhile=lambda: delivery.check(time.monotonic()))
    assert connecting.wait(20)
    delivery.begin_drain()
    # The supervision abandons a blocked constructor like a blocked call.
    eventually(lambda: delivery.hung == 2, meanwhile=lambda: delivery.check(time.monotonic()))
    assert delivery.wait_until_settled(20)
    assert numbers(taken.events) == [0, 1, 2]
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_replacement_is_constructed_like_the_first_reporter(gate: threading.Event) -> None:
    """The constructor of a replacement may exceed the timeout or run its own loop. Its errors reject no event."""
    blocked, taken = Blocking(gate, []), FaultyReporter()
    made: list[int] = []

    def make() -> Reporter:
        made.append(len(made))
        if len(made) == 2:
            raise PermanentError("no licence at the moment")
        asyncio.run(asyncio.sleep(0 if len(made) == 1 else 0.7))
        return blocked if len(made) == 1 else taken

    delivery = started(make, timeout=0.05)
    delivery.put(entries(3))
    assert blocked.entered.wait(20)
    eventually(lambda: delivery.counters().delivered == 3, meanwhile=lambda: delivery.check(time.monotonic()))
    assert (len(made), delivery.hung, delivery.counters().dropped) == (3, 1, {})
    assert numbers(taken.events) == [0, 1, 2]
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_failing_check_does_not_stop_the_supervision_of_other_reporters(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in the check of one reporter is logged once. Other blocked reporters are still replaced."""

    class FailingCheck(Delivery):
        def check(self, now: float) -> None:
            raise RuntimeError("a defect")

    blocked, taken = Blocking(gate, []), FaultyReporter()
    reporters: list[Reporter] = [blocked, taken]
    config = DeliveryConfig(timeout=0.05, retry_initial=0.001)
    defective = FailingCheck("defective", FaultyReporter, config, 100)
    other = Delivery("other", lambda: reporters.pop(0), config, 100)
    dispatcher = AsyncQueuedDispatcher([defective, other], 20)
    dispatcher.start()
    dispatcher.dispatch(entries(3), 3)
    assert other.wait_until_settled(20)
    assert numbers(taken.events) == [0, 1, 2]
    dispatcher.stop(time.monotonic() + 5)
    assert caplog.text.count("reporter defective: the check for blocked threads failed") == 1


def test_a_burst_waits_once_for_a_stuck_reporter(gate: threading.Event) -> None:
    """The dispatcher waits briefly for a full mailbox, but does not wait again while this mailbox stays full."""
    blocked = Blocking(gate, [])
    delivery = started(lambda: blocked, timeout=20.0)
    delivery.put(entries(100))
    assert blocked.entered.wait(20)
    waits: list[float] = []
    for _ in range(20):
        before = time.monotonic()
        delivery.wait_for_room(1)
        waits.append(time.monotonic() - before)
    assert waits[0] >= 0.01
    assert sorted(waits[1:])[15] < 0.005
    gate.set()
    assert delivery.wait_until_settled(20)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_other_reporters_continue_while_one_blocks(gate: threading.Event) -> None:
    """Reporters share no resource that a blocked reporter could exhaust, so other reporters continue."""
    blocked, healthy = Blocking(gate, []), FaultyReporter()
    one = Delivery("blocked", lambda: blocked, DeliveryConfig(), 10)
    other = Delivery("healthy", lambda: healthy, DeliveryConfig(), 1000)
    dispatcher = AsyncQueuedDispatcher([one, other], 20)
    dispatcher.start()
    for first in range(0, 500, 5):
        dispatcher.dispatch(entries(5, first), first + 5)
    assert other.wait_until_settled(20)
    assert numbers(healthy.events) == list(range(500))
    counters = one.counters()
    assert (counters.accepted, counters.held, counters.dropped["mailbox-full"]) == (500, 10, 490)
    dispatcher.stop(time.monotonic() + 0.05)
    assert one.counters().dropped["shutdown"] == 10


def test_an_outage_opens_the_breaker_and_loses_no_event() -> None:
    """During an outage, the breaker opens and holds the events. They later arrive in order; each change is reported."""
    changes: list[tuple[BreakerState, BreakerState]] = []
    reporter = FaultyReporter([transient] * 5)
    hooks = Hooks(on_breaker=lambda name, old, new, why: changes.append((old, new)))
    delivery = started(lambda: reporter, hooks, timeout=20.0)
    delivery.put(entries(4))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == [0, 1, 2, 3]
    opened, trying, closed = BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED
    # Two failures open the breaker; each of the other three failures is a failed probe.
    failed = [(opened, trying), (trying, opened)]
    assert changes == [(closed, opened), *failed * 3, (opened, trying), (trying, closed)]
    assert delivery.counters().breaker == "closed"
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()
