"""Workers hear that a batch is given up, over a real connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from spark_events.enrich.engine.loop import BackgroundLoop
from spark_events.enrich.spark import halting as module
from spark_events.enrich.spark.attempt import Attempt
from spark_events.enrich.spark.halting import Desk, Halt, halting

LOOPBACK = "127.0.0.1"
SECONDS = 10
#: What is not the word, nor made with it.
OTHER = b"w" * 16
FIRST = Attempt(partition=3, stage=5, number=0, task=10)


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    made = BackgroundLoop()
    yield made
    made.close(SECONDS)


@pytest.fixture
def desk() -> Iterator[Desk]:
    with halting(LOOPBACK, LOOPBACK) as made:
        assert made is not None
        yield made


def connected(halt: Halt, says: bytes = b"") -> socket.socket:
    """As a task is."""
    made = socket.create_connection((halt.host, halt.port), SECONDS)
    made.sendall(says)
    return made


def came(desk: Desk, attempt: Attempt) -> socket.socket:
    """A task that the desk has heard, and whatever it says on that has been said."""
    made = connected(desk.halt, desk.halt.name(attempt))
    wait_for(lambda: attempt in desk._waiting)
    desk._background.submit(_nothing()).result(SECONDS)
    return made


def wait_for(probe: Callable[[], object]) -> None:
    """The desk's loop is another thread's."""
    deadline = time.monotonic() + SECONDS
    while not probe():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def said(connection: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    with connection:
        return b"".join(iter(lambda: connection.recv(4096), b""))


def test_all_who_listen_are_told_at_the_end(loop: BackgroundLoop) -> None:
    """Of a batch that is given up: those who come late as well, and nobody before that."""
    told = [threading.Event() for _ in range(3)]
    with contextlib.ExitStack() as tasks:
        batch = halting(LOOPBACK, LOOPBACK)
        desk = batch.__enter__()
        assert desk is not None
        for number, event in enumerate(told):
            tasks.enter_context(desk.halt.heeded(loop, Attempt(partition=number), event.set))
        assert not any(event.is_set() for event in told)
        assert not batch.__exit__(KeyError, KeyError(), None)
        assert all(event.wait(SECONDS) for event in told)


def test_who_has_ended_is_told_nothing(loop: BackgroundLoop) -> None:
    """Its connection is closed with it."""
    told = threading.Event()
    with halting(LOOPBACK, LOOPBACK) as desk:
        assert desk is not None
        with desk.halt.heeded(loop, FIRST, told.set):
            pass
    # What was cancelled on the loop has unwound when a later step has run there.
    loop.submit(_nothing()).result(SECONDS)
    assert not told.is_set()


def test_a_task_that_ends_just_when_it_has_connected_leaves_nothing_waiting(
    loop: BackgroundLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an empty partition, say. Its connection stayed, and asyncio complained of it on the user's terminal."""
    there, ended, connect = threading.Event(), threading.Event(), asyncio.open_connection

    async def until_it_has_ended(*place: Any) -> Any:
        made = await connect(*place)
        there.set()
        ended.wait(SECONDS)  # blocks the loop: the task's end is what it finds next
        return made

    monkeypatch.setattr(asyncio, "open_connection", until_it_has_ended)
    with socket.create_server((LOOPBACK, 0)) as driver:
        with Halt(LOOPBACK, driver.getsockname()[1], OTHER).heeded(loop, FIRST, ended.set):
            assert there.wait(SECONDS)
        connection, _ = driver.accept()
        ended.set()
        connection.settimeout(SECONDS)
        assert said(connection) == b""


async def _nothing() -> None:
    pass


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"short",
        OTHER * 2,
        b"x" * 1000,
        Halt("", 0, b"v" * 16).answer(FIRST),
        Halt("", 0, OTHER).answer(FIRST._replace(task=9)),
        Halt("", 0, OTHER).name(FIRST),
    ],
)
def test_only_the_batchs_own_driver_is_heeded(loop: BackgroundLoop, answer: bytes) -> None:
    """Whoever has the port by now, and whatever another task was told; the word itself goes to nobody."""
    told = threading.Event()
    with socket.create_server((LOOPBACK, 0)) as other:
        halt = Halt(LOOPBACK, other.getsockname()[1], OTHER)
        with halt.heeded(loop, FIRST, told.set):
            connection, _ = other.accept()
            with connection:
                connection.settimeout(SECONDS)
                name = connection.recv(len(halt.name(FIRST)), socket.MSG_WAITALL)
                assert name == halt.name(FIRST)
                assert OTHER not in name
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(1) == b""  # it has heard enough
    assert not told.is_set()


