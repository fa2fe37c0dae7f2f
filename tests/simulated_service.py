"""Simulated services in virtual time, and the pool that calls them, to measure goodput and calls per row."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import random
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from enrich_engine import chunks_of, definition
from virtual_time import run

from spark_events.enrichment.driver.rate import limits_of
from spark_events.enrichment.engine.assembly import assemble
from spark_events.enrichment.engine.buffer import RowBuffer
from spark_events.enrichment.engine.calls import Context, RowBatch
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.keys import HotKeys
from spark_events.enrichment.engine.ledger import Ledger, leased
from spark_events.enrichment.engine.pool import Pool
from spark_events.enrichment.engine.process import LruCache
from spark_events.enrichment.engine.run import Signals
from spark_events.enrichment.engine.statistics import EngineCounts
from spark_events.enrichment.plan import Plan

__all__ = ["Outcome", "RejectedError", "Service", "State", "outcome"]


class RejectedError(Exception):
    """Rejection by the service, like an exception raised by an HTTP client."""

    def __init__(self, status: int, retry_after: float | None = None) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


Steps = Sequence[tuple[float, float]]


def at(steps: Steps, now: float) -> float:
    """Return a step function's value at time ``now``. Each step is a start time and the value from this time on."""
    return [value for start, value in steps if start <= now][-1]


@dataclasses.dataclass
class Service:
    """Simulated service.

    Attributes:
        latency: seconds per call, by time.
        capacity: concurrent calls that do not increase the latency, by time.
        beyond: behavior beyond the capacity: "slower": each call takes longer by ``exponent``; "queue": calls wait;
            "reject": the service answers 503. With "smooth", the latency increases with every concurrent call.
        exponent: exponent of the slowdown.
        spread: standard deviation of the latency's logarithm.
        tail: share and factor of slow calls.
        rate: allowed calls per second, by time; None: no limit. Further calls get 429.
        period: seconds of the windows in which calls are counted for ``rate``; 0: a token bucket.
        retry_after: seconds in the header ``Retry-After``; None: no header.
        reports: when :meth:`reporting` reads the remaining calls for its headers: "arrival" or "answer" of the call.
        neighbours: calls in flight from other clients, by time.
        flaky: share of calls that are rejected at random.
        quota: tokens actually used in any minute; None: no limit. Further calls get 429.
        tokens: returns the tokens that a row uses.
        seed: seed of the random numbers.
    """

    latency: Steps = ((0, 0.03),)
    capacity: Steps = ((0, 1e9),)
    beyond: str = "slower"
    exponent: float = 2.0
    spread: float = 0.05
    tail: tuple[float, float] = (0.0, 1.0)
    rate: Steps | None = None
    period: float = 0.0
    retry_after: float | None = None
    reports: str = "arrival"
    neighbours: Steps = ((0, 0),)
    flaky: float = 0.0
    quota: float | None = None
    tokens: Callable[[Any], float] = float
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.in_flight = self.calls = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._tokens, self._filled = -1.0, 0.0
        self._busy = 0
        self.most_in_flight = self.rejections = 0
        self._used: deque[tuple[float, float]] = deque()
        self._sum = 0.0

    def _exceeds_quota(self, now: float, tokens: float) -> bool:
        """Return whether the quota rejects a call."""
        if self.quota is None:
            return False
        while self._used and self._used[0][0] <= now - 60:
            self._sum -= self._used.popleft()[1]
        if self._sum + tokens > self.quota * (1 + 1e-9):
            return True
        self._used.append((now, tokens))
        self._sum += tokens
        return False

    def _limits(self, now: float) -> bool:
        """Return whether the rate limit rejects a call."""
        if self.rate is None:
            return False
        rate = at(self.rate, now)
        if self._tokens < 0:
            self._tokens, self._filled = rate, now
        if self.period:
            if int(now / self.period) > int(self._filled / self.period):
                self._tokens, self._filled = rate * self.period, now
        else:
            self._tokens, self._filled = min(rate, self._tokens + (now - self._filled) * rate), now
        if self._tokens < 1:
            return True
        self._tokens -= 1
        return False

    def _serve(self, now: float) -> None:
        """Start waiting calls while the service has capacity."""
        while self._waiting and self._busy + at(self.neighbours, now) < at(self.capacity, now):
            self._busy += 1
            self._waiting.popleft().set_result(None)

    def headers(self, now: float) -> dict[str, str]:
        """Return the headers that report the rate limit."""
        assert self.rate is not None
        rate = at(self.rate, now)
        left = (int(now / self.period) + 1) * self.period - now if self.period else (rate - self._tokens) / rate
        return {"x-ratelimit-remaining": str(int(self._tokens)), "x-ratelimit-reset": str(left)}

    async def reporting(self, row: Any, ctx: Context) -> Any:
        """Call the service, and pass the headers of the answer to the engine."""
        loop = asyncio.get_running_loop()
        headers: dict[str, str] = {}
        try:
            return await self.call(row, headers)
        finally:
            ctx.read_limits(headers if self.reports == "arrival" else self.headers(loop.time()))

    async def call(self, row: Any, headers: dict[str, str] | None = None) -> Any:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self.calls += 1
        is_limited = self._limits(now)
        if headers is not None:
            headers.update(self.headers(now))
        if is_limited or self._exceeds_quota(now, self.tokens(row)):
            self.rejections += 1
            await asyncio.sleep(0.002)
            raise RejectedError(429, self.retry_after)
        if self.random.random() < self.flaky:
            await asyncio.sleep(0.002)
            raise RejectedError(503)
        seconds = at(self.latency, now) * self.random.lognormvariate(0, self.spread)
        if self.random.random() < self.tail[0]:
            seconds *= self.tail[1]
        capacity, others = at(self.capacity, now), at(self.neighbours, now)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            crowd = (self.in_flight + others) / capacity
            if crowd > 1 and self.beyond == "reject":
                await asyncio.sleep(0.002)
                raise RejectedError(503, self.retry_after)
            if self.beyond == "smooth":
                seconds *= 1 + crowd
            if crowd > 1 and self.beyond == "slower":
                seconds *= crowd**self.exponent
            if self.beyond == "queue":
                if self._waiting or self._busy + others >= capacity:
                    waiting: asyncio.Future[None] = loop.create_future()
                    self._waiting.append(waiting)
                    await waiting
                else:
                    self._busy += 1
                try:
                    await asyncio.sleep(seconds)
                finally:
                    self._busy -= 1
                    self._serve(loop.time())
            else:
                await asyncio.sleep(seconds)
        finally:
            self.in_flight -= 1
        return row


