"""Tests of the engine's statistics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from enrich_engine import Run, chunks_of
from virtual_engine import VirtualRun

from spark_events.enrichment.engine.ledger import JobLimits
from spark_events.enrichment.engine.statistics import merged, summary
from spark_events.enrichment.settings import Retry


def test_the_counters_add_up() -> None:
    """The counters of all tasks are added up, except maximum values. Attempts are calls plus retries."""

    async def fn(row: int, ctx: Any) -> int:
        await asyncio.sleep(0.001)
        if row % 10 == 0:
            raise KeyError
        if row % 10 == 1 and ctx.attempt == 1:
            raise ConnectionError
        return row

    parts = []
    for _ in range(2):
        run = VirtualRun(fn, max_in_flight=5, retry=Retry(initial=0, jitter=0), on_failure="null")
        run.of(range(200))
        parts.append(run.numbers)
    total = merged(parts)
    assert (total["rows"], total["calls"], total["retries"], total["attempts"]) == (400, 400, 40, 440)
    assert total["failures"] == {"KeyError": 40}
    assert total["peak_in_flight"] == 5
    assert sum(total["latency"].values()) == 440
    shown = summary(total)
    assert shown["latency.p50_ms"] == pytest.approx(1, rel=0.032)
    assert shown["failures"] == 40
    assert shown["slot_wait.mean_ms"] > 0
    assert merged([total]) == total
    assert summary(merged([]))["rows"] == 0


def limits_of(run: VirtualRun) -> set[str]:
    """Return the limits that delayed a run for a considerable share of its time."""
    spent = run.numbers["limited"]
    return {cause for cause, seconds in spent.items() if seconds > 0.2 * sum(spent.values())}


def test_the_limit_of_the_calls_in_flight_is_named() -> None:
    """The statistics name the limit of the calls: a fixed number, the user's rate, too few rows, or the service."""

    async def fn(row: int) -> int:
        await asyncio.sleep(0.005)
        return row

    async def slow(row: int) -> int:
        await asyncio.sleep(0.1)
        return row

    fixed = VirtualRun(fn, max_in_flight=5)
    fixed.of(range(200))
    assert limits_of(fixed) == {"max_in_flight"}
    shown = summary(fixed.numbers)
    assert (shown["window.min"], shown["window.median"], shown["window.max"]) == (5, 5, 5)
    assert shown["at_limit_ms"] >= 100
    rate = VirtualRun(fn, max_in_flight=5, job=JobLimits(50))
    rate.of(range(20))
    assert limits_of(rate) == {"rate_limit"}
    upstream = VirtualRun(slow, max_in_flight=50)
    upstream.of(range(3))
    assert limits_of(upstream) == {"upstream"}
    service = VirtualRun(slow)
    service.of(range(100))
    assert "service" in limits_of(service)


def test_a_full_buffer_is_named_as_the_limit() -> None:
    """If a slow call fills the buffer, the limit is the buffer. Regression: the limit was the number of input rows."""

    async def fn(row: int) -> int:
        await asyncio.sleep(0 if row else 0.5)
        return row

    run = Run(fn, max_in_flight=5, buffer_rows=20)
    assert run.of(chunks_of(range(40), 10)) == list(range(40))
    spent = run.numbers["limited"]
    assert spent.get("buffer", 0) > 0.2
    assert spent["buffer"] > 0.5 * sum(spent.values())


def test_statistics_can_be_read_during_the_run() -> None:
    """Statistics can be read during a run, even after the durations were compacted many times."""

    async def fn(row: int) -> int:
        return row

    run = Run(fn)
    seen = [run.numbers["attempts"] for _ in run.engine.run(_chunks())]
    assert seen == sorted(seen)
    assert run.numbers["attempts"] == 20_000


def _chunks() -> Any:
    return chunks_of(range(20_000), 500)
