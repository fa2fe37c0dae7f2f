"""Tests in virtual time that the tasks of a job together never exceed the job's limits."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from enrich_engine import chunks_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulated_service import Service, outcome
from virtual_time import run

from spark_events import Budget, Limits, Rate
from spark_events.enrichment.engine.buffer import RowBuffer
from spark_events.enrichment.engine.calls import Call, RowBatch
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.ledger import Ask, JobLimits, Lease, Ledger, leased

MINUTE = 60.0


def most_in_a_window(uses: list[tuple[float, float]], seconds: float) -> float:
    """Return the largest amount that was used within any window."""
    most, used, first = 0.0, 0.0, 0
    for moment, amount in (ordered := sorted(uses)):
        used += amount
        while ordered[first][0] < moment - seconds:
            used -= ordered[first][1]
            first += 1
        most = max(most, used)
    return most


@dataclasses.dataclass
class Job:
    """Tasks that lease from one ledger over a network with delays, and that may crash."""

    limits: JobLimits
    slots: int
    calls: float
    cost: tuple[float, float]
    error: tuple[float, float]
    delay: float
    crashes: float
    latency: float
    seed: int

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.uses: list[tuple[float, float]] = []
        self.starts: list[tuple[float, float]] = []
        self.excess: list[tuple[float, float]] = []
        self.unreported = 0.0
        self.in_flight = self.most_in_flight = self.done = 0

    async def run(self, seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        self.ledger = Ledger(self.limits, clock)
        names = itertools.count()
        slots = [asyncio.ensure_future(self._slot(names)) for _ in range(self.slots)]
        await asyncio.sleep(seconds)
        for slot in slots:
            slot.cancel()
        await asyncio.gather(*slots, return_exceptions=True)

    async def _slot(self, names: Any) -> None:
        """Run one task after another. Each task runs until it crashes."""
        while True:
            life = self.random.expovariate(self.crashes) if self.crashes else 1e9
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._task(next(names)), life)

    async def _task(self, name: int) -> None:
        clock = asyncio.get_running_loop().time
        usage: Callable[[Any], float] = float
        budget = Budget(self.limits.amount_per_minute or 1e18, cost=float, usage=usage)
        share = JobShare(self.limits, budget, clock)

        async def lease_for(ask: Ask) -> Lease:
            await asyncio.sleep(self.random.uniform(0, self.delay))
            lease = await leased(self.ledger, name, ask)
            await asyncio.sleep(self.random.uniform(0, self.delay))
            return lease

        running = asyncio.ensure_future(share.run(lease_for))
        calls: set[asyncio.Task[None]] = set()
        try:
            while True:
                await asyncio.sleep(self.random.expovariate(self.calls))
                if len(calls) < 100:
                    calls.add(task := asyncio.ensure_future(self._call(share)))
                    task.add_done_callback(calls.discard)
        finally:
            # The driver detects the end of the connection.
            self.ledger.leave(name)
            for task in (running, *calls):
                task.cancel()
            await asyncio.gather(running, *calls, return_exceptions=True)

    async def _call(self, share: JobShare) -> None:
        clock = asyncio.get_running_loop().time
        cost = self.random.uniform(*self.cost)
        actual = cost * self.random.uniform(*self.error)
        grant = await share.wait([cost], again=False)
        self.starts.append((clock(), 1.0))
        self.uses.append((clock(), actual))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        reported = False
        try:
            await asyncio.sleep(self.latency * self.random.uniform(0.5, 2))
            self.done += 1
            share.spent(grant, actual, several=False)
            share.ended()
            reported = True
        finally:
            if actual > cost:
                self.excess.append((clock(), actual - cost))
                # A crashed task cannot report the usage of its calls, so the ledger counts their estimates.
                self.unreported += 0 if reported else actual - cost
            self.in_flight -= 1


@settings(max_examples=12, derandomize=True, deadline=None)
@given(
    per_second=st.none() | st.floats(0.5, 50),
    slots=st.integers(1, 8),
    calls=st.floats(0.5, 10),
    least=st.floats(0.1, 1),
    error=st.sampled_from([(1.0, 1.0), (0.2, 1.0), (0.0, 0.1), (0.8, 1.2), (1.0, 2.0)]),
    delay=st.sampled_from([0.0, 0.02, 0.4, 1.2]),
    crashes=st.sampled_from([0.0, 0.0, 0.02, 0.2]),
    latency=st.floats(0.01, 10),
    seed=st.integers(0, 99),
)
@example(per_second=None, slots=1, calls=2.0, least=1.0, error=(1.0, 2.0), delay=0.0, crashes=0.2, latency=4.0, seed=0)
@example(per_second=None, slots=1, calls=2.0, least=1.0, error=(1.0, 2.0), delay=0.0, crashes=0.2, latency=3.0, seed=0)
def test_no_minute_exceeds_the_limits(
    per_second: float | None,
    slots: int,
    calls: float,
    least: float,
    error: tuple[float, float],
    delay: float,
    crashes: float,
    latency: float,
    seed: int,
) -> None:
    """Only usage above the estimates can exceed the limit, even with crashes, delays and usage below the estimates."""
    limit = 6000.0
    costs = (least * 60, 60.0)
    job = Job(JobLimits(per_second, limit), slots, calls, costs, error, delay, crashes, latency, seed)
    run(job.run(180.0))
    assert most_in_a_window(job.uses, MINUTE) <= limit + most_in_a_window(job.excess, MINUTE + latency * 2) + 1e-6
    if per_second is not None:
        assert most_in_a_window(job.starts, max(MINUTE, 10 / per_second)) <= max(MINUTE * per_second, 10) + 1e-6
    # Reported usage above the estimates reduces later grants, so the total over several minutes stays within the limit.
    assert sum(amount for _, amount in job.uses) <= limit * 180 / MINUTE + limit / 2 + job.unreported


def test_more_than_the_limit_is_found() -> None:
    """Control: with leases of twice the limit, the same check detects the excess."""
    job = Job(JobLimits(None, 12000.0), 2, 10, (30.0, 60.0), (1.0, 1.0), 0.0, 0.0, 0.1, 0)
    run(job.run(120.0))
    assert most_in_a_window(job.uses, MINUTE) > 6000


@pytest.mark.parametrize("crashes", [0.0, 0.2])
@pytest.mark.parametrize("delay", [0.0, 0.1])
def test_calls_in_flight_never_exceed_the_limit_and_use_it(crashes: float, delay: float) -> None:
    job = Job(JobLimits(in_flight=10), 4, 100, (1, 1), (1, 1), delay, crashes, 0.5, 3)
    run(job.run(60.0))
    assert job.most_in_flight <= 10
    # Ten calls in flight with a mean duration of 0.625 s are 16 calls per second. Calls made by crashed tasks are
    # lost.
    assert job.done >= (0.8 if crashes else 0.9) * 16 * 60


#: Duration of a run in seconds, tokens per minute, and number of worker processes.
SECONDS, QUOTA, PROCESSES = 180, 60_000, 4


def tokens(row: int) -> float:
    return 100 + (row * 37) % 200


MEAN = sum(tokens(row) for row in range(200)) / 200


@pytest.mark.parametrize("guess", [1.0, 0.5, 3.0])
@pytest.mark.parametrize("retry_after", [None, 5.0])
def test_the_throughput_is_that_of_the_quota(guess: float, retry_after: float | None) -> None:
    """Even if all estimates are wrong by a factor, the job uses 90 % of the quota, and few calls are rejected.

    The service counts the actual usage.
    """
    service = Service(latency=((0, 1.0),), quota=QUOTA, tokens=tokens, retry_after=retry_after)
    rows = int(QUOTA / MEAN * SECONDS / 60)
    budget = Budget(QUOTA, cost=lambda row: guess * tokens(row), usage=tokens)
    found = outcome(service, rows, processes=PROCESSES, budget=budget, total_timeout=600)
    assert found.failed == 0
    assert found.goodput * MEAN * 60 >= 0.9 * QUOTA
    assert found.calls <= 1.2
    assert service.rejections <= 0.05 * rows


def test_without_a_budget_the_quota_rejects_calls() -> None:
    """Control: without a budget, the same service rejects calls."""
    service = Service(latency=((0, 1.0),), quota=QUOTA, tokens=tokens)
    outcome(service, 2000, processes=PROCESSES, total_timeout=600)
    assert service.rejections > 100


def test_below_the_quota_no_call_is_rejected_and_none_waits() -> None:
    """If the calls in flight limit the job to 80 % of the quota, the budget hardly delays the job."""
    in_flight = int(0.8 * QUOTA / 60 / MEAN)
    service = Service(latency=((0, 1.0),), quota=QUOTA, tokens=tokens)
    budget = Budget(QUOTA, cost=tokens, usage=tokens)
    found = outcome(
        service, 1000, processes=PROCESSES, budget=budget, max_in_flight=in_flight // PROCESSES, total_timeout=600
    )
    assert service.rejections == 0
    free = outcome(Service(latency=((0, 1.0),)), 1000, processes=PROCESSES, max_in_flight=in_flight // PROCESSES)
    assert found.goodput >= 0.95 * free.goodput


@pytest.mark.parametrize("per_second", [3, 20, 200])
def test_a_leased_rate_is_used_and_not_exceeded(per_second: float) -> None:
    """A service with a token bucket of one second receives at most a few calls above its limit."""
    rows = int(60 * per_second)
    service = Service(rate=((0, per_second),))
    found = outcome(service, rows, processes=PROCESSES, rate_limit=per_second)
    assert found.goodput >= 0.93 * per_second
    assert service.rejections <= 0.01 * rows
    assert found.failed == 0


def test_calls_in_flight_of_a_job_protect_a_small_service() -> None:
    """A service that rejects more than twelve concurrent calls receives at most twelve."""
    service = Service(capacity=((0, 12),), beyond="reject")
    found = outcome(service, 3000, processes=PROCESSES, max_in_flight_job=12)
    assert service.most_in_flight <= 12
    assert found.calls == 1
    assert found.goodput >= 0.85 * 12 / 0.03


@pytest.mark.parametrize(
    ("limit", "cause"),
    [
        ({"budget": Budget(QUOTA, cost=tokens)}, "budget"),
        ({"max_in_flight_job": 12}, "max_in_flight_job"),
        ({"rate_limit": 50}, "rate_limit"),
        ({"budget": Budget(1e9, cost=tokens), "max_in_flight": 10}, "max_in_flight"),
    ],
)
def test_the_limit_of_the_job_is_named(limit: dict[str, Any], cause: str) -> None:
    """Most of the time is assigned to the limit that constrains the calls in flight."""
    found = outcome(Service(latency=((0, 0.2),)), 2000, processes=PROCESSES, total_timeout=3600, **limit)
    assert found.failed == 0
    assert found.limited[cause] >= 0.8 * sum(found.limited.values())


def test_a_call_above_the_budget_fails_at_once() -> None:
    """A call larger than the whole limit could never start, so its row fails. All other rows are answered."""
    service = Service()
    found = outcome(service, 3, budget=Budget(100, cost=lambda row: 1000 if row == 1 else 1))
    assert found.failed == 1
    assert service.calls == 2


def test_an_invalid_estimate_fails_the_row() -> None:
    found = outcome(Service(), 3, budget=Budget(100, cost=lambda row: -1 if row == 1 else 1))
    assert found.failed == 1


def test_usage_that_fails_is_reported_and_the_estimate_counts() -> None:
    share = JobShare(JobLimits(None, 100.0), Budget(100, cost=float, usage=lambda answer: answer["tokens"]))
    (chunk,) = chunks_of([5])
    call = Call(RowBatch(chunk, 0.0, RowBuffer(1, 1, 1, lambda: None)), 0)
    assert share.cost_of(call) == [5]

    async def one() -> None:
        running = asyncio.ensure_future(share.run(lambda ask: leased(ledger, 1, ask)))
        share.spent(await share.wait([5.0], again=False), {}, several=False)
        running.cancel()

    ledger = Ledger(JobLimits(None, 100.0))
    asyncio.run(one())
    assert share.used == 5
    assert "KeyError: 'tokens'" in share.problem


def test_rate_and_number_are_the_same() -> None:
    assert Limits(rate_limit=Rate(5)).requests_per_second == Limits(rate_limit=5).requests_per_second == 5


async def granted(limit: float, large: float, seconds: float, small_slots: int = 1) -> tuple[list[float], Job]:
    """Return how long one task's successive large calls wait while other tasks make small calls at full load."""
    job = Job(JobLimits(None, limit), small_slots, 40.0, (300, 300), (1, 1), 0.0, 0.0, 0.5, 1)
    clock = asyncio.get_running_loop().time
    waits: list[float] = []

    async def large_calls() -> None:
        # Begin after the other tasks have used the limit.
        await asyncio.sleep(MINUTE)
        share = JobShare(job.limits, Budget(limit, cost=float), clock)
        running = asyncio.ensure_future(share.run(lambda ask: leased(job.ledger, "large", ask)))
        try:
            while True:
                began = clock()
                await share.wait([large], again=False)
                job.uses.append((clock(), large))
                waits.append(clock() - began)
                share.ended()
        finally:
            running.cancel()

    others = asyncio.ensure_future(job.run(seconds))
    await asyncio.sleep(0)
    one = asyncio.ensure_future(large_calls())
    await others
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    return waits, job


@pytest.mark.parametrize(("part", "longest"), [(0.05, 10), (0.5, 65), (1.0, 130)])
def test_a_large_call_does_not_starve(part: float, longest: float) -> None:
    """A call starts as soon as the limit has capacity for it, however many small calls other tasks make."""
    limit, seconds = 90_000.0, 330.0
    (waits, job), _ = run(granted(limit, part * limit, seconds, small_slots=2))
    assert waits
    assert max(waits) <= longest
    assert most_in_a_window(job.uses, MINUTE) <= limit + 1e-6
    # Small calls use the capacity that is too small for a large call. If a large call needs the whole limit, no
    # capacity remains.
    if part < 1:
        assert sum(amount for _, amount in job.uses) >= 0.9 * limit * seconds / MINUTE