@dataclasses.dataclass(frozen=True, order=True)
class Outcome:
    """Result of a simulation.

    Attributes:
        goodput: answered rows per second.
        calls: calls per answered row.
        failed: rows without an answer.
        limited: seconds, summed over all processes, by the cause that limited the calls in flight.
    """

    goodput: float
    calls: float
    failed: int
    limited: Mapping[str, float] = dataclasses.field(compare=False)


class State:
    """The part of a worker process that the pool needs."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        for name in ("windows", "allowed", "quotas", "gates", "breakers", "rates", "caches", "ledgers"):
            setattr(self, name, LruCache())


def outcome(
    service: Service,
    rows: int,
    *,
    processes: int = 1,
    one_executor: bool = False,
    idle_processes: int = 0,
    seconds: float = 3600,
    reporting: bool = False,
    **plan: Any,
) -> Outcome:
    """Simulate worker processes that call a service for a number of rows or seconds.

    Each process belongs to its own executor. If ``one_executor``, all belong to one executor and share a window. One
    ledger leases ``rate_limit``, ``budget`` and ``max_in_flight_job`` to the processes. ``idle_processes`` are further
    processes without rows. With ``reporting``, the calls pass the headers of their answers to the engine.
    """
    random.seed(service.seed)
    fn = service.reporting if reporting else service.call
    with tempfile.TemporaryDirectory() as directory:
        executor_directory = Path(directory) if one_executor else None
        return run(_simulate(service, fn, rows, processes, idle_processes, executor_directory, seconds, plan))[0]


async def _simulate(
    service: Service,
    fn: Callable[..., Any],
    rows: int,
    processes: int,
    idle_processes: int,
    executor_directory: Path | None,
    seconds: float,
    plan: dict[str, Any],
) -> Outcome:
    loop = asyncio.get_running_loop()
    batches: list[RowBatch] = []
    working: dict[Pool, RowBatch] = {}
    idle: list[Pool] = []
    stopping: list[asyncio.Task[None]] = []
    limited: Counter[str] = Counter()
    counted: list[EngineCounts] = []
    over = asyncio.Event()
    limits = limits_of(Plan(fn, **plan))
    same = definition()
    ledger = Ledger(limits, loop.time)
    sharing: list[asyncio.Task[None]] = []

    def fail(error: BaseException) -> None:
        raise AssertionError("the engine failed") from error

    def look() -> None:
        for pool, batch in list(working.items()):
            if not batch.left:
                del working[pool]
                stopping.append(loop.create_task(pool.stop()))
        if not working:
            over.set()

    for number in range(processes + idle_processes):
        made = Plan(fn, executors=processes if executor_directory is None else 1, **plan)
        counts = EngineCounts()
        counted.append(counts)
        signals = Signals(0, lambda: None, lambda: None, fail)
        state: Any = State(executor_directory)
        share = JobShare(limits, made.budget, loop.time) if limits else None
        if share is not None:
            sharing.append(loop.create_task(share.run(functools.partial(leased, ledger, number))))
        args = (made, same, state, None, None, 0.0, counts, HotKeys(20), signals, None, loop.time, share)
        pool: Pool = assemble(*args)
        if number >= processes:
            pool.start()
            idle.append(pool)
            continue
        (chunk,) = chunks_of(range(rows // processes), rows)
        batch = RowBatch(chunk, 0.0, RowBuffer(rows, 1 << 40, rows, look))
        batches.append(batch)
        working[pool] = batch
        pool.start()
        pool.admit(batch)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(over.wait(), seconds)
    took = loop.time()
    answers = [answer for batch in batches for answer in batch.answers]
    failed = [answer for answer in answers if isinstance(answer, RowFailure)]
    done = sum(isinstance(answer, int) for answer in answers)
    await asyncio.gather(*stopping, *(pool.stop() for pool in (*working, *idle)))
    for task in sharing:
        task.cancel()
    await asyncio.gather(*sharing, return_exceptions=True)
    for counts in counted:
        limited.update(counts.limited)
    return Outcome(done / took, service.calls / max(1, done), len(failed), limited)
