"""Tests of calls in flight that the driver leases over its channel, with real connections."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from spark_events.enrichment.driver.channel_server import DriverChannel, opened_channel
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.job_state import JobState, TaskState
from spark_events.enrichment.engine.job_window import CallReport
from spark_events.enrichment.engine.ledger import JobLimits, Ledger
from spark_events.enrichment.engine.loop import BackgroundLoop
from spark_events.enrichment.settings import Auto
from spark_events.enrichment.worker.channel_client import REPORT, ChannelAddress, TaskAttempt

LOOPBACK = "127.0.0.1"
SECONDS = 20
FIRST, SECOND = TaskAttempt(1, 5, 0, 10), TaskAttempt(2, 5, 0, 11)
JOB = Auto(initial=20, max=20)


def ignored() -> None:
    pass


class Task:
    """A running task, which reports and applies its shares on the loop, as a pool does."""

    def __init__(self, loop: BackgroundLoop) -> None:
        self.state = TaskState(JOB)
        assert self.state.window is not None
        self.window = self.state.window
        self._loop = loop
        self.window.on_change(lambda: self.window.begin(time.monotonic()))

    def beat(self) -> None:
        async def beat() -> None:
            if self.window.since == float("inf"):
                self.window.begin(time.monotonic())
            self.window.beat(time.monotonic(), self.window.size)

        self._loop.submit(beat()).result(SECONDS)


@contextlib.contextmanager
def running(
    loop: BackgroundLoop, channel: DriverChannel, attempt: TaskAttempt, share: JobShare | None = None
) -> Iterator[Task]:
    task = Task(loop)
    with channel.address.listening(loop, attempt, ignored, share, state=task.state):
        yield task


@pytest.fixture
def channel() -> Iterator[DriverChannel]:
    with opened_channel(LOOPBACK, LOOPBACK, Ledger(JobLimits(in_flight=1)), None, JobState(JOB)) as channel:
        assert channel is not None
        yield channel


def wait_until(condition: Callable[[], bool], *tasks: Task) -> None:
    """Let the tasks report until a condition is true."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        for task in tasks:
            task.beat()


def test_tasks_share_the_calls_in_flight(loop: BackgroundLoop, channel: DriverChannel) -> None:
    """Two tasks share the number of the job, and the end of a connection frees its share at once."""
    with running(loop, channel, FIRST) as first:
        wait_until(lambda: first.window.size == 20, first)
        with running(loop, channel, SECOND) as second:
            wait_until(lambda: (first.window.size, second.window.size) == (10, 10), first, second)
        before = time.monotonic()
        wait_until(lambda: first.window.size == 20, first)
        # Without the end of the connection, the share would be lost for five seconds.
        assert time.monotonic() - before < 4


def test_a_lease_that_waits_does_not_delay_a_share(loop: BackgroundLoop, channel: DriverChannel) -> None:
    """A task receives its share although the driver cannot answer its request for a lease yet."""
    limits = JobLimits(in_flight=1)
    holder, waiter = JobShare(limits, None), JobShare(limits, None)
    with channel.address.listening(loop, FIRST, ignored, holder):
        loop.submit(holder.wait([0.0], again=False)).result(SECONDS)
        with running(loop, channel, SECOND, waiter) as task:
            waiting = loop.submit(waiter.wait([0.0], again=False))
            wait_until(lambda: task.window.size == 20, task)
            assert not waiting.done()
            waiting.cancel()


@pytest.mark.parametrize("number", [1, 0])
def test_a_foreign_report_ends_the_connection(channel: DriverChannel, number: int) -> None:
    """A report with another secret or another number is not counted."""
    address = channel.address
    sender = address if number else ChannelAddress("", 0, b"w" * 16)
    with socket.create_connection((LOOPBACK, address.port), SECONDS) as task:
        task.sendall(address.hello(FIRST) + sender.message(REPORT, FIRST, number, ("window", CallReport())))
        assert task.recv(1) == b""


def test_a_task_that_shares_calls_learns_that_it_is_alone(loop: BackgroundLoop) -> None:
    """The caller learns that no connection opens, also if the job has no other limits."""
    reason: Future[str] = Future()

    async def alone(why: str) -> None:
        reason.set_result(why)

    with socket.create_server((LOOPBACK, 0)) as closed:
        address = ChannelAddress(LOOPBACK, closed.getsockname()[1], b"s" * 16)
    with address.listening(loop, FIRST, ignored, None, alone, state=TaskState(None)):
        assert reason.result(SECONDS).startswith("cannot connect to ")
