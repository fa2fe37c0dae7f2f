"""Tests that a thread which the dispatcher has given up releases its reporter's resources."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest
from fakes import FaultyReporter, eventually

from spark_events import Event, PermanentError, Reporter
from spark_events.dispatch.delivery import Delivery
from spark_events.dispatch.delivery_config import DeliveryConfig
from unit.dispatch.conftest import RecordingStore, entries

HOUR = 3600.0


class Held(Reporter):
    """Reporter that waits for a gate in one of its methods, with its thread blocked, and then fails or returns.

    Attributes:
        entered: set when the method is called.
        ended: the methods that ended this reporter, each with the thread that called it.
    """

    def __init__(self, gate: threading.Event, where: str, error: BaseException | None = None) -> None:
        super().__init__()
        self._gate = gate
        self._where = where
        self._error = error
        self.entered = threading.Event()
        self.ended: list[tuple[str, threading.Thread]] = []

    def enter(self, where: str) -> None:
        if where == self._where:
            self.entered.set()
            self._gate.wait()
            if self._error is not None:
                raise self._error

    async def open(self) -> None:
        self.enter("open")

    def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
        self.enter("report")
        return None

    async def close(self) -> None:
        self.ended.append(("close", threading.current_thread()))

    async def release(self) -> None:
        # A connection closes in several steps of the event loop.
        await asyncio.sleep(0)
        self.ended.append(("release", threading.current_thread()))


class EndsItsLoop(Held):
    """Reporter that stops its event loop, which ends its thread."""

    async def report(self, events: Sequence[Event]) -> None:
        self.enter("report")
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    opened = threading.Event()
    yield opened
    opened.set()


def started(make: Callable[[], Reporter]) -> Delivery:
    delivery = Delivery("r", make, DeliveryConfig(timeout=60.0, retry_initial=0.001), 100)
    delivery.start()
    delivery.put(entries(1))
    return delivery


def stop(delivery: Delivery) -> None:
    delivery.request_stop(time.monotonic() + 20)
    delivery.join()


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("constructor", None),
        ("open", None),
        ("open", OSError("reset")),
        ("report", None),
        ("report", OSError("reset")),
        ("report", PermanentError("no such table")),
        ("report", SystemExit(1)),
    ],
)
def test_a_blocked_thread_releases_its_reporter_when_its_call_returns(
    gate: threading.Event, where: str, error: BaseException | None
) -> None:
    """The reporter is not closed, because a close may send what the replacement sends too."""
    # The first reporter is created in the test's thread, so it cannot block in its constructor.
    first, held, last = Held(gate, "report"), Held(gate, where, error), FaultyReporter()
    reporters: list[Reporter] = [first, held, last]

    def make() -> Reporter:
        made = reporters.pop(0)
        if made is held:
            held.enter("constructor")
        return made

    delivery = started(make)
    abandoned = []
    for reporter in (first, held):
        assert reporter.entered.wait(20)
        abandoned.append(delivery._threads.current)
        delivery.check(time.monotonic() + HOUR)
    assert delivery.wait_until_settled(20)
    assert first.ended == held.ended == []
    gate.set()
    eventually(lambda: not any(thread.is_alive for thread in abandoned))
    assert [first.ended, held.ended] == [[("release", thread._thread)] for thread in abandoned]
    stop(delivery)
    assert last.closed == 1


def test_a_reporter_that_ends_its_thread_is_released(gate: threading.Event) -> None:
    ends, last = EndsItsLoop(gate, ""), FaultyReporter()
    reporters: list[Reporter] = [ends, last]
    delivery = started(lambda: reporters.pop(0))
    thread = delivery._threads.current
    eventually(lambda: thread.death is not None)
    assert ends.ended == [("release", thread._thread)]
    delivery.check(time.monotonic())
    assert delivery.wait_until_settled(20)
    stop(delivery)


def test_a_reporter_that_cannot_be_opened_is_released_although_its_events_stay_on_disk(gate: threading.Event) -> None:
    gate.set()
    held = Held(gate, "open", PermanentError("no such topic"))
    delivery = Delivery("r", lambda: held, DeliveryConfig(), 100, store=lambda *_: RecordingStore())
    delivery.start()
    thread = delivery._threads.current
    eventually(lambda: not thread.is_alive)
    assert held.ended == [("release", thread._thread)]
    stop(delivery)


def test_a_reporter_that_ends_its_thread_during_the_drain_is_named_as_the_cause_of_the_loss(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    ends = EndsItsLoop(gate, "report")
    delivery = started(lambda: ends)
    assert ends.entered.wait(20)
    delivery.request_stop(time.monotonic() + 20)
    gate.set()
    delivery.join()
    assert "1 events were not delivered because the reporter ended its thread (RuntimeError" in caplog.text
