"""Tests of warnings about clients whose limits are below the limits of the plan, with real clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import asyncpg
import httpx
import pytest
from enrich_engine import Run

from spark_events.enrichment.engine.client_limits import ClientLimitTuning, shortcomings, used_up
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Auto


async def fn(row: Any) -> None: ...


class Holder:
    def __init__(self, client: Any) -> None:
        self.client = client


class Pool:
    """Test double of the pool in psycopg, which is not installed."""

    max_size = 100


Pool.__module__, Pool.__name__ = "psycopg_pool.pool_async", "AsyncConnectionPool"


def wide() -> Any:
    return httpx.AsyncClient(limits=httpx.Limits(max_connections=500), timeout=30)


@pytest.mark.parametrize(
    ("make", "texts"),
    [
        (httpx.AsyncClient, ["the httpx client allows 100 connections, but up to 200 calls", "gives up after 5 s"]),
        (lambda: Holder(httpx.AsyncClient(timeout=60)), ["the httpx client allows 100 connections"]),
        (lambda: (1, httpx.AsyncClient(timeout=None)), ["the httpx client allows 100 connections"]),
        (wide, []),
        (lambda: httpx.AsyncClient(limits=httpx.Limits(), timeout=None), []),
        (aiohttp.ClientSession, ["the aiohttp client allows 100 connections, but up to 200 calls of a task"]),
        (
            lambda: aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=3)
            ),
            ["the aiohttp client gives up after 3 s, but Limits.timeout is 30 s"],
        ),
        (lambda: "no client", []),
    ],
)
def test_lower_limits_of_a_client_are_reported(make: Callable[[], Any], texts: list[str]) -> None:
    """If a limit of the client is below the limit of the plan, a warning contains both values."""

    async def of() -> list[str]:
        return shortcomings(make(), Plan(fn, max_in_flight=200))

    found = asyncio.run(of())
    assert len(found) == len(texts)
    for text, part in zip(found, texts, strict=True):
        assert part in text


@pytest.mark.parametrize(
    ("plan", "part"),
    [
        ({"max_in_flight": 200}, "but up to 200 calls of a task are in flight, so"),
        ({"max_in_flight": Auto(initial=200)}, "but the job starts with 200 calls in flight, so"),
        ({"max_in_flight": Auto(initial=100)}, ""),
    ],
)
def test_the_calls_in_flight_are_those_of_a_task_or_of_the_job(plan: dict[str, Any], part: str) -> None:
    """A fixed number applies to each task, and the first number of an adapted one to the job."""

    async def of() -> list[str]:
        return shortcomings(httpx.AsyncClient(timeout=None), Plan(fn, **plan))

    found = asyncio.run(of())
    assert len(found) == bool(part)
    assert part in "".join(found)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            httpx.AsyncClient,
            "the httpx client of each task allows 100 connections, which limits calls in flight: raise httpx.Limits",
        ),
        (aiohttp.ClientSession, "the aiohttp client of each task allows 100 connections"),
        (
            lambda: {"pool": asyncpg.create_pool(min_size=1, max_size=100)},
            "the asyncpg client of each task allows 100 connections",
        ),
        (Pool, "the psycopg_pool client of each task allows 100 connections"),
        (lambda: aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)), ""),
        (lambda: "no client", ""),
    ],
)
def test_connections_that_limited_the_window_are_reported(make: Callable[[], Any], text: str) -> None:
    """A window within 10 % of a client's connections causes a warning, unless the user has set a maximum."""

    async def of(used: int, window: Any) -> list[str]:
        return used_up(make(), Plan(fn, max_in_flight=window), used, ClientLimitTuning())

    found = asyncio.run(of(90, "auto"))
    assert len(found) == bool(text)
    assert "".join(found).startswith(text)
    assert asyncio.run(of(89, "auto")) == []
    assert asyncio.run(of(100, Auto(max=100))) == []
    assert asyncio.run(of(100, 100)) == []


@pytest.mark.parametrize(("in_flight", "said"), [(28, 1), (20, 0)])
def test_a_run_compares_its_calls_in_flight_with_the_client(in_flight: int, said: int) -> None:
    """A run reports a client if the calls in flight have nearly reached the client's number of connections."""
    begun, full = Counter[str](), asyncio.Event()

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=30)) as client:
            yield client

    async def call(row: int, ctx: Any) -> int:
        begun["calls"] += 1
        if begun["calls"] == in_flight:
            full.set()
        await full.wait()
        return row

    # With so few rows, the window size does not change.
    run = Run(call, resource=opened, max_in_flight=Auto(initial=in_flight))
    assert run.of(range(in_flight)) == list(range(in_flight))
    assert len([text for text in run.numbers["hints"] if "limits calls in flight" in text]) == said


def test_a_run_counts_the_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """Each run counts its warnings about clients for the driver's log. The worker logs each warning only once."""

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(timeout=None) as client:
            yield client

    async def call(row: int, ctx: Any) -> int:
        return row

    for _ in range(2):
        run = Run(call, resource=opened, max_in_flight=101)
        assert run.of([1]) == [1]
    assert len([text for text in caplog.messages if "101 calls" in text]) == 1
    assert [text.partition(",")[0] for text in run.numbers["hints"]] == ["the httpx client allows 100 connections"]
