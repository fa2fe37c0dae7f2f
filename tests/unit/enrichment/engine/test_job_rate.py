"""Tests of the allowed rate that processes share, with messages in virtual time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from virtual_time import run

from spark_events.enrichment.engine.allowed_rate import AllowedRate
from spark_events.enrichment.engine.calls import Call
from spark_events.enrichment.engine.fair_shares import fair_shares, whole_shares
from spark_events.enrichment.engine.job_rate import JobRate, RateReport, RateShare
from spark_events.enrichment.engine.limiter import Attempt


def no_call() -> Call:
    raise AssertionError


class Job:
    """A job's rate, and processes that report to it; a message takes a millisecond."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.rate = JobRate(self.loop.time)
        self.starts: list[tuple[int, float]] = []

    def process(self) -> AllowedRate:
        process = AllowedRate(self.loop.time, holds=True)

        def receive(share: RateShare) -> None:
            self.loop.call_later(0.001, process.receive, share)

        def send(report: RateReport) -> None:
            self.loop.call_later(0.001, self.rate.report, process, report, receive)

        process.connect(send)
        return process

    async def call(self, number: int, process: AllowedRate, seconds: float) -> None:
        """Make attempts, one after another, and report four times per second."""
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await process.enter(Attempt(no_call, overtakes=False))
            self.starts.append((number, self.loop.time()))
            process.passed(1, 1)
            await asyncio.sleep(0.001)

    def rate_of(self, number: int, since: float) -> float:
        """Return the attempts per second of a process from a time on."""
        return sum(one == number for one, when in self.starts if when >= since) / (self.loop.time() - since)


