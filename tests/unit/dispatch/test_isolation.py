"""What a reporter does to its own thread stays there, and costs nobody else anything."""

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
    """Blocks its thread, event loop and all, until the gate opens; then it takes everything."""

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
    """Keeps the processor busy until the test releases it."""

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


def test_a_blocked_thread_is_given_up_and_another_delivers(gate: threading.Event) -> None:
    """The first reporter blocks for ever; its successor gets the same events, in order."""
    blocked, taken = Blocking(gate, []), FaultyReporter()
    reporters: list[Reporter] = [blocked, taken]
    delivery = started(lambda: reporters.pop(0))
    delivery.put(entries(3))
    assert blocked.entered.wait(20)
    eventually(lambda: delivery.hung == 1, meanwhile=lambda: delivery.check(time.monotonic()))
    assert delivery.wait_until_settled(20)
    assert numbers(taken.events) == [0, 1, 2]
    books = delivery.counters()
    assert (books.hung, books.delivered, books.balances) == (1, 3, True)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_thread_that_comes_back_late_changes_nothing(gate: threading.Event) -> None:
    """When the abandoned call returns after all, the books do not count its events again."""
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
    books = delivery.counters()
    assert (books.accepted, books.delivered, books.held, books.balances) == (3, 3, 0, True)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_the_number_of_blocked_threads_is_bounded(gate: threading.Event) -> None:
    """A reporter that always blocks is not given threads for ever; its events are held."""
    delivery = started(lambda: Blocking(gate, []), Hooks(), timeout=0.01)
    delivery.put(entries(1))
    eventually(lambda: delivery.hung == 4, within=60, meanwhile=lambda: delivery.check(time.monotonic()))
    until = time.monotonic() + 1
    eventually(lambda: time.monotonic() > until, meanwhile=lambda: delivery.check(time.monotonic()))
    assert (delivery.hung, delivery.counters().held) == (4, 1)
    delivery.request_stop(time.monotonic())
    delivery.join()


