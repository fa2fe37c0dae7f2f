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
from enrich_engine import Run
from virtual_time import run

from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.quota import ReportedQuota
from spark_events.enrichment.settings import Auto

WALL = 1_700_000_000.0


def admitted(headers: dict[str, str], *, in_flight: int = 1) -> tuple[int, float]:
    """Return how many attempts a report admits, and the seconds until its reset; at most 100 and 100 s."""

    async def count() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        quota = ReportedQuota(loop.time, lambda: WALL)
        quota.in_flight = lambda: in_flight
        quota.report(quota.begin(), headers)
        attempts = 0
        while quota.admits() and attempts < 100:
            quota.begin()
            attempts += 1
        until = loop.time() + 100
        if attempts < 100:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(quota.wait(again=False), 100)
                until = loop.time()
        return attempts, until

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
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "-5"}, 100, 100),
        ({"x-ratelimit-remaining": "3"}, 100, 100),
        ({"x-ratelimit-remaining": "few", "x-ratelimit-reset": "7"}, 100, 100),
        ({"Retry-After": "7"}, 100, 100),
        ({}, 100, 100),
    ],
)
def test_the_lowest_reported_limit_admits_attempts(headers: dict[str, str], attempts: int, seconds: float) -> None:
    """Attempts are admitted up to the number of remaining calls; the next attempt waits for the reset."""
    found, until = admitted(headers)
    assert found == attempts
    assert until == pytest.approx(seconds, abs=0.01)


def test_other_attempts_in_flight_are_subtracted() -> None:
    """A report may not count the other attempts in flight."""
    headers = {"x-ratelimit-remaining": "5", "x-ratelimit-reset": "7"}
    assert admitted(headers)[0] == 5
    assert admitted(headers, in_flight=4)[0] == 2


def test_a_report_that_is_out_of_date_is_ignored() -> None:
    """The report of an earlier attempt counts only if it contains fewer remaining calls."""

    async def left() -> list[bool]:
        quota = ReportedQuota(asyncio.get_running_loop().time)
        numbers = [quota.begin() for _ in range(2)]
        found = []
        for number, remaining in ((numbers[1], "1"), (numbers[0], "0"), (numbers[0], "9"), (numbers[1], "9")):
            quota.report(number, {"x-ratelimit-remaining": remaining, "x-ratelimit-reset": "7"})
            found.append(quota.admits())
        return found

    assert run(left())[0] == [True, False, False, True]


def test_after_a_reset_the_number_of_accepted_attempts_is_admitted() -> None:
    """Until the next report, as many attempts start as the service has accepted before the reset."""

    async def counts() -> tuple[int, int]:
        quota = ReportedQuota(asyncio.get_running_loop().time)
        numbers = [quota.begin() for _ in range(6)]
        quota.rejected()
        quota.report(numbers[-1], {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "7"})
        found = []
        for _ in range(2):
            await quota.wait(again=False)
            attempts = 0
            while quota.admits():
                quota.begin()
                attempts += 1
            found.append(attempts)
        return found[0], found[1]

    attempts, seconds = run(counts())
    assert attempts == (5, 5)
    assert seconds == pytest.approx(14, abs=0.01)


def test_retries_start_before_first_attempts() -> None:
    """After a reset, waiting retries start before waiting first attempts. A cancelled attempt is left out."""

    async def order() -> list[str]:
        quota = ReportedQuota(asyncio.get_running_loop().time)
        quota.report(quota.begin(), {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "7"})
        started: list[str] = []

        async def attempt(name: str, *, again: bool) -> None:
            while not quota.admits():
                await quota.wait(again=again)
            started.append(name)
            quota.begin()

        waiting = [asyncio.ensure_future(attempt(f"first {number}", again=False)) for number in range(3)]
        waiting.append(asyncio.ensure_future(attempt("retry", again=True)))
        await asyncio.sleep(1)
        waiting[0].cancel()
        await asyncio.wait(waiting)
        return started

    started, seconds = run(order())
    assert started == ["retry", "first 1", "first 2"]
    assert seconds == pytest.approx(21, abs=0.1)


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
    """HTTP service that accepts ten calls in each half second, counted from the first call."""

    def __init__(self) -> None:
        self.rejections = 0
        self._window, self._calls, self._began = 0, 0, 0.0

    async def answer(self, request: web.Request) -> web.Response:
        now = time.monotonic()
        self._began = self._began or now
        window = int((now - self._began) / 0.5)
        if window != self._window:
            self._window, self._calls = window, 0
        self._calls += 1
        reset = self._began + 0.5 * (window + 1) - now
        headers = {
            "x-ratelimit-remaining-requests": str(max(0, 10 - self._calls)),
            "x-ratelimit-reset-requests": f"{reset:.6f}s",
        }
        if self._calls > 10:
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
