"""Workers hear that a batch is given up, over a real connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from spark_events.enrichment.driver.driver_channel import DriverChannel, may_have_two_results, opened_channel
from spark_events.enrichment.engine.loop import BackgroundLoop
from spark_events.enrichment.worker.driver_channel import ChannelAddress, TaskAttempt
from spark_events.enrichment.worker.report import PartitionReport

LOOPBACK = "127.0.0.1"
SECONDS = 10
#: What is not the word, nor made with it.
OTHER = b"w" * 16
FIRST = TaskAttempt(partition=3, stage=5, number=0, task=10)


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    made = BackgroundLoop()
    yield made
    made.close(SECONDS)


@pytest.fixture
def channel() -> Iterator[DriverChannel]:
    with opened_channel(LOOPBACK, LOOPBACK) as made:
        assert made is not None
        yield made


def connected(address: ChannelAddress, says: bytes = b"") -> socket.socket:
    """As a task is."""
    made = socket.create_connection((address.host, address.port), SECONDS)
    made.sendall(says)
    return made


def came(channel: DriverChannel, attempt: TaskAttempt) -> socket.socket:
    """A task that the channel has heard, and whatever it says on that has been said."""
    made = connected(channel.address, channel.address.hello(attempt))
    wait_for(lambda: attempt in channel._tasks)
    channel._background.submit(_nothing()).result(SECONDS)
    return made


def wait_for(probe: Callable[[], object]) -> None:
    """The channel's loop is another thread's."""
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
        batch = opened_channel(LOOPBACK, LOOPBACK)
        channel = batch.__enter__()
        assert channel is not None
        for number, event in enumerate(told):
            tasks.enter_context(channel.address.listening(loop, TaskAttempt(partition=number), event.set))
        assert not any(event.is_set() for event in told)
        assert not batch.__exit__(KeyError, KeyError(), None)
        assert all(event.wait(SECONDS) for event in told)


def test_who_has_ended_is_told_nothing(loop: BackgroundLoop) -> None:
    """Its connection is closed with it."""
    told = threading.Event()
    with opened_channel(LOOPBACK, LOOPBACK) as channel:
        assert channel is not None
        with channel.address.listening(loop, FIRST, told.set):
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
        with ChannelAddress(LOOPBACK, driver.getsockname()[1], OTHER).listening(loop, FIRST, ended.set):
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
        ChannelAddress("", 0, b"v" * 16).stop_message(FIRST),
        ChannelAddress("", 0, OTHER).stop_message(FIRST._replace(task=9)),
        ChannelAddress("", 0, OTHER).hello(FIRST),
    ],
)
def test_only_the_batchs_own_driver_is_heeded(loop: BackgroundLoop, answer: bytes) -> None:
    """Whoever has the port by now, and whatever another task was told; the word itself goes to nobody."""
    told = threading.Event()
    with socket.create_server((LOOPBACK, 0)) as other:
        address = ChannelAddress(LOOPBACK, other.getsockname()[1], OTHER)
        with address.listening(loop, FIRST, told.set):
            connection, _ = other.accept()
            with connection:
                connection.settimeout(SECONDS)
                name = connection.recv(len(address.hello(FIRST)), socket.MSG_WAITALL)
                assert name == address.hello(FIRST)
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
def test_who_was_replaced_is_told_at_once(
    loop: BackgroundLoop, channel: DriverChannel, newer: TaskAttempt, comes_first: bool
) -> None:
    """By a new attempt of its stage, whose numbers begin anew; in whichever order the two reach the driver."""
    told, wrongly = threading.Event(), threading.Event()
    both = [(FIRST, told), (newer, wrongly)]

    def is_known(attempt: TaskAttempt) -> bool:
        return attempt in channel._attempts.get((0, 3), ())

    with contextlib.ExitStack() as tasks:
        for attempt, event in both if comes_first else both[::-1]:
            tasks.enter_context(channel.address.listening(loop, attempt, event.set))
            wait_for(partial(is_known, attempt))
        assert told.wait(SECONDS)
        assert channel.repeated
        assert not wrongly.is_set()


def test_who_comes_after_its_successor_has_ended_is_told(channel: DriverChannel) -> None:
    """The channel remembers who has been there."""
    came(channel, FIRST._replace(task=11)).close()
    wait_for(lambda: not channel._tasks)
    late = came(channel, FIRST)
    assert late.recv(32, socket.MSG_WAITALL) == channel.address.stop_message(FIRST)


@pytest.mark.parametrize(
    ("second", "repeated"),
    [
        (FIRST._replace(task=11, number=1), True),  # speculation: Spark takes the one that is there first
        (FIRST._replace(task=11, partition=4), False),
    ],
)
def test_others_are_left_alone(channel: DriverChannel, second: TaskAttempt, repeated: bool) -> None:
    """Who is not replaced hears of it only at the end of the batch."""
    tasks = {attempt: came(channel, attempt) for attempt in (FIRST, second)}
    assert channel.repeated == repeated
    for connection in tasks.values():
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.settimeout(SECONDS)
    channel.stop_all()
    for attempt, connection in tasks.items():
        assert connection.recv(32, socket.MSG_WAITALL) == channel.address.stop_message(attempt)
        connection.close()


@pytest.mark.parametrize(
    "says",
    [
        b"GET / HTTP/1.1\r\n" + b"\r\n" * 100,
        b"\x00" * 64,
        ChannelAddress("", 0, OTHER).hello(FIRST._replace(task=11)),
        b"x" * 10_000_000,
    ],
)
def test_who_does_not_know_the_word_stops_nothing_and_learns_nothing(channel: DriverChannel, says: bytes) -> None:
    """Its connection is closed once it has said as much as a name is long."""
    with came(channel, FIRST) as task:
        with contextlib.suppress(ConnectionError):
            assert said(connected(channel.address, says)) == b""
        assert list(channel._tasks) == [FIRST]
        assert not channel.repeated
        task.setblocking(False)
        with pytest.raises(BlockingIOError):
            task.recv(1)


def test_a_name_that_was_overheard_is_of_no_use(channel: DriverChannel) -> None:
    """Said a second time, it is closed; the task goes on to be the one that is told."""
    with came(channel, FIRST) as task:
        assert said(connected(channel.address, channel.address.hello(FIRST))) == b""
        channel.stop_all()
        assert task.recv(32, socket.MSG_WAITALL) == channel.address.stop_message(FIRST)


@contextlib.contextmanager
def opened(**limits: Any) -> Iterator[DriverChannel]:
    """A channel with limits of its own."""
    channel = DriverChannel(**limits)
    assert channel.open(LOOPBACK, LOOPBACK)
    try:
        yield channel
    finally:
        channel.close()


def test_who_is_silent_is_sent_away() -> None:
    """Or says its name too slowly."""
    with opened(hello_seconds=0.05) as channel:
        assert said(connected(channel.address)) == b""
        assert said(connected(channel.address, channel.address.hello(FIRST)[:-1])) == b""


def test_a_stranger_is_told_nothing_at_the_end(channel: DriverChannel) -> None:
    """It may be no task of this batch."""
    silent = connected(channel.address)
    wait_for(lambda: channel._strangers == 1)
    channel.stop_all()
    silent.shutdown(socket.SHUT_WR)
    assert said(silent) == b""


def test_so_many_who_are_silent_are_kept_and_no_more() -> None:
    """They are not in the way of tasks that have come before them, nor of those that come when they have gone."""
    with opened(most_strangers=2) as channel:
        with came(channel, FIRST), connected(channel.address), connected(channel.address):
            wait_for(lambda: channel._strangers == 2)
            assert said(connected(channel.address)) == b""
            assert list(channel._tasks) == [FIRST]
        wait_for(lambda: channel._strangers == 0)
        came(channel, FIRST._replace(partition=4)).close()


def test_lazy_enrichments_of_one_application_do_not_replace_each_other() -> None:
    """Their stages run at the same time. An attempt replaces another one of its own stage, and is forgotten later."""
    other_stage, newer = FIRST._replace(task=90, stage=6), FIRST._replace(task=11)
    with opened(by_stage=True) as channel:
        with came(channel, FIRST) as first:
            with came(channel, other_stage) as other:
                assert channel.tasks() == {FIRST, other_stage}
                other.setblocking(False)
                first.setblocking(False)
                with pytest.raises(BlockingIOError):
                    first.recv(1)
                with pytest.raises(BlockingIOError):
                    other.recv(1)
            first.settimeout(SECONDS)
            came(channel, newer).close()
            assert first.recv(32, socket.MSG_WAITALL) == channel.address.stop_message(FIRST)
        wait_for(lambda: not channel._attempts)


def test_a_driver_that_cannot_be_reached_stops_nobody(loop: BackgroundLoop) -> None:
    """A firewall costs an attempt to connect."""
    told = threading.Event()
    with socket.create_server((LOOPBACK, 0)) as closed:
        port = closed.getsockname()[1]
    with ChannelAddress(LOOPBACK, port, OTHER).listening(loop, FIRST, told.set):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, port), SECONDS)
        loop.submit(_nothing()).result(SECONDS)
    assert not told.is_set()


def test_the_port_of_a_batch_that_succeeded_is_closed(loop: BackgroundLoop) -> None:
    """And its thread ends."""
    before = set(threading.enumerate())
    with opened_channel(LOOPBACK, LOOPBACK) as channel:
        assert channel is not None
        (thread,) = set(threading.enumerate()) - before
    thread.join(SECONDS)
    assert not thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        connected(channel.address)


def test_a_driver_without_a_port_says_so_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """An address that is not this machine's."""
    with opened_channel("192.0.2.1", "192.0.2.1") as channel:
        assert channel is None
    assert "no port opens at 192.0.2.1" in caplog.text