def test_a_reporter_whose_thread_comes_back_is_given_another_one(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are blocked at the same time are bounded, and not those that ever were."""
    monkeypatch.setattr(delivery_module, "_MOST_HUNG", 2)
    first = threading.Event()
    gates = [first]
    delivery = started(lambda: Blocking(gates.pop() if gates else gate, []), timeout=0.01)
    came_back = delivery._worker
    delivery.put(entries(1))
    eventually(lambda: delivery.hung == 2, meanwhile=lambda: delivery.check(time.monotonic()))
    first.set()
    eventually(lambda: not came_back.is_alive)
    eventually(lambda: delivery.hung == 3, meanwhile=lambda: delivery.check(time.monotonic()))
    delivery.request_stop(time.monotonic())
    delivery.join()


def test_a_reporter_that_blocks_in_every_batch_is_left_alone(gate: threading.Event) -> None:
    """That each of its successors can be opened says nothing of the batch that comes then."""
    changes: list[BreakerState] = []
    hooks = Hooks(on_breaker=lambda name, old, new, why: changes.append(new))
    delivery = started(lambda: Blocking(gate, []), hooks, timeout=0.01)
    delivery.put(entries(1))
    eventually(lambda: delivery.hung == 4, within=60, meanwhile=lambda: delivery.check(time.monotonic()))
    opened, trying = BreakerState.OPEN, BreakerState.HALF_OPEN
    # Two open it; of those behind them, each is let through to see.
    assert changes[:5] == [opened, trying, opened, trying, opened]
    delivery.request_stop(time.monotonic())
    delivery.join()


def test_a_breaker_that_openings_have_opened_is_closed_by_one_that_works() -> None:
    """Also where there is no event to deliver: nobody would wait for the next one, or bear with one failure of it."""
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


def test_one_that_takes_the_place_of_another_at_the_end_hurries_as_well(gate: threading.Event) -> None:
    """The breaker is open by then: it would wait for it until everything is over."""
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


def test_a_destination_that_refuses_an_event_is_not_away() -> None:
    """It has answered, so the breaker is closed, and nobody is told that it is held back until the next event comes."""
    delivery = started(lambda: FaultyReporter([transient, transient, permanent]), timeout=20.0)
    delivery.put(entries(1))
    assert delivery.wait_until_settled(20)
    assert delivery.counters().dropped == {"rejected": 1}
    assert not delivery.is_held_back
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


class Unwinds(Reporter):
    """Needs a moment to end what is cancelled."""

    cancelled = 0

    async def report(self, events: Sequence[Event]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await asyncio.sleep(0.1)
            raise


def test_an_attempt_that_is_cancelled_has_a_moment_to_end() -> None:
    """It does not block its thread: that stays."""
    reporter = Unwinds()
    delivery = started(lambda: reporter)
    delivery.put(entries(1))
    eventually(lambda: reporter.cancelled >= 3, meanwhile=lambda: delivery.check(time.monotonic()))
    assert delivery.hung == 0
    delivery.request_stop(time.monotonic())
    delivery.join()


def test_a_thread_that_spins_is_abandoned_and_replaced(tardy: list[str]) -> None:
    """It is counted and runs on; its events are delivered by its successor."""
    spinning = Spins()
    reporters: list[Reporter] = [spinning, FaultyReporter()]
    delivery = started(lambda: reporters.pop(0))
    given_up = delivery._worker
    delivery.put(entries(3))
    assert spinning.entered.wait(20)
    eventually(lambda: delivery.hung == 1, meanwhile=lambda: delivery.check(time.monotonic()))
    assert delivery.wait_until_settled(20)
    assert given_up.is_alive
    spinning.released = True
    eventually(lambda: not given_up.is_alive)
    books = delivery.counters()
    assert (books.hung, books.delivered, books.failures - len(tardy), books.balances) == (1, 3, 1, True)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_reporter_that_cannot_be_made_anew_is_made_later(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """Its constructor raises for a while: said once, and the watch over the others goes on."""
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
    said = "cannot be made anew, its events are held and tried again: OSError: Too many open files"
    assert caplog.text.count(said) == 1
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def overdue(delivery: Delivery) -> None:
    """Waits until its thread counts as blocked, and nobody has looked yet."""
    eventually(lambda: delivery._worker.overdue(time.monotonic())[0] > 0.6)


@pytest.fixture
def thread_limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Sets whether there are no threads left."""
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


def test_that_no_thread_is_left_is_said_each_time_anew(
    gate: threading.Event, caplog: pytest.LogCaptureFixture, thread_limit: Callable[[bool], None]
) -> None:
    """Once as long as it lasts; what was said of one thread that was blocked says nothing of the next."""
    blocked = [Blocking(gate, []), Blocking(gate, [])]
    reporters: list[Reporter] = [*blocked, FaultyReporter()]
    delivery = started(lambda: reporters.pop(0))
    delivery.put(entries(3))
    said = "blocks its thread, which is abandoned, and cannot be made anew: RuntimeError: can't start new thread"
    for hung, one in enumerate(blocked, 1):
        assert one.entered.wait(20)
        overdue(delivery)
        thread_limit(True)
        delivery.check(time.monotonic())
        delivery.check(time.monotonic())
        thread_limit(False)
        delivery.check(time.monotonic())
        assert (delivery.hung, caplog.text.count(said)) == (hung, 1)
        caplog.clear()
    assert delivery.wait_until_settled(20)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_thread_that_came_back_by_itself_is_a_failure_when_it_is_blocked_anew(
    gate: threading.Event, caplog: pytest.LogCaptureFixture, thread_limit: Callable[[bool], None]
) -> None:
    """There was no other for it the first time; that says nothing of the second."""
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
        assert "blocks its thread, which is abandoned, and cannot be made anew" in caplog.text
        gate.set()
        assert delivery.wait_until_settled(20)
        delivery.check(time.monotonic())
        caplog.clear()
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_one_blocked_thread_is_one_failure_however_often_no_other_can_be_started(
    gate: threading.Event,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    thread_limit: Callable[[bool], None],
) -> None:
    """Two open the breaker, and it was called once; nor does each attempt at a thread leave a loop's descriptors."""
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


def test_a_constructor_that_blocks_stalls_nobody_else(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made anew, it connects, say, to a host that has gone: neither the watch over all nor the end waits for it."""
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
    # It is a call like any other: one that does not come back is given up, and the next has its turn.
    eventually(lambda: delivery.hung == 2, meanwhile=lambda: delivery.check(time.monotonic()))
    assert delivery.wait_until_settled(20)
    assert numbers(taken.events) == [0, 1, 2]
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


def test_a_reporter_is_made_anew_as_it_was_made(gate: threading.Event) -> None:
    """Its constructor may take longer than an attempt, and run a loop of its own; what it raises is no verdict."""
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


def test_a_watch_that_fails_over_one_goes_on_over_the_others(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the defect is, it is said once; and who blocks is still replaced."""

    class Unwatchable(Delivery):
        def check(self, now: float) -> None:
            raise RuntimeError("a defect")

    blocked, taken = Blocking(gate, []), FaultyReporter()
    reporters: list[Reporter] = [blocked, taken]
    config = DeliveryConfig(timeout=0.05, retry_initial=0.001)
    defective = Unwatchable("defective", FaultyReporter, config, 100)
    other = Delivery("other", lambda: reporters.pop(0), config, 100)
    dispatcher = AsyncQueuedDispatcher([defective, other], 20)
    dispatcher.start()
    dispatcher.dispatch(entries(3), 3)
    assert other.wait_until_settled(20)
    assert numbers(taken.events) == [0, 1, 2]
    dispatcher.stop(time.monotonic() + 5)
    assert caplog.text.count("reporter defective: cannot be watched") == 1


def test_a_reporter_that_does_not_move_is_waited_for_once(gate: threading.Event) -> None:
    """A burst waits a moment for a quick one; not again and again for one whose mailbox stays full."""
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


def test_other_reporters_go_on_while_one_blocks(gate: threading.Event) -> None:
    """Nothing is shared that a blocked reporter could exhaust."""
    blocked, healthy = Blocking(gate, []), FaultyReporter()
    one = Delivery("blocked", lambda: blocked, DeliveryConfig(), 10)
    other = Delivery("healthy", lambda: healthy, DeliveryConfig(), 1000)
    dispatcher = AsyncQueuedDispatcher([one, other], 20)
    dispatcher.start()
    for first in range(0, 500, 5):
        dispatcher.dispatch(entries(5, first), first + 5)
    assert other.wait_until_settled(20)
    assert numbers(healthy.events) == list(range(500))
    books = one.counters()
    assert (books.accepted, books.held, books.dropped["mailbox-full"]) == (500, 10, 490)
    dispatcher.stop(time.monotonic() + 0.05)
    assert one.counters().dropped["shutdown"] == 10


def test_a_destination_that_is_away_opens_the_breaker_and_loses_nothing() -> None:
    """Open means hold: when it is back, everything arrives, in order, and every change was told."""
    changes: list[tuple[BreakerState, BreakerState]] = []
    reporter = FaultyReporter([transient] * 5)
    hooks = Hooks(on_breaker=lambda name, old, new, why: changes.append((old, new)))
    delivery = started(lambda: reporter, hooks, timeout=20.0)
    delivery.put(entries(4))
    assert delivery.wait_until_settled(20)
    assert numbers(reporter.events) == [0, 1, 2, 3]
    opened, trying, closed = BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED
    # Two failures open it; each of the three others is one of a batch that was let through to see.
    failed = [(opened, trying), (trying, opened)]
    assert changes == [(closed, opened), *failed * 3, (opened, trying), (trying, closed)]
    assert delivery.counters().breaker == "closed"
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()
