"""Tests of the driver's channel, which stops the tasks of an abandoned batch, over real connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import eventually

from spark_events.enrichment.driver.channel_server import (
    DriverChannel,
    lazy_channel,
    may_have_two_results,
    opened_channel,
)
from spark_events.enrichment.engine.job_state import JobState
from spark_events.enrichment.engine.ledger import JobLimits, Ledger
from spark_events.enrichment.engine.loop import BackgroundLoop
from spark_events.enrichment.worker.channel_client import ChannelAddress, TaskAttempt
from spark_events.enrichment.worker.report import PartitionReport

LOOPBACK = "127.0.0.1"
SECONDS = 10
#: Bytes other than the stop message and anything derived from it.
OTHER = b"w" * 16
FIRST = TaskAttempt(partition=3, stage=5, number=0, task=10)


@pytest.fixture
def channel() -> Iterator[DriverChannel]:
    with opened_channel(LOOPBACK, LOOPBACK) as made:
        assert made is not None
        yield made


def connected(address: ChannelAddress, greeting: bytes = b"") -> socket.socket:
    """Connect like a task, send the hello message, and return the connection."""
    made = socket.create_connection((address.host, address.port), SECONDS)
    made.sendall(greeting)
    return made


def connected_and_registered(channel: DriverChannel, attempt: TaskAttempt) -> socket.socket:
    """Connect like a task, and return when the channel has registered and answered the task."""
    made = connected(channel.address, channel.address.hello(attempt))
    eventually(lambda: attempt in channel._tasks)
    channel._background.submit(_nothing()).result(SECONDS)
    return made


def received(connection: socket.socket) -> bytes:
    """Read from a connection until the peer closes it."""
    with connection:
        return b"".join(iter(lambda: connection.recv(4096), b""))


def test_every_task_is_notified_when_its_batch_is_abandoned(loop: BackgroundLoop) -> None:
    """When a batch is abandoned, all its tasks are notified, including tasks that connect later."""
    notified = [threading.Event() for _ in range(3)]
    with contextlib.ExitStack() as tasks:
        batch = opened_channel(LOOPBACK, LOOPBACK)
        channel = batch.__enter__()
        assert channel is not None
        for number, event in enumerate(notified):
            tasks.enter_context(channel.address.listening(loop, TaskAttempt(partition=number), event.set))
        assert not any(event.is_set() for event in notified)
        assert not batch.__exit__(KeyError, KeyError(), None)
        assert all(event.wait(SECONDS) for event in notified)


def test_a_finished_task_is_not_notified(loop: BackgroundLoop) -> None:
    """A finished task is not notified, because it has closed its connection."""
    notified = threading.Event()
    with opened_channel(LOOPBACK, LOOPBACK) as channel:
        assert channel is not None
        with channel.address.listening(loop, FIRST, notified.set):
            pass
    # After one more iteration of the loop, the cancelled task has ended.
    loop.submit(_nothing()).result(SECONDS)
    assert not notified.is_set()


def test_a_task_that_ends_while_connecting_closes_its_connection(
    loop: BackgroundLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a task exits while it connects, as for an empty partition, its connection is closed without a warning."""
    there, ended, connect = threading.Event(), threading.Event(), asyncio.open_connection

    async def until_it_has_ended(*address: Any) -> Any:
        made = await connect(*address)
        there.set()
        ended.wait(SECONDS)  # Block the loop, so that the task exits before the loop continues.
        return made

    monkeypatch.setattr(asyncio, "open_connection", until_it_has_ended)
    with socket.create_server((LOOPBACK, 0)) as driver:
        with ChannelAddress(LOOPBACK, driver.getsockname()[1], OTHER).listening(loop, FIRST, ended.set):
            assert there.wait(SECONDS)
        connection, _ = driver.accept()
        ended.set()
        connection.settimeout(SECONDS)
        assert received(connection) == b""


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
def test_a_task_accepts_only_its_own_driver_s_message(loop: BackgroundLoop, answer: bytes) -> None:
    """A task ignores other processes on the port and messages for other tasks, and never sends the secret."""
    notified = threading.Event()
    with socket.create_server((LOOPBACK, 0)) as other:
        address = ChannelAddress(LOOPBACK, other.getsockname()[1], OTHER)
        with address.listening(loop, FIRST, notified.set):
            connection, _ = other.accept()
            with connection:
                connection.settimeout(SECONDS)
                name = connection.recv(len(address.hello(FIRST)), socket.MSG_WAITALL)
                assert name == address.hello(FIRST)
                assert OTHER not in name
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(1) == b""  # The task rejected the answer and closed the connection.
    assert not notified.is_set()