class KnownSession:
    """A driver that knows of stages how often they were attempted, and of partitions where they are."""

    def __init__(self, attempts: dict[int, int], places: list[int], speculates: str | None) -> None:
        self.attempts, self.places, self.asked = attempts, places, 0
        self.conf = {} if speculates is None else {"spark.speculation": speculates}
        self.sparkContext = self
        self._jsc: Any = SimpleNamespace(sc=lambda: SimpleNamespace(getPreferredLocs=self._locations))

    def statusTracker(self) -> Any:
        def info(stage: int) -> Any:
            count = self.attempts.get(stage)
            return None if count is None else SimpleNamespace(currentAttemptId=count - 1)

        return SimpleNamespace(getStageInfo=info)

    def _locations(self, rdd: Any, part: int) -> Any:
        self.asked += 1
        return SimpleNamespace(size=lambda: self.places[part])


def judged(
    attempts: dict[int, int],
    places: list[int],
    speculates: str | None = None,
    repeated: bool | None = False,
    copies: int = 1,
) -> tuple[bool, int]:
    """What it says, and how many blocks it has asked for."""
    session: Any = KnownSession(attempts, places, speculates)
    rdd = SimpleNamespace(getNumPartitions=lambda: len(places))
    reports = [PartitionReport(part, 1, 0, (), {}, {}, stage=5) for part in range(len(places))]
    channel: Any = None if repeated is None else SimpleNamespace(repeated=repeated)
    return may_have_two_results(session, rdd, copies, reports, channel), session.asked


