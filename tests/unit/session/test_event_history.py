"""Waiting for events: what counts, who is woken, and what is said where it was in vain."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest
from fakes import event

from spark_events import StreamStoppedError, WaitTimeoutError
from spark_events.session.event_history import EventHistory, EventMatcher

ANY = EventMatcher.of(())


def body(text: str) -> EventMatcher:
    return EventMatcher.of((), where=lambda one: one.body == text)


def test_an_event_that_has_come_already_is_found() -> None:
    """The first of them, oldest first."""
    journal = EventHistory(10)
    journal.report([event(1), event(2)])
    assert journal.wait_for(ANY, None, 0).body == "1"
    assert journal.wait_for(body("2"), None, 0).body == "2"


def test_only_later_ones_where_that_is_asked_for() -> None:
    """By their sequence: what was told before does not count."""
    journal = EventHistory(10)
    journal.report([msgspec.structs.replace(event(n), sequence=n + 1) for n in range(4)])
    second = journal.events[1]
    assert journal.wait_for(ANY, second, 0).body == "2"
    with pytest.raises(WaitTimeoutError):
        journal.wait_for(ANY, journal.events[-1], 0)


def test_only_the_newest_are_kept_but_none_is_missed_while_waiting() -> None:
    """Who waits sees all that comes, however little is kept."""
    journal = EventHistory(2)

    async def waits() -> str:
        task = asyncio.ensure_future(journal.wait_for_async(body("3"), None, 20))
        await asyncio.sleep(0)
        # Before the task runs again.
        for number in range(8):
            journal.report([event(number)])
        return (await task).body

    assert asyncio.run(waits()) == "3"
    assert [one.body for one in journal.events] == ["6", "7"]


def test_everybody_who_waits_is_woken() -> None:
    """Threads and coroutines."""
    journal = EventHistory(10)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(journal.wait_for(ANY, None, 20).body)) for _ in range(3)]
    for thread in threads:
        thread.start()

    async def waits() -> list[str]:
        tasks = [asyncio.ensure_future(journal.wait_for_async(ANY, None, 20)) for _ in range(3)]
        await asyncio.sleep(0)
        threading.Thread(target=journal.report, args=([event(5)],)).start()
        return [one.body for one in await asyncio.gather(*tasks)]

    assert asyncio.run(waits()) == ["5"] * 3
    for thread in threads:
        thread.join(20)
    assert found == ["5"] * 3
    assert not journal._waiting


def test_in_vain_it_says_what_came() -> None:
    """How many of each kind, and the last of them; or that nothing came."""
    journal = EventHistory(10)
    with pytest.raises(WaitTimeoutError, match="any event has not come within 0 s; no event came at all"):
        journal.wait_for(ANY, None, 0)
    journal.report([event(n) for n in range(7)])
    with pytest.raises(
        WaitTimeoutError, match=r"X of ERROR or worse has not come within 0.01 s; what did come: 7 "
    ) as told:
        asyncio.run(journal.wait_for_async(EventMatcher.of(("X",), "*", "ERROR"), None, 0.01))
    assert str(told.value).count(event(1).name + ":") == 5
    assert isinstance(told.value, TimeoutError)


def test_the_end_is_told_at_once() -> None:
    """Nobody waits for what never comes; what has come is still found."""
    journal = EventHistory(10)
    caught: list[BaseException] = []

    def waits() -> None:
        try:
            journal.wait_for(body("never"), None, 60)
        except StreamStoppedError as error:
            caught.append(error)

    thread = threading.Thread(target=waits)
    thread.start()
    journal.report([event(1)])
    journal.end()
    thread.join(20)
    assert len(caught) == 1
    assert journal.wait_for(body("1"), None, 0).body == "1"
    with pytest.raises(StreamStoppedError, match="the events have ended"):
        asyncio.run(journal.wait_for_async(body("never"), None, 60))


def test_what_a_test_raises_is_the_waiter_s() -> None:
    """And nobody else's."""
    journal = EventHistory(10)
    journal.report([event(1)])
    with pytest.raises(KeyError, match="nothing"):
        journal.wait_for(EventMatcher.of((), where=lambda one: one.attributes["nothing"]), None, 0)
    assert not journal._waiting
