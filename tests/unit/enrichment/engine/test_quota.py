"""Tests of the remaining calls that a service reports in the headers of its answers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from enrich_engine import Run, definition
from multidict import CIMultiDict
from virtual_engine import VirtualRun, virtual_now, virtual_process
from virtual_time import run

from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.ledger import JobLimits
from spark_events.enrichment.engine.quota import ReportedQuota
from spark_events.enrichment.engine.rate_headers import lower_case
from spark_events.enrichment.settings import Auto

WALL = 1_700_000_000.0


def of_loop() -> ReportedQuota:
    """Return a quota whose clock is that of the running loop."""
    return ReportedQuota(asyncio.get_running_loop().time, lambda: WALL)


def limit(remaining: int, seconds: float = 7) -> dict[str, str]:
    return {"x-ratelimit-remaining": str(remaining), "x-ratelimit-reset": str(seconds)}


def started(quota: ReportedQuota, most: int = 100) -> int:
    """Start attempts that do not end, while the quota admits them, and return their number."""
    attempts = 0
    while attempts < most and (not quota.limits or quota.reserve()):
        if quota.limits:
            quota.redeem()
        quota.begin()
        attempts += 1
    return attempts


def admitted(headers: dict[str, str], *, others: int = 0) -> tuple[int, float]:
    """Return how many attempts a report admits, and the seconds until the next one; at most 100 and 100 s."""

    async def count() -> tuple[int, float]:
        quota = of_loop()
        number = quota.begin()
        for _ in range(others):
            quota.begin()
        quota.report(number, lower_case(headers))
        quota.end(number)
        attempts = started(quota)
        if attempts < 100:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(quota.wait(again=False), 100)
        return attempts, virtual_now() if attempts < 100 else 100

    return run(count())[0]


@pytest.mark.parametrize(
    ("headers", "attempts", "seconds"),
    [
        ({"x-ratelimit-remaining": "3", "x-ratelimit-reset": "7"}, 3, 7),
        ({"X-RateLimit-Remaining": "3", "X-RateLimit-Reset": str(WALL + 7)}, 3, 7),
        ({"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "1m1s"}, 3, 61),
        ({"RateLimit-Remaining": "3", "RateLimit-Reset": "7"}, 3, 7),
        ({"RateLimit": "limit=10, remaining=3, reset=7"}, 3, 7),
        ({"RateLimit": '"minute";r=3;t=7, "hour";r=50;t=70'}, 3, 7),
        ({"RateLimit": '"minute";r=50;t=7, "hour";r=3;t=70'}, 3, 70),
        ({"RateLimit": '"minute";r=0;t=7, "hour";r=0;t=70'}, 0, 70),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "7s"}, 0, 7),
        ({"x-ratelimit-remaining-tokens": "3", "x-ratelimit-reset-tokens": "7s"}, 100, 100),
        ({"x-ratelimit-remaining-requests": "-2", "x-ratelimit-reset-requests": "7s"}, 0, 7),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "-5"}, 1, 100),
        ({"x-ratelimit-remaining": "3"}, 100, 100),
        ({"x-ratelimit-remaining": "few", "x-ratelimit-reset": "7"}, 100, 100),
        ({"Retry-After": "7"}, 100, 100),
        ({}, 100, 100),
    ],
)
def test_the_lowest_reported_limit_admits_attempts(headers: dict[str, str], attempts: int, seconds: float) -> None:
    """Attempts are admitted up to the number of remaining calls; the next attempt waits for the reset.

    After a reset in the past, one attempt is in flight, because one was before.
    """
    found, until = admitted(headers)
    assert found == attempts
    assert until == pytest.approx(seconds, abs=0.01)


def test_other_attempts_in_flight_are_subtracted() -> None:
    """A report might not include the other attempts in flight."""
    assert admitted(limit(5))[0] == 5
    assert admitted(limit(5), others=3)[0] == 2


def test_a_report_that_is_out_of_date_is_ignored() -> None:
    """The report of an earlier attempt counts only if it contains fewer remaining calls."""

    async def left() -> list[bool]:
        quota = of_loop()
        numbers = [quota.begin() for _ in range(2)]
        found = []
        for number, remaining in ((numbers[1], 3), (numbers[0], 2), (numbers[0], 9), (numbers[1], 9)):
            quota.report(number, limit(remaining))
            found.append(quota.reserve())
            if found[-1]:
                quota.release()
        return found

    assert run(left())[0] == [True, False, False, True]


def test_calls_remain_available_if_answers_arrive_in_reverse_order() -> None:
    """If the newest answer arrives first, attempts that end later free their part of the remaining calls."""

    async def left() -> int:
        quota = of_loop()
        numbers = [quota.begin() for _ in range(20)]
        for number in reversed(numbers):
            quota.report(number, limit(100 - number))
            quota.end(number)
        return started(quota)

    assert run(left())[0] == 80


def test_after_a_reset_the_number_of_accepted_attempts_limits_the_attempts_in_flight() -> None:
    """After a reset, as many attempts are in flight as the service has accepted; each ended attempt admits two."""

    async def counts() -> tuple[int, int]:
        quota = of_loop()
        numbers = [quota.begin() for _ in range(6)]
        assert not quota.rejected()
        quota.report(numbers[-1], limit(0))
        assert quota.rejected()
        for number in numbers:
            quota.end(number)
        assert not quota.reserve()
        assert await quota.wait(again=False)
        quota.redeem()
        number = quota.begin()
        first = 1 + started(quota)
        for _ in range(2):
            quota.end(number)
        return first, started(quota)

    attempts, seconds = run(counts())
    assert attempts == (5, 2)
    assert seconds == pytest.approx(7, abs=0.01)


def test_a_limit_of_tokens_does_not_limit_attempts_after_its_reset() -> None:
    """After the reset of a limit in another unit, no limit is known."""

    async def count() -> int:
        quota = of_loop()
        quota.report(quota.begin(), {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "7s"})
        assert not quota.reserve()
        await quota.wait(again=False)
        quota.redeem()
        return started(quota)

    assert run(count())[0] == 100


@pytest.mark.parametrize("used", [(10, 30), (30, 30)])
def test_the_share_of_this_process_is_learned(used: tuple[int, int]) -> None:
    """If other processes have used two thirds of a limit, this process uses a third of the remaining calls."""
    own, total = used

    async def count() -> int:
        quota = of_loop()
        for call in range(own):
            quota.report(number := quota.begin(), limit(29 - call * (total - 1) // (own - 1)))
            quota.end(number)
        await quota.wait(again=False)
        quota.redeem()
        quota.report(number := quota.begin(), limit(29))
        quota.end(number)
        return started(quota)

    assert run(count())[0] == (29 if own == total else 29 // 3)


def test_retries_start_before_first_attempts() -> None:
    """Waiting retries start before waiting first attempts, and new attempts last; cancelled attempts are skipped."""

    async def order() -> list[str]:
        quota = of_loop()
        quota.report(number := quota.begin(), limit(0))
        quota.end(number)
        names: list[str] = []

        async def attempt(name: str, *, again: bool) -> None:
            assert await quota.wait(again=again)
            quota.redeem()
            number = quota.begin()
            names.append(name)
            await asyncio.sleep(1)
            quota.end(number)

        waiting = [asyncio.ensure_future(attempt(f"first {number}", again=False)) for number in range(3)]
        waiting.append(asyncio.ensure_future(attempt("retry", again=True)))
        await asyncio.sleep(1)
        waiting[0].cancel()
        await asyncio.sleep(6.5)
        assert not quota.reserve()
        await asyncio.wait(waiting)
        return names

    assert run(order())[0] == ["retry", "first 1", "first 2"]


def test_a_cancelled_reservation_is_passed_on() -> None:
    """If an attempt is cancelled when the quota admits it, the next attempt is admitted."""

    async def second() -> bool:
        quota = of_loop()
        quota.report(number := quota.begin(), limit(1))
        waiting = [asyncio.ensure_future(quota.wait(again=False)) for _ in range(2)]
        await asyncio.sleep(1)
        quota.end(number)
        waiting[0].cancel()
        return await waiting[1]

    admitted, seconds = run(second())
    assert admitted
    assert seconds == pytest.approx(1, abs=0.01)


def test_a_longer_pause_ends_the_wait() -> None:
    """If a report prolongs the pause, waiting attempts return without a reservation, to compare their time limits."""

    async def outcome() -> bool:
        quota = of_loop()
        quota.report(quota.begin(), limit(0))
        waiting = asyncio.ensure_future(quota.wait(again=False))
        await asyncio.sleep(1)
        quota.report(quota.begin(), limit(0, 60))
        return await waiting

    is_reserved, seconds = run(outcome())
    assert not is_reserved
    assert seconds == pytest.approx(1, abs=0.01)


def test_headers_may_be_passed_from_a_thread() -> None:
    """A function may call a blocking client in a thread, and pass the headers there."""
    most = 0
    lock = threading.Lock()
    running = 0

    async def fn(row: int, ctx: Any) -> int:
        def call() -> int:
            nonlocal most, running
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.01)  # the call
            ctx.read_limits(limit(3, 0.2))
            with lock:
                running -= 1
            return row

        return await asyncio.to_thread(call)

    assert Run(fn, max_in_flight=2).of(range(20)) == list(range(20))
    assert most <= 3


def test_a_thread_with_its_own_loop_may_pass_headers() -> None:
    """Repeated RateLimit headers count as one list, also if a thread with another event loop passes them."""
    headers = CIMultiDict([("RateLimit", '"minute";r=0;t=1'), ("RateLimit", '"hour";r=50;t=3600')])
    times: list[float] = []

    async def fn(row: int, ctx: Any) -> int:
        times.append(time.monotonic())

        async def call() -> None:
            ctx.read_limits(headers)

        await asyncio.to_thread(asyncio.run, call())
        return row

    assert Run(fn, max_in_flight=1).of(range(2)) == [0, 1]
    assert times[1] - times[0] >= 1


def test_an_attempt_that_waited_for_the_rate_needs_a_reservation() -> None:
    """Attempts that wait for ``rate_limit`` when the limit becomes known do not exceed the limit."""
    service = Limited(5, 0.5, virtual_now)
    rejected: list[int] = []

    async def fn(row: int, ctx: Any) -> int:
        remaining, seconds = service.call()
        ctx.read_limits(limit(max(0, remaining), seconds))
        rejected.extend([row] if remaining < 0 else [])
        return row

    assert VirtualRun(fn, job=JobLimits(50), max_in_flight=30).of(range(30)) == list(range(30))
    assert rejected == []


def test_an_abandoned_attempt_does_not_count_as_in_flight() -> None:
    """After an attempt that does not end after its cancellation, the other rows of this and of the next run end."""

    async def fn(row: int, ctx: Any) -> int:
        ctx.read_limits(limit(1, 0.2))
        if row == 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await asyncio.sleep(20)
        return row

    async def batches() -> tuple[list[Any], list[Any]]:
        options: dict[str, Any] = {
            "made": definition(),
            "process": virtual_process(),
            "max_in_flight": 2,
            "timeout": 0.5,
        }
        first = await VirtualRun(fn, retry=None, **options).answers(range(4))
        second = await VirtualRun(fn, retry=None, **options).answers([5, 6])
        await asyncio.sleep(60)  # until the abandoned attempt has ended
        return [answer for answer in first if not isinstance(answer, RowFailure)], second

    assert run(batches())[0] == ([1, 2, 3], [5, 6])


def test_rows_wait_for_a_small_limit_that_is_reset_within_total_timeout() -> None:
    """After a short batch, a larger batch waits for its own reports, and no row fails because of a guess."""

    async def batches() -> tuple[list[Any], list[Any]]:
        service = Limited(100, 3.0, virtual_now)

        async def fn(row: int, ctx: Any) -> int:
            await asyncio.sleep(0.001)
            remaining, seconds = service.call()
            ctx.read_limits(limit(max(0, remaining), seconds))
            assert remaining >= 0
            return row

        options: dict[str, Any] = {"made": definition(), "process": virtual_process(), "total_timeout": 2.0}
        short = await VirtualRun(fn, **options).answers(range(3))
        await asyncio.sleep(service.reset_in() + 0.01)  # the service's next period
        return short, await VirtualRun(fn, **options).answers(range(60))

    assert run(batches())[0] == (list(range(3)), list(range(60)))


def test_a_reset_after_total_timeout_fails_the_row() -> None:
    """If the limit is reset only after total_timeout, rows fail at once, with the seconds until the reset."""

    async def fn(row: int, ctx: Any) -> int:
        ctx.read_limits({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "3600"})
        return row

    answers = Run(fn, max_in_flight=1, total_timeout=60.0).of(range(3))
    assert answers[0] == 0
    for answer in answers[1:]:
        assert isinstance(answer, RowFailure)
        assert answer.kind == "throttled"
        assert "the destination asks to wait another 3" in answer.message


def test_headers_of_another_type_are_refused() -> None:
    """An argument that is not a mapping fails the row; the message names the argument and the expected type."""

    async def fn(row: int, ctx: Any) -> int:
        ctx.read_limits("x-ratelimit-remaining: 3")
        return row

    (failure,) = Run(fn).of([0])
    assert failure.type == "TypeError"
    assert failure.message == "ctx.read_limits got str; expected the response's headers, a mapping"


class Limited:
    """HTTP service that accepts a number of calls in each period, counted from the first call."""

    def __init__(self, calls: int = 10, seconds: float = 0.5, clock: Callable[[], float] = time.monotonic) -> None:
        self.rejections = 0
        self._limit, self._seconds, self._clock = calls, seconds, clock
        self._window, self._calls, self._began = 0, 0, 0.0

    def reset_in(self) -> float:
        """Return the seconds until the next period."""
        return self._seconds - (self._clock() - self._began) % self._seconds

    def call(self) -> tuple[int, float]:
        """Count a call, and return the remaining calls, below 0 for a rejection, and the seconds until the reset."""
        now = self._clock()
        self._began = self._began or now
        window = int((now - self._began) / self._seconds)
        if window != self._window:
            self._window, self._calls = window, 0
        self._calls += 1
        return self._limit - self._calls, self._began + self._seconds * (window + 1) - now

    async def answer(self, request: web.Request) -> web.Response:
        remaining, reset = self.call()
        headers = {
            "x-ratelimit-remaining-requests": str(max(0, remaining)),
            "x-ratelimit-reset-requests": f"{reset:.6f}s",
        }
        if remaining < 0:
            self.rejections += 1
            raise web.HTTPTooManyRequests(headers=headers)
        return web.json_response({"row": int(request.match_info["row"])}, headers=headers)


@contextlib.contextmanager
def serving(answer: Callable[[web.Request], Awaitable[web.Response]]) -> Iterator[str]:
    """Yield the address of a running HTTP service."""
    ready: Future[tuple[str, Callable[[], object]]] = Future()

    async def serve() -> None:
        app, over = web.Application(), asyncio.Event()
        app.router.add_get("/{row}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        stop, loop = over.set, asyncio.get_running_loop()
        ready.set_result((f"http://127.0.0.1:{runner.addresses[0][1]}", lambda: loop.call_soon_threadsafe(stop)))
        await over.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    address, end = ready.result(60)
    try:
        yield address
    finally:
        end()
        thread.join()


@pytest.mark.parametrize("reads", [True, False])
def test_a_service_that_reports_its_limit_rejects_no_call(reads: bool) -> None:
    """With the headers of its answers, a real service rejects no call; without them, it does."""
    service = Limited()

    with serving(service.answer) as address:

        @contextlib.asynccontextmanager
        async def open_session() -> AsyncIterator[aiohttp.ClientSession]:
            async with aiohttp.ClientSession(address) as session:
                yield session

        async def fn(row: int, ctx: Any) -> int:
            async with ctx.resource.get(f"/{row}") as answer:
                if reads:
                    ctx.read_limits(answer.headers)
                answer.raise_for_status()
                return int((await answer.json())["row"])

        answers = Run(fn, resource=open_session, max_in_flight=Auto(initial=5)).of(range(45))
    assert answers == list(range(45))
    assert (service.rejections == 0) is reads
