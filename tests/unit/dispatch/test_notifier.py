"""The notifier: rung from any thread, heard by one, and never missed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from spark_events.dispatch.retry_loop import WorkerNotifier


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture(params=[False, True], ids=["lock", "loop"])
def notifier(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> WorkerNotifier:
    made = WorkerNotifier(loop)
    if request.param:
        made.wait_in_loop()
    return made


def in_time(loop: asyncio.AbstractEventLoop, hear: Callable[[], Coroutine[Any, Any, None]]) -> bool:
    """Whether it came to its end. In a thread of its own: one that never hears it must not hang the test."""
    heard = []

    async def listen() -> None:
        await hear()
        heard.append(True)

    thread = threading.Thread(target=loop.run_until_complete, args=(listen(),), daemon=True)
    thread.start()
    thread.join(20)
    return bool(heard)


def test_what_was_rung_before_is_heard(notifier: WorkerNotifier, loop: asyncio.AbstractEventLoop) -> None:
    """It does not matter who comes first; twice before it is heard is once."""
    notifier.notify()
    notifier.notify()
    assert in_time(loop, notifier.wait)


def test_it_wakes_another_thread(notifier: WorkerNotifier, loop: asyncio.AbstractEventLoop) -> None:
    """Again and again, each time once it has been silenced."""
    heard = threading.Semaphore(0)

    async def hear() -> None:
        for _ in range(3):
            notifier.clear()
            heard.release()
            await notifier.wait()

    def notify() -> None:
        for _ in range(3):
            assert heard.acquire(timeout=20)
            notifier.notify()

    ringing = threading.Thread(target=notify)
    ringing.start()
    assert in_time(loop, hear)
    ringing.join(20)


def test_silence_forgets_and_patience_ends(notifier: WorkerNotifier, loop: asyncio.AbstractEventLoop) -> None:
    """A ring that was silenced wakes nobody: the wait ends with its time."""
    times: list[float] = []

    async def wait() -> None:
        notifier.notify()
        # A ring for the loop is heard in its next round.
        await asyncio.sleep(0)
        notifier.clear()
        before = loop.time()
        await notifier.wait(0.05)
        times.append(loop.time() - before)

    assert in_time(loop, wait)
    assert times[0] >= 0.045


def test_the_loop_goes_on_where_something_lives_in_it(loop: asyncio.AbstractEventLoop) -> None:
    """What waits in the loop lets others have their turn, and can be woken by one of them."""
    notifier = WorkerNotifier(loop)
    notifier.wait_in_loop()

    async def hear() -> None:
        other = loop.create_task(asyncio.sleep(0))
        other.add_done_callback(lambda _: notifier.notify())
        await notifier.wait()
        assert other.done()

    assert in_time(loop, hear)


def test_a_loop_that_is_over_is_no_error(notifier: WorkerNotifier, loop: asyncio.AbstractEventLoop) -> None:
    """Who rings does not know whether anybody is left to hear it."""
    notifier.wait_in_loop()
    loop.close()
    notifier.notify()
    notifier.notify()
    assert loop.is_closed()
