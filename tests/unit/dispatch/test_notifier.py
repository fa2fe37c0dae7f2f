"""Tests of wake-up signals: any thread sets an event, one thread waits for it, and no signal is missed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from spark_events.loops import notify, wait_for


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture
def signal() -> asyncio.Event:
    return asyncio.Event()


def in_time(loop: asyncio.AbstractEventLoop, hear: Callable[[], Coroutine[Any, Any, object]]) -> bool:
    """Return whether a wait ended in time.

    The wait runs in a thread, so that a missed notification does not block the test.
    """
    heard = []

    async def listen() -> None:
        await hear()
        heard.append(True)

    thread = threading.Thread(target=loop.run_until_complete, args=(listen(),), daemon=True)
    thread.start()
    thread.join(20)
    return bool(heard)


def test_a_notification_before_the_wait_is_received(signal: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    """A notification that precedes the wait ends the wait. Two notifications that precede the wait count as one."""
    notify(loop, signal)
    notify(loop, signal)
    assert in_time(loop, signal.wait)


def test_a_notification_wakes_another_thread(signal: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    heard = threading.Semaphore(0)

    async def hear() -> None:
        for _ in range(3):
            signal.clear()
            heard.release()
            await signal.wait()

    def ring() -> None:
        for _ in range(3):
            assert heard.acquire(timeout=20)
            notify(loop, signal)

    ringing = threading.Thread(target=ring)
    ringing.start()
    assert in_time(loop, hear)
    ringing.join(20)


def test_a_reset_discards_the_notification(signal: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    """A reset discards earlier notifications: they wake no thread, and the wait returns at its timeout."""
    times: list[float] = []

    async def wait() -> None:
        notify(loop, signal)
        # The loop receives a notification in its next iteration.
        await asyncio.sleep(0)
        signal.clear()
        before = loop.time()
        await wait_for(signal, 0.05)
        times.append(loop.time() - before)

    assert in_time(loop, wait)
    assert times[0] >= 0.045


def test_a_wait_in_a_loop_lets_other_tasks_run(signal: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    """While a coroutine waits for the event, other tasks of the loop run and may set the event."""

    async def hear() -> None:
        other = loop.create_task(asyncio.sleep(0))
        other.add_done_callback(lambda _: notify(loop, signal))
        await signal.wait()
        assert other.done()

    assert in_time(loop, hear)


def test_a_closed_loop_causes_no_error(signal: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    """A notification after the loop is closed raises no error: the notifying thread cannot know the loop's state."""
    loop.close()
    notify(loop, signal)
    notify(loop, signal)
    assert loop.is_closed()
