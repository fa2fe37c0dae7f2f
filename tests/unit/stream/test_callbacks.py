"""Tests of callbacks: each is called once per event and does not affect other reporters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from fakes import event

from spark_events import Event, InvalidChoiceError
from spark_events.config import Settings
from spark_events.dispatch.delivery import Hooks
from spark_events.dispatch.dispatcher import Dispatcher
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.pipeline import build
from spark_events.stream.callbacks import Callback, delivery_of, name_of
from spark_events.stream.event_history import EventHistory, EventMatcher

ANY = EventMatcher.of(())


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    """Return a running dispatcher whose only reporter is an event history."""
    pipeline = build(Settings(), own={"history": lambda: EventHistory(100)})
    pipeline.dispatcher.start()
    yield pipeline.dispatcher
    pipeline.dispatcher.stop(time.monotonic() + 1)


def subscribe(dispatcher: Dispatcher, function: Callback, timeout: float = 5, **choice: Any) -> Any:
    delivery = delivery_of(name_of(function), function, EventMatcher.of((), **choice), timeout, 100, lambda: None)(
        Hooks()
    )
    dispatcher.attach(delivery)
    return delivery


def submit(dispatcher: Dispatcher, count: int, first: int = 0) -> None:
    dispatcher.dispatch([Entry(n + 1, event(n)) for n in range(first, first + count)], first + count)


def test_a_callback_gets_each_event_once_in_order_in_one_thread(dispatcher: Dispatcher) -> None:
    plain: list[tuple[str, int]] = []
    slow: list[str] = []

    async def awaits(one: Event) -> None:
        await asyncio.sleep(0)
        slow.append(one.body)

    first = subscribe(dispatcher, lambda one: plain.append((one.body, threading.get_ident())))
    second = subscribe(dispatcher, awaits)
    submit(dispatcher, 20)
    assert first.wait_until_settled(20)
    assert second.wait_until_settled(20)
    assert [text for text, _ in plain] == slow == [str(n) for n in range(20)]
    assert len({thread for _, thread in plain}) == 1


def test_an_error_is_logged_and_the_next_event_is_delivered(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[str] = []

    def raises(one: Event) -> None:
        called.append(one.body)
        raise TimeoutError("its own")

    delivery = subscribe(dispatcher, raises)
    submit(dispatcher, 3)
    assert delivery.wait_until_settled(20)
    assert called == ["0", "1", "2"]
    assert delivery.counters().dropped == {"rejected": 3}
    assert 'raise TimeoutError("its own")' in caplog.text
    assert "callbacks.py" not in caplog.text.replace("test_callbacks.py", "")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()], ids=repr
)
def test_exits_and_cancellations_count_as_errors(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture, error: BaseException, is_async: bool
) -> None:
    """SystemExit and cancellation in a callback count as errors in one call; the callback does not count as blocked."""
    called: list[str] = []

    def fails(one: Event) -> None:
        called.append(one.body)
        raise error

    async def fails_later(one: Event) -> None:
        await asyncio.sleep(0)
        fails(one)

    delivery = subscribe(dispatcher, fails_later if is_async else fails)
    submit(dispatcher, 3)
    assert delivery.wait_until_settled(20)
    assert called == ["0", "1", "2"]
    counters = delivery.counters()
    assert (counters.delivered, counters.dropped, counters.hung) == (0, {"rejected": 3}, 0)
    assert "Test: the callback raised an error\nTraceback (most recent call last):\n  File" in caplog.text
    assert type(error).__name__ in caplog.text
    assert "blocks its thread" not in caplog.text


def test_an_event_added_twice_causes_two_calls(dispatcher: Dispatcher) -> None:
    """If an event is added twice, the callback is called twice, because the sequence numbers differ."""
    called: list[int] = []
    delivery = subscribe(dispatcher, lambda one: called.append(one.sequence))
    one = event(7)
    dispatcher.dispatch([Entry(n, msgspec.structs.replace(one, sequence=n)) for n in (1, 2)], 2)
    assert delivery.wait_until_settled(20)
    assert called == [1, 2]


def test_a_slow_async_callback_is_cancelled() -> None:
    """A slow async callback is cancelled before its next call. Its event counts as lost and is not retried."""
    # Without a start, no thread checks for late calls, so a stall of the machine cannot replace the callback's thread.
    dispatcher = Dispatcher([], 20)
    calls: list[str] = []

    async def hangs(one: Event) -> None:
        calls.append(f"{one.body} begins")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            calls.append(f"{one.body} ends")
            raise

    delivery = subscribe(dispatcher, hangs, timeout=0.05)
    submit(dispatcher, 2)
    assert delivery.wait_until_settled(20)
    assert calls == ["0 begins", "0 ends", "1 begins", "1 ends"]
    assert delivery.counters().dropped == {"rejected": 2}
    dispatcher.stop(time.monotonic() + 20)


def test_a_blocking_plain_callback_loses_only_one_event(dispatcher: Dispatcher) -> None:
    """If a plain callback blocks, only its event is lost.

    A new thread receives the next event, and other reporters receive all events.
    """
    release = threading.Event()
    called: list[str] = []
    quick: list[str] = []

    def blocks(one: Event) -> None:
        called.append(one.body)
        if one.body == "0":
            release.wait()

    delivery = subscribe(dispatcher, blocks, timeout=0.05)
    other = subscribe(dispatcher, lambda one: quick.append(one.body))
    submit(dispatcher, 3)
    assert other.wait_until_settled(20)
    assert quick == ["0", "1", "2"]
    assert delivery.wait_until_settled(20)
    release.set()
    assert called == ["0", "1", "2"]
    assert delivery.tally.hung == 1


def test_a_callback_gets_only_selected_events(dispatcher: Dispatcher) -> None:
    called: list[str] = []
    delivery = subscribe(dispatcher, lambda one: called.append(one.body), min_severity="ERROR")
    every = subscribe(dispatcher, lambda one: called.append("every"), class_scope="*")
    submit(dispatcher, 1)
    assert every.wait_until_settled(20)
    dispatcher.detach(every)
    submit(dispatcher, 1, first=1)
    assert delivery.counters().accepted == 0
    assert called == ["every"]


def test_a_callback_may_remove_itself(dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture) -> None:
    """A callback may remove itself while it handles an event. Neither this event nor excluded events count as lost."""
    called: list[str] = []
    over = threading.Event()

    def once(one: Event) -> None:
        called.append(one.body)
        dispatcher.detach(delivery)

    delivery = delivery_of("once", once, ANY, 5, 100, over.set)(Hooks())
    dispatcher.attach(delivery)
    submit(dispatcher, 3)
    assert over.wait(20)
    assert called == ["0"]
    assert not caplog.records


@pytest.mark.parametrize(
    ("function", "timeout", "message"),
    [
        (3, 1, "callback: given 3, expected a function of one event"),
        (lambda: None, 1, "cannot be called with one argument, the event"),
        (lambda one, two: None, 1, "cannot be called with one argument, the event"),
        (print, 0, "timeout: given 0, expected a number of seconds above 0"),
        (print, "1s", "timeout: given '1s', expected a number of seconds"),
        (print, float("nan"), "timeout: given nan"),
    ],
)
def test_an_invalid_callback_is_rejected(function: Any, timeout: Any, message: str) -> None:
    with pytest.raises(InvalidChoiceError) as caught:
        delivery_of("it", function, ANY, timeout, 1, lambda: None)
    assert message in str(caught.value)