def simulated(work: Callable[[Job], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await work(Job())

    return run(main())[0]


async def limited(job: Job, processes: int) -> list[AllowedRate]:
    """Return processes of a job whose rate is known."""
    members = [job.process() for _ in range(processes)]
    await asyncio.sleep(0.01)
    members[0].passed(100, 100)
    members[0].rejected(job.loop.time(), 1.0, 0.0)
    await asyncio.sleep(1.2)
    return members


def test_a_rejection_pauses_all_processes() -> None:
    """A Retry-After of one process pauses the others after one message, and no attempt starts in the pause."""

    async def starts(job: Job) -> list[float]:
        first, second = job.process(), job.process()
        await asyncio.sleep(0.01)
        calling = asyncio.ensure_future(job.call(1, second, 2))
        await asyncio.sleep(0.5)
        first.rejected(job.loop.time(), 1.0, 0.0)
        await calling
        return [when for _, when in job.starts]

    found = simulated(starts)
    assert not [when for when in found if 0.52 < when < 1.5]
    assert [when for when in found if when > 1.5]


def test_processes_share_the_rate_by_their_use() -> None:
    """Two processes with many rows have equal shares; an idle process gives its share to them, and a dead one too."""

    async def rates(job: Job) -> list[float]:
        first, second, _idle = await limited(job, 3)
        began = job.loop.time()
        await asyncio.gather(job.call(1, first, 6), job.call(2, second, 6))
        both = [job.rate_of(1, began), job.rate_of(2, began)]
        began = job.loop.time()
        # The second process has died without a word.
        await job.call(1, first, 12)
        return [*both, job.rate_of(1, began + 6)]

    one, other, alone = simulated(rates)
    assert one == pytest.approx(other, rel=0.15)
    assert alone > 1.6 * one


def test_a_new_process_begins_with_its_share() -> None:
    """A task that starts later makes no burst: its attempts wait for the share of the job's rate."""

    async def attempts(job: Job) -> int:
        (first,) = await limited(job, 1)
        calling = asyncio.ensure_future(job.call(1, first, 2))
        await asyncio.sleep(1)
        late, began = job.process(), job.loop.time()
        await job.call(2, late, 0.2)
        calling.cancel()
        return sum(number == 2 for number, when in job.starts if when < began + 0.2)

    # The first rejection after 100 calls at once is followed by at most 200 attempts per second.
    assert 1 <= simulated(attempts) <= 40


@pytest.mark.parametrize("is_current", [True, False])
def test_only_rejections_of_the_current_epoch_count(is_current: bool) -> None:
    """Rejections of attempts that began before a pause do not begin another pause."""

    async def pauses(job: Job) -> bool:
        sent: list[RateShare] = []
        job.rate.report(0, RateReport(), sent.append)
        job.rate.report(0, RateReport(begun=50, rejected=1, current=1, asked=1.0), sent.append)
        await asyncio.sleep(2)
        job.rate.report(0, RateReport(epoch=sent[-1].epoch, asks=True), sent.append)
        epoch = sent[-1].epoch if is_current else 0
        job.rate.report(0, RateReport(epoch=epoch, begun=50, rejected=1, current=1, asked=1.0), sent.append)
        return sent[-1].is_settling

    assert simulated(pauses) is is_current


def test_an_attempt_that_does_not_start_gives_its_place_to_another() -> None:
    """Attempts that were admitted while the gate was closed do not delay the next ones."""

    async def delay(job: Job) -> float:
        (process,) = await limited(job, 1)
        before = job.loop.time()
        waiting = [asyncio.ensure_future(process.enter(Attempt(no_call, overtakes=False))) for _ in range(50)]
        for attempt in waiting[:-1]:
            (await attempt).give_back()
        await waiting[-1]
        return job.loop.time() - before

    # With 200 attempts per second, 50 attempts that start take 0.25 s.
    assert simulated(delay) < 0.1


def test_without_the_driver_attempts_start_after_a_moment() -> None:
    """A task whose driver does not answer starts its attempts, and finds a rate of its own."""

    async def began(job: Job) -> tuple[float, bool, bool]:
        alone = AllowedRate(job.loop.time, holds=True)
        await alone.enter(Attempt(no_call, overtakes=False))
        waited, before = job.loop.time(), alone.limits
        alone.go_alone()
        alone.passed(100, 100)
        alone.rejected(job.loop.time(), 1.0, 0.0)
        return waited, before, alone.limits

    assert simulated(began) == (pytest.approx(0.25, abs=0.01), False, True)


@pytest.mark.parametrize(
    ("limit", "wanted", "shares"),
    [
        (12, {"a": math.inf, "b": math.inf}, {"a": 6, "b": 6}),
        (12, {"a": 2, "b": math.inf}, {"a": 2, "b": 10}),
        (12, {"a": 2, "b": 4}, {"a": 5, "b": 7}),
        (math.inf, {"a": 5}, {"a": math.inf}),
        (5, {}, {}),
    ],
)
def test_shares_are_max_min_fair(limit: float, wanted: dict[str, float], shares: dict[str, float]) -> None:
    """Who wants less than an equal part gets what it wants; the others share the rest."""
    assert fair_shares(limit, wanted) == shares


@pytest.mark.parametrize(
    ("limit", "wanted", "held", "shares"),
    [
        (7, {"a": math.inf, "b": math.inf}, {"a": 0, "b": 4}, {"a": 3, "b": 4}),
        (7, {"a": math.inf, "b": math.inf}, {"a": 5, "b": 2}, {"a": 4, "b": 3}),
        (1, {"a": 5, "b": 4, "c": 3}, {"a": 0, "b": 1, "c": 0}, {"a": 0, "b": 1, "c": 0}),
        (3, {"a": 0, "b": 1.5, "c": math.inf}, {"a": 1, "b": 1, "c": 0}, {"a": 0, "b": 2, "c": 1}),
        (9, {"a": 2, "b": 3}, {"a": 0, "b": 0}, {"a": 4, "b": 5}),
    ],
)
def test_whole_shares_change_little(
    limit: int, wanted: dict[str, float], held: dict[str, int], shares: dict[str, int]
) -> None:
    """What remains after rounding stays with the process that holds it, whatever the others want."""
    assert whole_shares(limit, wanted, held) == shares


@pytest.mark.parametrize("wanted", [math.inf, 3])
def test_more_processes_than_shares_do_not_move_them(wanted: float) -> None:
    """Of eight processes, the three that have a place keep it while the wanted numbers change."""
    held = {name: int(name in "bdf") for name in "abcdefgh"}
    changing = {name: wanted + number for number, name in enumerate("abcdefgh")}
    assert whole_shares(3, changing, held) == held