def test_what_was_attempted_once_is_single() -> None:
    """And nothing is asked for each partition."""
    assert judged({5: 1, 6: 9}, [1] * 200) == (False, 0)
    assert judged({5: 1}, [1] * 200, "false", None) == (False, 0)


@pytest.mark.parametrize("repeated", [None, False])
def test_a_stage_that_was_attempted_anew_is_enough(repeated: bool | None) -> None:
    """The older attempt may store what it has made later than this is asked."""
    assert judged({5: 2}, [1, 1], None, repeated) == (True, 0)


def test_two_tasks_of_a_partition_are_enough() -> None:
    """Of whatever stage."""
    assert judged({5: 1}, [1, 1], None, True) == (True, 0)


@pytest.mark.parametrize(
    ("places", "copies", "double"),
    [([1, 1, 1], 1, False), ([1, 2, 1], 1, True), ([2, 1], 2, False), ([2, 3], 2, True), ([], 1, False)],
)
def test_with_speculation_blocks_are_counted(places: list[int], copies: int, double: bool) -> None:
    """For tasks that have not reached the driver."""
    assert judged({5: 1}, places, "TRUE", None, copies) == (double, len(places))


def test_where_blocks_cannot_be_counted_there_may_be_two() -> None:
    """A Spark to come may not say it in this way."""
    session: Any = KnownSession({5: 1}, [], "true")
    assert may_have_two_results(session, None, 1, [PartitionReport(0, 1, 0, (), {}, {}, stage=5)], None)


def test_where_spark_has_forgotten_the_stage_blocks_are_counted() -> None:
    """``spark.ui.retainedStages`` may be few."""
    assert judged({}, [1, 2]) == (True, 2)
    assert judged({}, [1, 1]) == (False, 2)
