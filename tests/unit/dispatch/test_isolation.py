"""Tests that reporters that block or terminate their threads do not affect other reporters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from fakes import FaultyReporter, balances, eventually, numbers, permanent, transient

from spark_events import Event, PermanentError, Reporter
from spark_events.dispatch.breaker import BreakerConfig, BreakerState
from spark_events.dispatch.delivery import Delivery, Hooks
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.dispatcher import Dispatcher
from unit.dispatch.conftest import RecordingStore, entries

QUICK_BREAKER = BreakerConfig(failures=2, open_initial=0.05, open_max=0.1)
HOUR = 3600.0


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


def started(make: Callable[[], Reporter], hooks: Hooks | None = None, timeout: float = 60.0) -> Delivery:
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


def check_later(delivery: Delivery) -> None:
    """Check the delivery as if an hour had passed, so that a call in progress is overdue."""
    delivery.check(time.monotonic() + HOUR)


def test_a_blocked_thread_is_replaced(gate: threading.Event) -> None:
    """If a reporter blocks its thread, a replacement in a new thread receives the same events in order."""
    blocked, taken = Blocking(gate, []), FaultyReporter()
    reporters: list[Reporter] = [blocked, taken]
    delivery = started(lambda: reporters.pop(0))
    delivery.put(entries(3))
    assert blocked.entered.wait(20)
    check_later(delivery)
    assert delivery.tally.hung == 1
    assert delivery.wait_until_settled(20)
    assert numbers(taken.events) == [0, 1, 2]
    counters = delivery.counters()
    assert (counters.hung, counters.delivered, balances(counters)) == (1, 3, True)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_an_abandoned_call_that_returns_changes_no_count(gate: threading.Event) -> None:
    first, second = Blocking(gate, []), FaultyReporter()
    reporters: list[Reporter] = [first, second]
    delivery = started(lambda: reporters.pop(0))
    delivery.put(entries(2))
    assert first.entered.wait(20)
    abandoned = delivery._threads.current
    check_later(delivery)
    assert delivery.tally.hung == 1
    assert delivery.wait_until_settled(20)
    gate.set()
    eventually(lambda: not abandoned.is_alive)
    delivery.put(entries(1, 2))
    assert delivery.wait_until_settled(20)
    counters = delivery.counters()
    assert (counters.accepted, counters.delivered, counters.held, balances(counters)) == (3, 3, 0, True)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


class BlockingReplacements:
    """Delivery whose reporters all block.

    Args:
        gates: gate of each reporter, in the order of creation; the last gate applies to all further reporters.
        hooks: callbacks of the delivery.
    """

    def __init__(self, *gates: threading.Event, hooks: Hooks | None = None) -> None:
        self._gates = list(gates)
        self._made: list[Blocking] = []
        self.delivery = started(self._make, hooks)
        self.delivery.put(entries(1))

    def _make(self) -> Reporter:
        self._made.append(Blocking(self._gates[min(len(self._made), len(self._gates) - 1)], []))
        return self._made[-1]

    def wait_until_blocked(self, count: int) -> None:
        """Wait until the reporter with this number, counted from 1, blocks its thread."""
        eventually(lambda: len(self._made) >= count, what=f"reporter {count}")
        assert self._made[count - 1].entered.wait(20)

    def abandon(self, count: int) -> None:
        """Let the delivery abandon the given number of blocked threads, one after another."""
        for number in range(1, count + 1):
            self.wait_until_blocked(number)
            check_later(self.delivery)
            assert self.delivery.tally.hung == number

    def stop(self) -> None:
        self.delivery.request_stop(time.monotonic())
        self.delivery.join()


def test_the_number_of_blocked_threads_is_bounded(gate: threading.Event) -> None:
    """If a reporter always blocks, its events are held as soon as the limit of blocked threads is reached."""
    blocking = BlockingReplacements(gate)
    blocking.abandon(4)
    blocking.wait_until_blocked(5)
    for _ in range(3):
        check_later(blocking.delivery)
    assert (blocking.delivery.tally.hung, blocking.delivery.counters().held) == (4, 1)
    blocking.stop()


def test_a_returned_thread_does_not_count_towards_the_limit(gate: threading.Event) -> None:
    first = threading.Event()
    blocking = BlockingReplacements(first, gate)
    returned = blocking.delivery._threads.current
    blocking.abandon(4)
    blocking.wait_until_blocked(5)
    first.set()
    eventually(lambda: not returned.is_alive)
    check_later(blocking.delivery)
    assert blocking.delivery.tally.hung == 5
    blocking.stop()


def test_the_breaker_opens_for_a_reporter_that_always_blocks(gate: threading.Event) -> None:
    """The breaker opens for a reporter that always blocks, although open() of each replacement succeeds."""
    changes: list[BreakerState] = []
    blocking = BlockingReplacements(gate, hooks=Hooks(on_breaker=lambda name, old, new, why: changes.append(new)))
    blocking.abandon(4)
    opened, trying = BreakerState.OPEN, BreakerState.HALF_OPEN
    # Two blocked threads open the breaker; each further blocked thread is a failed probe.
    assert changes[:5] == [opened, trying, opened, trying, opened]
    blocking.stop()


def test_a_successful_open_closes_the_breaker() -> None:
    """Even without events, a successful open() closes the breaker. Otherwise, the next failure would reopen it."""
    states: list[BreakerState] = []
    reporter = FaultyReporter(opening=[transient] * 3)
    hooks = Hooks(on_breaker=lambda _name, _old, new, _why: states.append(new))
    delivery = started(lambda: reporter, hooks)
    eventually(lambda: reporter.opened == 4)
    eventually(lambda: not delivery.is_paused)
    assert states[0] is BreakerState.OPEN
    assert states[-1] is BreakerState.CLOSED
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_replacement_during_the_drain_ignores_the_open_breaker(gate: threading.Event) -> None:
    """During the drain, a replacement starts despite an open breaker, because the open time exceeds the deadline."""
    blocked = Blocking(gate, [])
    reporters: list[Reporter] = [blocked, FaultyReporter()]
    config = DeliveryConfig(timeout=60.0, retry_initial=0.001)
    breaker = BreakerConfig(failures=1, open_initial=300.0)
    delivery = Delivery("r", lambda: reporters.pop(0), config, 100, breaker=breaker)
    delivery.start()
    delivery.begin_drain()
    delivery.put(entries(3))
    assert blocked.entered.wait(20)
    check_later(delivery)
    assert delivery.tally.hung == 1
    assert delivery.wait_until_settled(20)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_permanent_failure_closes_the_breaker() -> None:
    """A permanent failure closes the breaker, because it proves that the destination answers."""
    delivery = started(lambda: FaultyReporter([transient, transient, permanent]))
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    assert delivery.counters().dropped == {"rejected": 1}
    assert not delivery.is_paused
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


class EndsSlowly(Reporter):
    """Reporter whose cancelled call ends only when the test permits it."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.threads: set[int] = set()

    async def report(self, events: Sequence[Event]) -> None:
        self.threads.add(threading.get_ident())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.release()
            await asyncio.to_thread(self.may_end.acquire, timeout=20)
            raise


