"""Tests of leases over the driver's channel, with real connections."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import threading
import time
from concurrent.futures import Future

import pytest
from virtual_engine import VirtualRun, virtual_now
from virtual_time import run

from spark_events import Budget
from spark_events.enrichment.driver.channel_server import DriverChannel, opened_channel
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.ledger import Ask, JobLimits, Lease, Ledger, leased
from spark_events.enrichment.engine.loop import BackgroundLoop
from spark_events.enrichment.worker.channel_client import ASK, LEASE, ChannelAddress, TaskAttempt

LOOPBACK = "127.0.0.1"
SECONDS = 20
FIRST, SECOND = TaskAttempt(1, 5, 0, 10), TaskAttempt(2, 5, 0, 11)
BUDGET = Budget(100, cost=float)


def ignored() -> None:
    pass


def test_tasks_lease_from_the_driver(loop: BackgroundLoop) -> None:
    """When a task ends, it returns its permitted calls in flight, and the driver leases them to another task."""
    limits = JobLimits(in_flight=2)
    first, second = JobShare(limits, None), JobShare(limits, None)

    async def calls(share: JobShare) -> None:
        for _ in range(2):
            await share.wait([0.0], again=False)

    with opened_channel(LOOPBACK, LOOPBACK, Ledger(limits)) as channel:
        assert channel is not None
        with channel.address.listening(loop, SECOND, ignored, second):
            with channel.address.listening(loop, FIRST, ignored, first):
                loop.submit(calls(first)).result(SECONDS)
                waiting = loop.submit(calls(second))
                with pytest.raises(TimeoutError):
                    waiting.exception(0.5)
            waiting.result(SECONDS)


def test_one_task_may_lease_twice_for_lazy_enrichments(loop: BackgroundLoop) -> None:
    """A task that computes two lazy enrichments has two connections, and no attempt replaces another one."""
    limits, stopped = JobLimits(in_flight=2), threading.Event()
    shares = [JobShare(limits, None) for _ in range(2)]
    channel = DriverChannel(Ledger(limits), stops=False)
    assert channel.open(LOOPBACK, LOOPBACK)
    with contextlib.ExitStack() as tasks:
        for share, attempt in zip(shares, (FIRST, FIRST), strict=True):
            tasks.enter_context(channel.address.listening(loop, attempt, stopped.set, share))
        tasks.enter_context(channel.address.listening(loop, FIRST._replace(stage=6, task=20), stopped.set))
        for share in shares:
            loop.submit(share.wait([0.0], again=False)).result(SECONDS)
        third = loop.submit(shares[0].wait([0.0], again=False))
        with pytest.raises(TimeoutError):
            third.result(0.5)
        loop.loop.call_soon_threadsafe(shares[1].ended)
        third.result(SECONDS)
    channel.close()
    assert not stopped.is_set()
    assert not channel.repeated


def test_a_function_that_cancels_every_task_does_not_end_the_leases(loop: BackgroundLoop) -> None:
    """The connection to the driver is opened again, and stops the task later."""
    limits, stopped = JobLimits(in_flight=2), threading.Event()
    share = JobShare(limits, None)

    async def cancel_all() -> None:
        await share.wait([0.0], again=False)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        share.ended()

    with opened_channel(LOOPBACK, LOOPBACK, Ledger(limits)) as channel:
        assert channel is not None
        with channel.address.listening(loop, FIRST, stopped.set, share):
            for _ in range(5):
                loop.submit(cancel_all()).result(SECONDS)
            loop.submit(share.wait([0.0], again=False)).result(SECONDS)
            channel.stop_all()
            assert stopped.wait(SECONDS)
        assert not channel.repeated


def test_a_stopped_task_is_notified_while_it_leases(loop: BackgroundLoop) -> None:
    limits, stopped = JobLimits(calls_per_second=1000), threading.Event()
    share = JobShare(limits, None)
    with opened_channel(LOOPBACK, LOOPBACK, Ledger(limits)) as channel:
        assert channel is not None
        with channel.address.listening(loop, FIRST, stopped.set, share):
            for _ in range(20):
                loop.submit(share.wait([0.0], again=False)).result(SECONDS)
            assert not stopped.is_set()
            channel.stop_all()
            assert stopped.wait(SECONDS)


def test_the_rest_of_a_lease_is_returned_at_the_end_of_a_task(loop: BackgroundLoop) -> None:
    """The unused part of a call's estimate is available to other calls, even if the task has ended."""
    limits = JobLimits(amount_per_minute=100)
    ledger = Ledger(limits)
    share = JobShare(limits, Budget(100, cost=float, usage=lambda _: 1))

    async def call(share: JobShare) -> None:
        grant = await share.wait([90.0], again=False)
        share.spent(grant, None, several=False)
        share.ended()

    with opened_channel(LOOPBACK, LOOPBACK, ledger) as channel:
        assert channel is not None
        with channel.address.listening(loop, FIRST, ignored, share):
            loop.submit(call(share)).result(SECONDS)
        other = JobShare(limits, Budget(100, cost=float, usage=lambda _: 1))
        with channel.address.listening(loop, SECOND, ignored, other):
            loop.submit(call(other)).result(SECONDS)