@pytest.mark.parametrize(
    "newer",
    [
        FIRST._replace(task=11),
        FIRST._replace(task=90, stage=6),
        FIRST._replace(task=90, stage=6, number=2),
    ],
)
@pytest.mark.parametrize("comes_first", [True, False])
def test_a_replaced_task_is_notified_at_once(
    loop: BackgroundLoop, channel: DriverChannel, newer: TaskAttempt, comes_first: bool
) -> None:
    """If a new attempt of a stage replaces a task, the old task is notified, whichever task connects first."""
    notified, wrongly = threading.Event(), threading.Event()
    both = [(FIRST, notified), (newer, wrongly)]

    def is_known(attempt: TaskAttempt) -> bool:
        return attempt in channel._attempts.get(3, ())

    with contextlib.ExitStack() as tasks:
        for attempt, event in both if comes_first else both[::-1]:
            tasks.enter_context(channel.address.listening(loop, attempt, event.set))
            eventually(partial(is_known, attempt))
        assert notified.wait(SECONDS)
        assert channel.repeated
        assert not wrongly.is_set()


def test_a_task_that_connects_after_its_replacement_is_notified(channel: DriverChannel) -> None:
    """If a task connects after its replacement, it is notified, because the channel remembers finished tasks."""
    connected_and_registered(channel, FIRST._replace(task=11)).close()
    eventually(lambda: not channel._tasks)
    late = connected_and_registered(channel, FIRST)
    assert late.recv(32, socket.MSG_WAITALL) == channel.address.stop_message(FIRST)


@pytest.mark.parametrize(
    ("second", "repeated"),
    [
        (FIRST._replace(task=11, number=1), True),  # Spark uses the speculative copy that finishes first.
        (FIRST._replace(task=11, partition=4), False),
    ],
)
def test_other_tasks_are_not_notified(channel: DriverChannel, second: TaskAttempt, repeated: bool) -> None:
    """A task without a replacement is notified only when its batch ends."""
    tasks = {attempt: connected_and_registered(channel, attempt) for attempt in (FIRST, second)}
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
    "greeting",
    [
        b"GET / HTTP/1.1\r\n" + b"\r\n" * 100,
        b"\x00" * 64,
        ChannelAddress("", 0, OTHER).hello(FIRST._replace(task=11)),
        b"x" * 10_000_000,
    ],
)
def test_a_client_without_the_secret_has_no_effect(channel: DriverChannel, greeting: bytes) -> None:
    """A connection without the secret is closed once it has sent as many bytes as a hello message contains."""
    with connected_and_registered(channel, FIRST) as task:
        with contextlib.suppress(ConnectionError):
            assert received(connected(channel.address, greeting)) == b""
        assert list(channel._tasks) == [FIRST]
        assert not channel.repeated
        task.setblocking(False)
        with pytest.raises(BlockingIOError):
            task.recv(1)


def test_a_repeated_greeting_is_rejected(channel: DriverChannel) -> None:
    """A connection that repeats another task's hello message is closed. The other task is still notified."""
    with connected_and_registered(channel, FIRST) as task:
        assert received(connected(channel.address, channel.address.hello(FIRST))) == b""
        channel.stop_all()
        assert task.recv(32, socket.MSG_WAITALL) == channel.address.stop_message(FIRST)


@contextlib.contextmanager
def opened(**limits: Any) -> Iterator[DriverChannel]:
    """Open a channel with these limits for clients that send nothing."""
    channel = DriverChannel(**limits)
    assert channel.open(LOOPBACK, LOOPBACK)
    try:
        yield channel
    finally:
        channel.close()


def test_a_silent_client_is_disconnected() -> None:
    """A client that sends no hello message, or sends it too slowly, is disconnected."""
    with opened(hello_seconds=0.05) as channel:
        assert received(connected(channel.address)) == b""
        assert received(connected(channel.address, channel.address.hello(FIRST)[:-1])) == b""


def test_an_unidentified_client_is_not_notified(channel: DriverChannel) -> None:
    """A client without a hello message is not notified, because the client may not be a task of this batch."""
    silent = connected(channel.address)
    eventually(lambda: channel._strangers == 1)
    channel.stop_all()
    silent.shutdown(socket.SHUT_WR)
    assert received(silent) == b""


def test_the_number_of_silent_clients_is_limited() -> None:
    """The number of silent clients is limited. Tasks can connect before and after these clients."""
    with opened(most_strangers=2) as channel:
        with connected_and_registered(channel, FIRST), connected(channel.address), connected(channel.address):
            eventually(lambda: channel._strangers == 2)
            assert received(connected(channel.address)) == b""
            assert list(channel._tasks) == [FIRST]
        eventually(lambda: channel._strangers == 0)
        connected_and_registered(channel, FIRST._replace(partition=4)).close()