def test_a_cancelled_attempt_may_end_slowly() -> None:
    """If a cancelled attempt returns slowly, its thread does not count as blocked and is used again."""
    reporter = EndsSlowly()
    delivery = started(lambda: reporter, timeout=0.05)
    before = time.monotonic()
    delivery.put(entries(1))
    for _ in range(3):
        assert reporter.cancelled.acquire(timeout=20)
        # The attempt has begun after `before`, so at this time it has exceeded its timeout by less than half a second.
        delivery.check(before + 0.5)
        assert delivery.tally.hung == 0
        before = time.monotonic()
        reporter.may_end.release()
    assert len(reporter.threads) == 1
    reporter.may_end.release(1000)
    delivery.request_stop(time.monotonic())
    delivery.join()


def test_a_busy_thread_is_abandoned_and_replaced() -> None:
    """A thread with a busy loop is abandoned and counted. A replacement delivers the events."""
    spinning = Spins()
    reporters: list[Reporter] = [spinning, FaultyReporter()]
    delivery = started(lambda: reporters.pop(0))
    abandoned = delivery._threads.current
    delivery.put(entries(3))
    assert spinning.entered.wait(20)
    check_later(delivery)
    assert delivery.tally.hung == 1
    assert delivery.wait_until_settled(20)
    assert abandoned.is_alive
    spinning.released = True
    eventually(lambda: not abandoned.is_alive)
    counters = delivery.counters()
    assert (counters.hung, counters.delivered, counters.failures, balances(counters)) == (1, 3, 1, True)
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
    check_later(delivery)
    assert delivery.tally.hung == 1
    assert delivery.wait_until_settled(20)
    assert numbers(taken.events) == [0, 1, 2]
    message = "cannot create a replacement reporter; holding its events and retrying: OSError: Too many open files"
    assert caplog.text.count(message) == 1
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


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
        thread_limit(True)
        check_later(delivery)
        check_later(delivery)
        thread_limit(False)
        check_later(delivery)
        assert (delivery.tally.hung, caplog.text.count(message)) == (hung, 1)
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
        check_later(delivery)
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
    check_later(delivery)
    assert "can't start new thread" in caplog.text
    check_later(delivery)
    assert [loop.is_closed() for loop in loops] == [False, True, True]
    thread_limit(False)
    check_later(delivery)
    assert (delivery.tally.hung, delivery.counters().failures) == (1, 1)
    assert delivery.wait_until_settled(20)
    assert changes == []
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_blocking_constructor_delays_only_its_reporter(gate: threading.Event) -> None:
    """A constructor that blocks, for example on an unreachable host, delays neither supervision nor shutdown."""
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
    check_later(delivery)
    assert delivery.tally.hung == 1
    assert connecting.wait(20)
    delivery.begin_drain()
    # The supervision abandons a blocked constructor like a blocked call.
    check_later(delivery)
    assert delivery.tally.hung == 2
    assert delivery.wait_until_settled(20)
    assert numbers(taken.events) == [0, 1, 2]
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_replacement_is_constructed_like_the_first_reporter(gate: threading.Event) -> None:
    """The constructor of a replacement may exceed the timeout or run its own loop. Its errors reject no event."""
    blocked, taken = Blocking(gate, []), FaultyReporter()
    connecting, checked = threading.Event(), threading.Event()
    made: list[int] = []

    def make() -> Reporter:
        made.append(len(made))
        if len(made) == 2:
            raise PermanentError("no licence at the moment")
        asyncio.run(asyncio.sleep(0))
        if len(made) == 1:
            return blocked
        connecting.set()
        checked.wait(20)
        return taken

    delivery = started(make, timeout=0.05)
    delivery.put(entries(3))
    assert blocked.entered.wait(20)
    before = time.monotonic()
    check_later(delivery)
    assert connecting.wait(20)
    # The constructor has run for less than 10 s at this time, but for much longer than the timeout.
    delivery.check(before + 10)
    checked.set()
    assert delivery.wait_until_settled(20)
    assert (len(made), delivery.tally.hung, delivery.counters().dropped) == (3, 1, {})
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

    class OverdueAtOnce(Delivery):
        """Delivery whose first blocked call is overdue at the next check."""

        def check(self, now: float) -> None:
            super().check(now + HOUR if blocked.entered.is_set() and not self.tally.hung else now)

    reporters: list[Reporter] = [blocked, taken]
    config = DeliveryConfig(timeout=60.0, retry_initial=0.001)
    defective = FailingCheck("defective", FaultyReporter, config, 100)
    other = OverdueAtOnce("other", lambda: reporters.pop(0), config, 100)
    dispatcher = Dispatcher([defective, other], 20)
    dispatcher.start()
    dispatcher.dispatch(entries(3), 3)
    assert other.wait_until_settled(20)
    assert numbers(taken.events) == [0, 1, 2]
    dispatcher.stop(time.monotonic() + 5)
    assert caplog.text.count("reporter defective: the check for blocked threads failed") == 1


