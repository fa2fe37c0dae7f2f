"""Simulated services in virtual time, and the pool that calls them, to measure goodput and calls per row."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from enrich_engine import chunks_of, definition
from virtual_engine import Mailbox, in_thread, virtual_process
from virtual_time import run

from spark_events.enrichment.driver.rate import limits_of
from spark_events.enrichment.engine.calls import Chunk
from spark_events.enrichment.engine.context import Context
from spark_events.enrichment.engine.engine import Engine
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.job_state import JobState, Send, TaskState
from spark_events.enrichment.engine.ledger import Ask, JobLimits, Lease, Ledger, leased
from spark_events.enrichment.engine.run import Definition
from spark_events.enrichment.plan import Plan

__all__ = ["Outcome", "RejectedError", "Service", "outcome"]


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
        burst: capacity of the token bucket; None: the calls of one second.
        retry_after: seconds in the header ``Retry-After``; None: no header; "reset": until the next window.
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
    burst: float | None = None
    retry_after: float | Literal["reset"] | None = None
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
        burst = rate * (self.period or 1) if self.burst is None else self.burst
        if self._tokens < 0:
            self._tokens, self._filled = burst, now
        if self.period:
            if int(now / self.period) > int(self._filled / self.period):
                self._tokens, self._filled = rate * self.period, now
        else:
            self._tokens, self._filled = min(burst, self._tokens + (now - self._filled) * rate), now
        if self._tokens < 1:
            return True
        self._tokens -= 1
        return False

    def _asked(self, now: float) -> float | None:
        """Return the value of ``Retry-After``."""
        if self.retry_after != "reset":
            return self.retry_after
        return (int(now / self.period) + 1) * self.period - now

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
            raise RejectedError(429, self._asked(now))
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
                raise RejectedError(503, self._asked(now))
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


#: Seconds that a message between a worker process and the driver takes.
MESSAGE_SECONDS = 0.001


def outcome(
    service: Service,
    rows: int,
    *,
    processes: int = 1,
    shares: bool = False,
    idle_processes: int = 0,
    seconds: float = 3600,
    reporting: bool = False,
    **plan: Any,
) -> Outcome:
    """Simulate worker processes that call a service for a number of rows or seconds.

    If ``shares``, the processes share the window and the allowed rate of the job, as if they were connected to the
    driver; otherwise each has its own. One ledger leases ``rate_limit``, ``budget`` and ``max_in_flight_job`` to the
    processes. ``idle_processes`` are further processes without rows. With ``reporting``, the calls pass the headers of
    their answers to the engine.
    """
    random.seed(service.seed)
    fn = service.reporting if reporting else service.call
    return run(_simulate(service, fn, rows, processes, idle_processes, shares, seconds, plan))[0]


async def _simulate(
    service: Service,
    fn: Callable[..., Any],
    rows: int,
    processes: int,
    idle_processes: int,
    shares: bool,
    seconds: float,
    plan: dict[str, Any],
) -> Outcome:
    loop = asyncio.get_running_loop()
    made = Plan(fn, tasks=processes, **plan)
    limits, same = limits_of(made), definition()
    ledger = Ledger(limits, loop.time)
    is_fixed = made.window.min == made.window.max
    state = JobState(None if is_fixed else made.window, loop.time) if shares else None
    workers = [
        _Worker(made, same, limits, functools.partial(leased, ledger, number), state)
        for number in range(processes + idle_processes)
    ]
    working, idle = workers[:processes], workers[processes:]
    runs = [asyncio.ensure_future(in_thread(one.wait_for_rows)) for one in idle]
    runs += [asyncio.ensure_future(in_thread(functools.partial(one.call, rows // processes))) for one in working]
    await asyncio.wait(runs[idle_processes:], timeout=seconds)
    took = loop.time()
    for run_ in runs:
        if run_.done():
            run_.result()
    answers = [answer for one in working for answer in one.answers_so_far()]
    for one in workers:
        one.stop()
    await asyncio.gather(*runs, *(one.sharing for one in workers if one.sharing), return_exceptions=True)
    failed = [answer for answer in answers if isinstance(answer, RowFailure)]
    done = sum(isinstance(answer, int) for answer in answers)
    limited: Counter[str] = Counter()
    for one in workers:
        limited.update(one.engine.statistics()["limited"])
    return Outcome(done / took, service.calls / max(1, done), len(failed), limited)


class _Worker:
    """A worker process with one task."""

    def __init__(
        self,
        plan: Plan,
        made: Definition,
        limits: JobLimits,
        lease: Callable[[Ask], Awaitable[Lease]],
        job: JobState | None,
    ) -> None:
        share = self.sharing = shared = None
        process = virtual_process()
        if limits:
            share = JobShare(limits, plan.budget, process.clock)
            self.sharing = asyncio.ensure_future(share.run(lease))
        if job is not None:
            bounds = None if job.window is None else plan.task_window
            shared = TaskState(bounds, process.clock)
            receive = self._later(shared.receive)
            shared.connect(self._later(lambda part, report: job.report(self, part, report, receive)))
        self.engine = Engine(plan, made, share=share, shared=shared, process=process)
        self._job = job
        self._input = Mailbox()
        self._answers: list[Any] = []

    def call(self, rows: int) -> None:
        """Make the calls for a number of rows."""
        for _, answers in self.engine.run(chunks_of(range(rows), rows)):
            self._answers += answers
        if self._job is not None:
            # The connection to the driver ends with the task.
            self._job.leave(self)

    @staticmethod
    def _later(deliver: Send) -> Send:
        """Return a function that delivers messages after the time that a message takes."""
        loop = asyncio.get_running_loop()

        def send(part: str, body: Sequence[Any]) -> None:
            loop.call_later(MESSAGE_SECONDS, deliver, part, body)

        return send

    def wait_for_rows(self) -> None:
        """Run without rows until :meth:`stop`."""

        def no_chunks() -> Iterator[Chunk]:
            self._input.get()
            yield from ()

        list(self.engine.run(no_chunks()))

    def answers_so_far(self) -> list[Any]:
        return self._answers + [answer for _, answers in self.engine.unfinished() for answer in answers]

    def stop(self) -> None:
        self.engine.cancel()
        self._input.put(None)
        if self.sharing is not None:
            self.sharing.cancel()
