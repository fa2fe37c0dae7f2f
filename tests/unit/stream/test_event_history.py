"""Tests of waiting for events: matches, wake-ups, and the message after a timeout."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest
from fakes import event

from spark_events import StreamStoppedError, WaitTimeoutError
from spark_events.stream.event_history import EventHistory, EventMatcher

ANY = EventMatcher.of(())


def body(text: str) -> EventMatcher:
    return EventMatcher.of((), where=lambda one: one.body == text)


def test_an_earlier_event_is_found() -> None:
    """If the history contains matching events, a wait returns the oldest of them."""
    history = EventHistory(10)
    history.report([event(1), event(2)])
    assert history.wait_for(ANY, None, 0).body == "1"
    assert history.wait_for(body("2"), None, 0).body == "2"


def test_after_skips_earlier_events() -> None:
    """With ``after``, only events with a higher sequence number match."""
    history = EventHistory(10)
    history.report([msgspec.structs.replace(event(n), sequence=n + 1) for n in range(4)])
    second = history.events[1]
    assert history.wait_for(ANY, second, 0).body == "2"
    with pytest.raises(WaitTimeoutError):
        history.wait_for(ANY, history.events[-1], 0)


def test_a_waiter_receives_every_event_despite_a_small_history() -> None:
    history = EventHistory(2)

    async def waits() -> str:
        task = asyncio.ensure_future(history.wait_for_async(body("3"), None, 20))
        await asyncio.sleep(0)
        # Report the events before the waiting task runs again.
        for number in range(8):
            history.report([event(number)])
        return (await task).body

    assert asyncio.run(waits()) == "3"
    assert [one.body for one in history.events] == ["6", "7"]


def test_every_waiter_is_woken() -> None:
    """An event wakes every waiting thread and every waiting coroutine."""
    history = EventHistory(10)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(history.wait_for(ANY, None, 20).body)) for _ in range(3)]
    for thread in threads:
        thread.start()

    async def waits() -> list[str]:
        tasks = [asyncio.ensure_future(history.wait_for_async(ANY, None, 20)) for _ in range(3)]
        await asyncio.sleep(0)
        threading.Thread(target=history.report, args=([event(5)],)).start()
        return [one.body for one in await asyncio.gather(*tasks)]

    assert asyncio.run(waits()) == ["5"] * 3
    for thread in threads:
        thread.join(20)
    assert found == ["5"] * 3
    assert not history._waiting


def test_a_timeout_lists_the_events_that_arrived() -> None:
    """The timeout message contains the number of events by name and the last events, if any arrived."""
    history = EventHistory(10)
    with pytest.raises(WaitTimeoutError, match="timed out after 0 s waiting for any event; no event arrived"):
        history.wait_for(ANY, None, 0)
    history.report([event(n) for n in range(7)])
    with pytest.raises(
        WaitTimeoutError, match=r"timed out after 0.01 s waiting for X of ERROR or worse; events that arrived: 7 "
    ) as timed_out:
        asyncio.run(history.wait_for_async(EventMatcher.of(("X",), "*", "ERROR"), None, 0.01))
    assert str(timed_out.value).count(event(1).name + ":") == 5
    assert isinstance(timed_out.value, TimeoutError)


def test_the_end_wakes_every_waiter_at_once() -> None:
    """When the stream stops, every wait without a match fails. Earlier events are still found."""
    history = EventHistory(10)
    caught: list[BaseException] = []

    def waits() -> None:
        try:
            history.wait_for(body("never"), None, 60)
        except StreamStoppedError as error:
            caught.append(error)

    thread = threading.Thread(target=waits)
    thread.start()
    history.report([event(1)])
    history.end()
    thread.join(20)
    assert len(caught) == 1
    assert history.wait_for(body("1"), None, 0).body == "1"
    with pytest.raises(StreamStoppedError, match="the stream ended while waiting for"):
        asyncio.run(history.wait_for_async(body("never"), None, 60))


def test_an_error_in_a_predicate_is_raised_to_its_waiter() -> None:
    history = EventHistory(10)
    history.report([event(1)])
    with pytest.raises(KeyError, match="nothing"):
        history.wait_for(EventMatcher.of((), where=lambda one: one.attributes["nothing"]), None, 0)
    assert not history._waiting