def test_a_check_that_fails_again_after_a_success_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    script, is_over = [True, True, False, True], threading.Event()

    class FailingCheck(Delivery):
        def check(self, now: float) -> None:
            if not script:
                is_over.set()
            elif script.pop(0):
                raise RuntimeError("a defect")

    dispatcher = Dispatcher([FailingCheck("defective", FaultyReporter, DeliveryConfig(), 100)], 20)
    dispatcher.start()
    assert is_over.wait(20)
    dispatcher.stop(time.monotonic() + 5)
    assert caplog.text.count("reporter defective: the check for blocked threads failed") == 2


def test_a_burst_waits_once_for_a_stuck_reporter(gate: threading.Event) -> None:
    """The dispatcher waits briefly for a full mailbox, but does not wait again while this mailbox stays full."""
    blocked, store = Blocking(gate, []), RecordingStore(100, is_durable=False)
    delivery = Delivery("r", lambda: blocked, DeliveryConfig(timeout=60.0), 100, store=lambda wake, tell: store)
    delivery.start()
    delivery.put(entries(100))
    assert blocked.entered.wait(20)
    before = time.monotonic()
    delivery.wait_for_room(1)
    assert time.monotonic() - before >= 0.01
    for _ in range(20):
        delivery.wait_for_room(1)
    assert store.waits == 1
    gate.set()
    assert delivery.wait_until_settled(20)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_other_reporters_continue_while_one_blocks(gate: threading.Event) -> None:
    """Reporters share no resource that a blocked reporter could exhaust, so other reporters continue."""
    blocked, healthy = Blocking(gate, []), FaultyReporter()
    one = Delivery("blocked", lambda: blocked, DeliveryConfig(), 10)
    other = Delivery("healthy", lambda: healthy, DeliveryConfig(), 1000)
    dispatcher = Dispatcher([one, other], 20)
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
    delivery = started(lambda: reporter, hooks)
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