def test_an_unreachable_driver_stops_no_task(loop: BackgroundLoop) -> None:
    """If the driver is unreachable, for example behind a firewall, a task tries to connect once and then continues."""
    notified = threading.Event()
    with socket.create_server((LOOPBACK, 0)) as closed:
        port = closed.getsockname()[1]
    with ChannelAddress(LOOPBACK, port, OTHER).listening(loop, FIRST, notified.set):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, port), SECONDS)
        loop.submit(_nothing()).result(SECONDS)
    assert not notified.is_set()


def test_the_port_is_closed_after_a_successful_batch(loop: BackgroundLoop) -> None:
    """After a successful batch, the port is closed and the channel's thread exits."""
    before = set(threading.enumerate())
    with opened_channel(LOOPBACK, LOOPBACK) as channel:
        assert channel is not None
        (thread,) = set(threading.enumerate()) - before
    thread.join(SECONDS)
    assert not thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        connected(channel.address)


@pytest.mark.parametrize("ledger", [None, Ledger(JobLimits(in_flight=1))], ids=["no leases", "leases"])
def test_a_channel_that_ends_with_connected_tasks_logs_nothing(
    ledger: Ledger | None, caplog: pytest.LogCaptureFixture
) -> None:
    """If the driver exits while a task is connected, the loop cancels the connection's handler without an error."""
    channel = DriverChannel(ledger)
    assert channel.open(LOOPBACK, LOOPBACK)
    with connected_and_registered(channel, FIRST), connected(channel.address):
        eventually(lambda: channel._strangers == 1)
        channel._background.close(SECONDS)
        assert channel._background.loop.is_closed()
    assert caplog.messages == []


def test_a_failed_bind_is_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """If the channel cannot bind its address, for example another machine's address, the failure is logged."""
    with opened_channel("192.0.2.1", "192.0.2.1") as channel:
        assert channel is None
    assert "cannot open a port at 192.0.2.1" in caplog.text


class KnownSession:
    """Test double of a driver session with a known number of attempts of each stage."""

    def __init__(self, attempts: dict[int, int], conf: dict[str, str]) -> None:
        self.attempts, self.conf, self.sparkContext = attempts, conf, self

    def statusTracker(self) -> Any:
        def info(stage: int) -> Any:
            count = self.attempts.get(stage)
            return None if count is None else SimpleNamespace(currentAttemptId=count - 1)

        return SimpleNamespace(getStageInfo=info)


@pytest.mark.parametrize(
    ("attempts", "conf", "repeated", "double"),
    [
        ({5: 1, 6: 9}, {}, False, False),
        ({5: 1}, {"spark.speculation": "false"}, None, False),
        # The older attempt of a repeated stage may still store its result.
        ({5: 2}, {}, None, True),
        ({5: 2}, {}, False, True),
        # Two tasks of a partition, even of different stages, have connected.
        ({5: 1}, {}, True, True),
        # The driver may not know every task yet.
        ({5: 1}, {"spark.speculation": "TRUE"}, False, True),
        # Spark has forgotten the stage, as with a low spark.ui.retainedStages.
        ({}, {}, False, True),
    ],
)
def test_two_attempts_of_a_partition_may_have_two_results(
    attempts: dict[int, int], conf: dict[str, str], repeated: bool | None, double: bool
) -> None:
    """Only a single attempt of each partition certainly has one result."""
    session: Any = KnownSession(attempts, conf)
    reports = [PartitionReport(part, 1, 0, (), {}, {}, stage=5) for part in range(200)]
    channel: Any = None if repeated is None else SimpleNamespace(repeated=repeated)
    assert may_have_two_results(session, reports, channel) is double


def refuses(address: ChannelAddress | None) -> bool:
    assert address is not None
    try:
        connected(address).close()
    except ConnectionRefusedError:
        return True
    return False


def test_lazy_enrichments_of_one_function_share_a_port() -> None:
    """The port stays open for later computations; the oldest one closes, and all those of an ended application."""

    def frame(application: str) -> Any:
        context = SimpleNamespace(applicationId=application, master="local[2]")
        return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))

    first, state = frame("first"), JobState(None)
    address = lazy_channel(first, None, state)
    assert lazy_channel(first, None, state) == address
    assert not refuses(address)
    others = [lazy_channel(first, None, JobState(None)) for _ in range(16)]
    eventually(lambda: refuses(address))
    assert not any(map(refuses, others))
    second = lazy_channel(frame("second"), None, state)
    eventually(lambda: all(map(refuses, others)))
    assert not refuses(second)