@pytest.mark.parametrize("limits", [JobLimits(calls_per_second=300), JobLimits(amount_per_minute=18_000)])
def test_a_lease_contains_several_frequent_calls(limits: JobLimits) -> None:
    """A task sends no request for each call, and still reaches the limit."""
    requests: list[float] = []

    async def calls() -> float:
        ledger, share = Ledger(limits, virtual_now), JobShare(limits, None, virtual_now)

        async def lease(ask: Ask) -> Lease:
            requests.append(virtual_now())
            return await leased(ledger, 0, ask)

        requesting = asyncio.ensure_future(share.run(lease))

        async def call() -> None:
            await share.wait([1.0], again=False)
            share.ended()

        began = virtual_now()
        await asyncio.gather(*[call() for _ in range(900)])
        rate = 900 / (virtual_now() - began)
        requesting.cancel()
        await asyncio.wait([requesting])
        return rate

    rate, _ = run(calls())
    assert rate > 0.95 * 300
    assert min(later - earlier for earlier, later in itertools.pairwise(requests)) > 0.0499
    assert len(requests) < 900 / 5


@pytest.mark.parametrize(
    "message",
    [
        ChannelAddress("", 0, b"w" * 16).message(ASK, FIRST, 0, Ask(1)),
        b"x" * 32 + b"\xff" * 4,
        b"x" * 32 + b"\x00\x00\x00\x01x",
    ],
)
def test_a_foreign_ask_ends_the_connection(message: bytes) -> None:
    """A request with another secret, of any length, receives no lease."""
    with opened_channel(LOOPBACK, LOOPBACK, Ledger(JobLimits(calls_per_second=10))) as channel:
        assert channel is not None
        address = channel.address
        with socket.create_connection((LOOPBACK, address.port), SECONDS) as task:
            task.sendall(address.hello(FIRST) + message)
            assert task.recv(1) == b""


def test_an_ask_cannot_be_repeated() -> None:
    """Each request has a number, so a repeated request receives no second lease."""
    with opened_channel(LOOPBACK, LOOPBACK, Ledger(JobLimits(calls_per_second=10))) as channel:
        assert channel is not None
        address = channel.address
        ask = address.message(ASK, FIRST, 0, Ask(1))
        with socket.create_connection((LOOPBACK, address.port), SECONDS) as task:
            task.sendall(address.hello(FIRST) + ask + ask)
            with task.makefile("rb") as answers:
                answer = answers.read()
    lease = Lease(*json.loads(answer[36:]))
    assert answer == address.message(LEASE, FIRST, 0, lease)
    assert lease.calls == 1


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_task_without_the_driver_is_on_its_own(loop: BackgroundLoop, is_refused: bool) -> None:
    """If no connection opens, or if it closes, the task learns the reason and continues without the driver."""
    reason: Future[str] = Future()

    async def alone(why: str) -> None:
        reason.set_result(why)

    with socket.create_server((LOOPBACK, 0)) as driver:
        address = ChannelAddress(LOOPBACK, driver.getsockname()[1], b"s" * 16)
        if is_refused:
            driver.close()
        with address.listening(loop, FIRST, ignored, JobShare(JobLimits(in_flight=1), None), alone):
            if not is_refused:
                driver.accept()[0].close()
            why = reason.result(SECONDS)
    end = f"the driver at {LOOPBACK}"
    assert why == (f"cannot connect to {end} (Connection refused)" if is_refused else f"lost the connection to {end}")


def test_a_call_above_the_share_of_its_task_delays_the_next_calls() -> None:
    """With an even split, calls above the share of a task start so rarely that their average stays within the share."""
    begun: list[float] = []

    async def fn(row: int) -> int:
        begun.append(virtual_now())
        return row

    budget = Budget(100, cost=lambda row: 50)
    VirtualRun(fn, job=JobLimits(None, 25), budget=budget, max_in_flight=5).of(range(4))
    assert all(later - earlier > 2 * 60 for earlier, later in itertools.pairwise(begun))


