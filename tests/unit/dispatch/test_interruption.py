"""A thread can be interrupted inside of somebody else's code, and nowhere else."""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from fakes import PATIENCE, FaultyReporter, event, eventually, transient

from spark_events import Event, Reporter
from spark_events.dispatch.breaker import BreakerConfig
from spark_events.dispatch.delivery import Delivery, DeliveryConfig
from spark_events.dispatch.entries import Entries, Entry
from spark_events.dispatch.interruption import Interrupted, Interruptible, Uninterrupted, let_go_of_logging


def on_a_thread(work: Callable[[], str]) -> Callable[[], str]:
    """Starts it; the result waits for its outcome."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return lambda: future.result(PATIENCE)


def spin() -> None:
    for _ in itertools.count():
        pass


def test_who_spins_inside_is_interrupted_there() -> None:
    """However often it catches what comes: it leaves with the interruption, and cannot enter again."""
    stretch, entered = Interruptible(), threading.Event()

    def work() -> str:
        try:
            with stretch:
                try:
                    entered.set()
                    spin()
                except BaseException:
                    pass  # swallowed
            return "went on"
        except Interrupted:
            pass
        with pytest.raises(Interrupted), stretch:
            return "entered again"
        return "left"

    outcome = on_a_thread(work)
    assert entered.wait(PATIENCE)
    stretch.interrupt()
    assert outcome() == "left"


def test_nothing_arrives_once_it_was_left() -> None:
    """An interruption that comes too late is none: the thread is in code that others depend on."""
    stretch, left, late = Interruptible(), threading.Event(), threading.Event()

    def work() -> str:
        with stretch:
            pass
        left.set()
        late.wait()
        for _ in range(100_000):
            pass
        return "undisturbed"

    outcome = on_a_thread(work)
    assert left.wait(PATIENCE)
    stretch.interrupt()
    late.set()
    assert outcome() == "undisturbed"


def test_it_arrives_inside_or_on_the_way_out_whenever_it_is_sent() -> None:
    """At random moments, thousands of times: a thread that has left is never interrupted out there."""
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    shared = threading.Lock()
    outcomes: set[str] = set()
    try:
        for number in range(2_000):
            stretch, begun = Interruptible(), threading.Event()

            def work(stretch: Interruptible = stretch, begun: threading.Event = begun) -> str:
                inside = "before"
                try:
                    for _ in itertools.count():
                        inside = "entering"
                        with stretch:
                            inside = "inside"
                            begun.set()
                        inside = "outside"
                        # What it would leave taken.
                        shared.acquire()
                        shared.release()
                except Interrupted:
                    return inside
                return "never"

            outcome = on_a_thread(work)
            assert begun.wait(PATIENCE)
            for _ in range(number % 50):
                pass
            stretch.interrupt()
            outcomes.add(outcome())
            assert shared.acquire(timeout=PATIENCE)
            shared.release()
    finally:
        sys.setswitchinterval(switch)
    assert outcomes <= {"entering", "inside"}
    assert "inside" in outcomes


def test_our_own_code_keeps_it_off() -> None:
    """What a reporter calls of ours is done to its end; what was kept off comes then."""
    stretch, entered, sent = Interruptible(), threading.Event(), threading.Event()
    seen: list[str] = []

    def work() -> str:
        try:
            with stretch:
                with Uninterrupted():
                    entered.set()
                    sent.wait()
                    for _ in range(100_000):
                        pass
                    seen.append("done to its end")
                seen.append("went on")
        except Interrupted:
            return "interrupted"
        return "never interrupted"

    outcome = on_a_thread(work)
    assert entered.wait(PATIENCE)
    stretch.interrupt()
    sent.set()
    assert (outcome(), seen) == ("interrupted", ["done to its end"])


def test_our_own_code_is_as_it_is_where_nobody_can_be_interrupted() -> None:
    """The same log takes what the main thread says."""
    with Uninterrupted():
        seen = "done"
    assert seen == "done"


def test_who_was_interrupted_keeps_nothing_of_logging() -> None:
    """Its handlers and its own list of loggers are shared by all: one that stays locked stops everybody who logs."""
    handler = logging.NullHandler()
    handler.lock = threading.RLock()
    module = logging._lock  # type: ignore[attr-defined]

    def work() -> str:
        handler.acquire()
        handler.acquire()
        module.acquire()
        let_go_of_logging()
        # Others' locks are left to them.
        let_go_of_logging()
        return "done"

    assert on_a_thread(work)() == "done"
    for lock in (handler.lock, module):
        assert lock.acquire(timeout=PATIENCE)
        lock.release()


class SpinsInAHandler(Reporter):
    """Logs to a handler that is caught between taking its lock and the ``try`` behind that."""

    def __init__(self, handler: logging.Handler, entered: threading.Event) -> None:
        super().__init__()
        self._handler = handler
        self._entered = entered

    def report(self, events: Sequence[Event]) -> None:
        self._handler.acquire()
        self._entered.set()
        spin()


def test_a_reporter_that_is_given_up_while_it_logs_stops_nobody_s_log() -> None:
    """The handler's lock is free again, for the successor as for the sidecar."""
    handler, entered = logging.StreamHandler(), threading.Event()
    reporters: list[Reporter] = [SpinsInAHandler(handler, entered), FaultyReporter()]
    delivery = Delivery("r", lambda: reporters.pop(0), DeliveryConfig(timeout=0.05), 100)
    delivery.start()
    given_up = delivery._worker
    delivery.put(Entries([Entry(1, event(1))]))
    assert entered.wait(PATIENCE)
    eventually(lambda: delivery.hung == 1, meanwhile=lambda: delivery.check(time.monotonic()))
    eventually(lambda: not given_up.is_alive)
    assert handler.lock is not None
    assert handler.lock.acquire(timeout=PATIENCE)
    handler.release()
    assert delivery.wait_until_settled(PATIENCE)
    delivery.request_stop(time.monotonic() + 5)
    delivery.join()


class HeldUp(logging.Handler):
    """Takes what is said of a failure, and keeps the thread that says it until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.finished: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "is to be held up" in record.getMessage():
            self.entered.set()
            self.go_on.wait()
            for _ in range(100_000):
                pass
            self.finished.append(record.getMessage())


def test_a_worker_that_has_left_its_reporter_is_not_interrupted() -> None:
    """The call is over and its failure is being told: who is given up now ends by itself and leaves no lock."""
    handler = HeldUp()
    logger = logging.getLogger("spark_events.dispatch.attempts")
    logger.addHandler(handler)
    reporter = FaultyReporter([transient])
    delivery = Delivery(
        "is to be held up", lambda: reporter, DeliveryConfig(), 100, breaker=BreakerConfig(failures=1_000)
    )
    try:
        delivery.start()
        delivery.put(Entries([Entry(1, event(1))]))
        assert handler.entered.wait(PATIENCE)
        worker = delivery._worker
        worker.abandon()
        handler.go_on.set()
        eventually(lambda: not worker.is_alive)
        assert len(handler.finished) == 1
    finally:
        logger.removeHandler(handler)