@pytest.mark.parametrize(
    "newer",
    [
        FIRST._replace(task=11),
        FIRST._replace(task=90, stage=6),
        FIRST._replace(task=90, stage=6, number=2),
    ],
)
@pytest.mark.parametrize("comes_first", [True, False])
def test_who_was_replaced_is_told_at_once(loop: BackgroundLoop, desk: Desk, newer: Attempt, comes_first: bool) -> None:
    """By a new attempt of its stage, whose numbers begin anew; in whichever order the two reach the driver."""
    told, wrongly = threading.Event(), threading.Event()
    both = [(FIRST, told), (newer, wrongly)]

    def is_known(attempt: Attempt) -> bool:
        return attempt in desk._attempts.get((0, 3), ())

    with contextlib.ExitStack() as tasks:
        for attempt, event in both if comes_first else both[::-1]:
            tasks.enter_context(desk.halt.heeded(loop, attempt, event.set))
            wait_for(partial(is_known, attempt))
        assert told.wait(SECONDS)
        assert desk.repeated
        assert not wrongly.is_set()


def test_who_comes_after_its_successor_has_ended_is_told(desk: Desk) -> None:
    """The desk remembers who has been there."""
    came(desk, FIRST._replace(task=11)).close()
    wait_for(lambda: not desk._waiting)
    late = came(desk, FIRST)
    assert late.recv(32, socket.MSG_WAITALL) == desk.halt.answer(FIRST)


@pytest.mark.parametrize(
    ("second", "repeated"),
    [
        (FIRST._replace(task=11, number=1), True),  # speculation: Spark takes the one that is there first
        (FIRST._replace(task=11, partition=4), False),
    ],
)
def test_others_are_left_alone(desk: Desk, second: Attempt, repeated: bool) -> None:
    """Who is not replaced hears of it only at the end of the batch."""
    tasks = {attempt: came(desk, attempt) for attempt in (FIRST, second)}
    assert desk.repeated == repeated
    for connection in tasks.values():
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.settimeout(SECONDS)
    desk.over()
    for attempt, connection in tasks.items():
        assert connection.recv(32, socket.MSG_WAITALL) == desk.halt.answer(attempt)
        connection.close()


@pytest.mark.parametrize(
    "says",
    [
        b"GET / HTTP/1.1\r\n" + b"\r\n" * 100,
        b"\x00" * 64,
        Halt("", 0, OTHER).name(FIRST._replace(task=11)),
        b"x" * 10_000_000,
    ],
)
def test_who_does_not_know_the_word_stops_nothing_and_learns_nothing(desk: Desk, says: bytes) -> None:
    """Its connection is closed once it has said as much as a name is long."""
    with came(desk, FIRST) as task:
        with contextlib.suppress(ConnectionError):
            assert said(connected(desk.halt, says)) == b""
        assert list(desk._waiting) == [FIRST]
        assert not desk.repeated
        task.setblocking(False)
        with pytest.raises(BlockingIOError):
            task.recv(1)


def test_a_name_that_was_overheard_is_of_no_use(desk: Desk) -> None:
    """Said a second time, it is closed; the task goes on to be the one that is told."""
    with came(desk, FIRST) as task:
        assert said(connected(desk.halt, desk.halt.name(FIRST))) == b""
        desk.over()
        assert task.recv(32, socket.MSG_WAITALL) == desk.halt.answer(FIRST)


def test_who_is_silent_is_sent_away(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or says its name too slowly; nothing is said to it at the end either."""
    monkeypatch.setattr(module, "_NAME_SECONDS", 0.05)
    assert said(connected(desk.halt)) == b""
    assert said(connected(desk.halt, desk.halt.name(FIRST)[:-1])) == b""
    monkeypatch.setattr(module, "_NAME_SECONDS", SECONDS)
    silent = connected(desk.halt)
    wait_for(lambda: desk._strangers == 1)
    desk.over()
    silent.shutdown(socket.SHUT_WR)
    assert said(silent) == b""


def test_so_many_who_are_silent_are_kept_and_no_more(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not in the way of tasks that have come before them, nor of those that come when they have gone."""
    monkeypatch.setattr(module, "_MOST_STRANGERS", 2)
    with came(desk, FIRST), connected(desk.halt), connected(desk.halt):
        wait_for(lambda: desk._strangers == 2)
        assert said(connected(desk.halt)) == b""
        assert list(desk._waiting) == [FIRST]
    wait_for(lambda: desk._strangers == 0)
    came(desk, FIRST._replace(partition=4)).close()


def test_a_driver_that_cannot_be_reached_stops_nobody(loop: BackgroundLoop) -> None:
    """A firewall costs an attempt to connect."""
    told = threading.Event()
    with socket.create_server((LOOPBACK, 0)) as closed:
        port = closed.getsockname()[1]
    with Halt(LOOPBACK, port, OTHER).heeded(loop, FIRST, told.set):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, port), SECONDS)
        loop.submit(_nothing()).result(SECONDS)
    assert not told.is_set()


def test_the_port_of_a_batch_that_succeeded_is_closed(loop: BackgroundLoop) -> None:
    """And its thread ends."""
    before = set(threading.enumerate())
    with halting(LOOPBACK, LOOPBACK) as desk:
        assert desk is not None
        (thread,) = set(threading.enumerate()) - before
    thread.join(SECONDS)
    assert not thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        connected(desk.halt)


def test_a_driver_without_a_port_says_so_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """An address that is not this machine's."""
    with halting("192.0.2.1", "192.0.2.1") as desk:
        assert desk is None
    assert "no port opens at 192.0.2.1" in caplog.text