def test_silent_tasks_lose_their_places() -> None:
    now = 0.0
    ledger = Ledger(JobLimits(in_flight=1), lambda: now)
    ledger.ask("a", Ask(1, held=0, wanted=1))
    lease = ledger.lease("a", at_once=True)
    assert lease is not None
    assert lease.places == 1
    for moment, places in ((9.0, 0), (11.0, 1)):
        now = moment
        ledger.ask("b", Ask(1, held=0, wanted=1))
        lease = ledger.lease("b", at_once=True)
        assert lease is not None
        assert lease.places == places


def test_an_error_of_the_ledger_ends_the_calls() -> None:
    """An error raised by the ledger fails all waiting calls. Otherwise, these calls would wait forever."""

    async def broken(_: Ask) -> Lease:
        raise KeyError("lease")

    async def call() -> None:
        share = JobShare(JobLimits(in_flight=1), None)
        running = asyncio.ensure_future(share.run(broken))
        with pytest.raises(KeyError, match="lease"):
            await share.wait([0.0], again=False)
        with pytest.raises(KeyError):
            await running

    asyncio.run(call())


def test_places_are_returned_only_in_larger_numbers() -> None:
    """Calls in quick succession share lease requests.

    When all calls have ended, the task returns its permitted calls.
    """
    limits, asks = JobLimits(in_flight=32), []

    async def calls() -> None:
        clock = asyncio.get_running_loop().time
        ledger, returned = Ledger(limits, clock), asyncio.Event()

        async def lease_for(ask: Ask) -> Lease:
            asks.append(ask)
            if not ask.wanted and len(asks) > 1:
                returned.set()
            return await leased(ledger, 1, ask)

        share = JobShare(limits, None, clock)
        running = asyncio.ensure_future(share.run(lease_for))
        await asyncio.gather(*(share.wait([0.0], again=False) for _ in range(32)))
        before = len(asks)
        for _ in range(20):
            share.ended()
            share.ended()
            # This time exceeds the time for which requests are collected.
            await asyncio.sleep(0.01)
            for _ in range(2):
                await share.wait([0.0], again=False)
        assert len(asks) - before <= 2
        for _ in range(32):
            share.ended()
        await returned.wait()
        running.cancel()

    run(asyncio.wait_for(calls(), SECONDS))


def test_a_connection_buffers_whole_messages() -> None:
    """With a buffer for hello messages only, asyncio would pause reading at each message."""
    seen: Future[str] = Future()

    class Channel(DriverChannel):
        async def _read_hello(self, reader: asyncio.StreamReader) -> TaskAttempt | None:
            seen.set_result(repr(reader))
            return await super()._read_hello(reader)

    channel = Channel()
    assert channel.open(LOOPBACK, LOOPBACK)
    try:
        with socket.create_connection((LOOPBACK, channel.address.port), SECONDS):
            assert "limit=64" not in seen.result(SECONDS)
    finally:
        channel.close()


def test_only_the_first_task_of_a_process_waits_long_for_a_driver_that_does_not_answer(loop: BackgroundLoop) -> None:
    """Behind a firewall that drops packets, each task would otherwise wait ten seconds before its first call."""

    def seconds_alone() -> tuple[str, float]:
        reason: Future[str] = Future()

        async def alone(why: str) -> None:
            reason.set_result(why)

        began = time.monotonic()
        with address.listening(loop, FIRST, ignored, JobShare(JobLimits(in_flight=1), None), alone):
            return reason.result(6 * SECONDS), time.monotonic() - began

    with contextlib.ExitStack() as sockets:
        # Linux drops further connections when the queue of a server that does not accept is full.
        driver = sockets.enter_context(socket.create_server((LOOPBACK, 0), backlog=0))
        for _ in range(3):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(driver.getsockname())
        address = ChannelAddress(LOOPBACK, driver.getsockname()[1], b"s" * 16)
        assert seconds_alone()[0] == f"cannot connect to the driver at {LOOPBACK} (timeout)"
        assert seconds_alone()[1] < 10
    with opened_channel(LOOPBACK, LOOPBACK, Ledger(JobLimits(in_flight=1))) as channel:
        assert channel is not None
        share = JobShare(JobLimits(in_flight=1), None)
        with channel.address.listening(loop, FIRST, ignored, share):
            loop.submit(share.wait([0.0], again=False)).result(SECONDS)
