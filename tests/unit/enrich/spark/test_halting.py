"""Workers hear that a batch is given up, over a real connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from spark_events.enrich.engine.loop import BackgroundLoop
from spark_events.enrich.spark.halting import Halt, halting

LOOPBACK = "127.0.0.1"
SECONDS = 10


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    made = BackgroundLoop()
    yield made
    made.close(SECONDS)


def connected(halt: Halt) -> socket.socket:
    """As a task is."""
    return socket.create_connection((halt.host, halt.port), SECONDS)


def test_all_who_listen_are_told_at_the_end(loop: BackgroundLoop) -> None:
    """Of a batch that is given up: those who come late as well, and nobody before that."""
    told = [threading.Event() for _ in range(3)]
    with contextlib.ExitStack() as tasks:
        batch = halting(LOOPBACK, LOOPBACK)
        halt = batch.__enter__()
        assert halt is not None
        for event in told:
            tasks.enter_context(halt.heeded(loop, event.set))
        assert not any(event.is_set() for event in told)
        assert not batch.__exit__(KeyError, KeyError(), None)
        assert all(event.wait(SECONDS) for event in told)


def test_who_has_ended_is_told_nothing(loop: BackgroundLoop) -> None:
    """Its connection is closed with it."""
    told = threading.Event()
    with halting(LOOPBACK, LOOPBACK) as halt:
        assert halt is not None
        with halt.heeded(loop, told.set):
            pass
    # What was cancelled on the loop has unwound when a later step has run there.
    loop.submit(_nothing()).result(SECONDS)
    assert not told.is_set()


async def _nothing() -> None:
    pass


@pytest.mark.parametrize("said", [b"", b"short", b"x" * 16, b"x" * 1000])
def test_only_the_batchs_own_driver_is_heeded(loop: BackgroundLoop, said: bytes) -> None:
    """Whoever has the port by now."""
    told = threading.Event()
    with socket.create_server((LOOPBACK, 0)) as other:
        halt = Halt(LOOPBACK, other.getsockname()[1], b"w" * 16)
        with halt.heeded(loop, told.set):
            connection, _ = other.accept()
            with connection:
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(SECONDS)
                assert connection.recv(1) == b""  # it has heard enough
    assert not told.is_set()


def test_a_driver_that_cannot_be_reached_stops_nobody(loop: BackgroundLoop) -> None:
    """A firewall costs an attempt to connect."""
    told = threading.Event()
    with socket.create_server((LOOPBACK, 0)) as closed:
        port = closed.getsockname()[1]
    with Halt(LOOPBACK, port, b"w" * 16).heeded(loop, told.set):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, port), SECONDS)
        loop.submit(_nothing()).result(SECONDS)
    assert not told.is_set()


def test_the_port_of_a_batch_that_succeeded_is_closed(loop: BackgroundLoop) -> None:
    """And its thread ends."""
    before = set(threading.enumerate())
    with halting(LOOPBACK, LOOPBACK) as halt:
        assert halt is not None
        (thread,) = set(threading.enumerate()) - before
    thread.join(SECONDS)
    assert not thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        connected(halt)


def test_a_driver_without_a_port_says_so_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """An address that is not this machine's."""
    with halting("192.0.2.1", "192.0.2.1") as halt:
        assert halt is None
    assert "no port opens at 192.0.2.1" in caplog.text
