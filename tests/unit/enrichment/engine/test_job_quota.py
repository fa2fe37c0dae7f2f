"""Tests of a reported limit that processes share, with messages in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from virtual_time import run

from spark_events.enrichment.engine.job_quota import JobQuota, QuotaLease, QuotaReport
from spark_events.enrichment.engine.leased_calls import LeasedCalls
from spark_events.enrichment.engine.quota import ReportedQuota

WALL = 1_700_000_000.0


class Job:
    """A job's reported limit, and processes that report to it; a message takes a millisecond."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.quota = JobQuota(self.loop.time)
        self.in_flight = 0

    def process(self) -> ReportedQuota:
        leased = LeasedCalls(self.loop.time)
        quota = ReportedQuota(self.loop.time, lambda: WALL, leased)

        def receive(lease: QuotaLease) -> None:
            self.loop.call_later(0.001, leased.receive, lease)

        def send(report: QuotaReport) -> None:
            self.loop.call_later(0.001, self.quota.report, leased, report, receive)

        leased.connect(send)
        return quota

    async def report(self, quota: ReportedQuota, remaining: int, seconds: float) -> None:
        """Make a call whose answer reports a limit."""
        number = quota.begin()
        quota.report(number, {"x-ratelimit-remaining": str(remaining), "x-ratelimit-reset": str(seconds)})
        quota.end(number)
        await asyncio.sleep(0.2)
        quota.beat()
        await asyncio.sleep(0.01)

    async def started(self, quota: ReportedQuota, most: int = 100) -> int:
        """Begin attempts that do not end, while the job's limit admits them, for a second."""
        begun = 0
        for _ in range(most):
            try:
                if not quota.limits or await asyncio.wait_for(quota.wait(again=False), 1):
                    if quota.limits:
                        quota.redeem()
                    quota.begin()
                    begun += 1
            except asyncio.TimeoutError:
                break
        quota.beat()
        await asyncio.sleep(0.01)
        return begun


def simulated(work: Callable[[Job], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await work(Job())

    return run(main())[0]


def test_processes_share_the_remaining_calls() -> None:
    """Two processes together begin as many attempts as remain, although only one has seen the report."""

    async def attempts(job: Job) -> int:
        first, second = job.process(), job.process()
        await asyncio.sleep(0.01)
        await job.report(first, 10, 60)
        return sum(await asyncio.gather(job.started(first), job.started(second)))

    assert simulated(attempts) == 10


def test_a_process_that_needs_few_calls_leaves_them_to_the_others() -> None:
    """A process that wants one call gets one, and the other process gets the other nine."""

    async def attempts(job: Job) -> list[int]:
        first, second = job.process(), job.process()
        await asyncio.sleep(0.01)
        await job.report(first, 10, 60)
        return list(await asyncio.gather(job.started(first, 1), job.started(second)))

    assert simulated(attempts) == [1, 9]


@pytest.mark.parametrize("is_killed", [True, False])
def test_the_leases_of_a_lost_process_expire(is_killed: bool) -> None:
    """If a process leaves, or is killed and reports no more, others use its calls in flight and its leases."""

    async def attempts(job: Job) -> int:
        first, second = job.process(), job.process()
        await asyncio.sleep(0.01)
        await job.report(first, 10, 60)
        assert await job.started(first) == 10
        assert await job.started(second) == 0
        leased = first._calls
        assert isinstance(leased, LeasedCalls)
        leased.leave()
        if not is_killed:
            job.quota.leave(leased)
        for _ in range(60 if is_killed else 1):
            second.beat()
            await asyncio.sleep(0.1)
        return await job.started(second)

    assert simulated(attempts) == 10


def test_without_the_driver_a_process_counts_on_its_own() -> None:
    """A process that has lost the driver admits the calls that its own answers report."""

    async def attempts(job: Job) -> int:
        alone = job.process()
        alone.go_alone()
        await job.report(alone, 5, 60)
        return await job.started(alone)

    assert simulated(attempts) == 5
