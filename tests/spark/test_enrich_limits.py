"""Tests of job-wide limits in a real session with two tasks, compared with the log of a real service."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from enrich_service import Called, EnrichService, quota, tokens_of
from pyspark.sql import SparkSession
from spark.enriching import opener

from spark_events import Budget, Limits, Rate, enrich, enrich_batch
from spark_events.enrichment.api import batch
from spark_events.enrichment.driver.channel_server import opened_channel

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

#: Tokens per minute, that is, 1,000 tokens or about ten calls per second.
QUOTA = 60_000


def session_at(url: str) -> Callable[[], Any]:
    @contextlib.asynccontextmanager
    async def open_session() -> AsyncIterator[Any]:
        import aiohttp

        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as session:
            yield session

    return open_session


async def ask(row: Any, ctx: Any) -> dict[str, Any]:
    async with ctx.resource.get(f"/rows/{row.id}") as answer:
        answer.raise_for_status()
        found = await answer.json()
        return {"name": found["name"], "tokens": found["tokens"]}


async def get(row: Any, ctx: Any) -> dict[str, Any]:
    return {"key": (await ctx.resource.get(row.id))["key"]}


def answered(calls: list[Called]) -> list[Called]:
    return [call for call in calls if call.outcome == "200"]


def throughput(calls: list[Called]) -> float:
    """Return the tokens per minute between the first and the last answered call."""
    first, *rest = answered(calls)
    return 60 * sum(tokens_of(call.key) for call in rest) / (rest[-1].began - first.began)


@pytest.mark.parametrize("guess", [1.0, 1.5])
def test_two_tasks_use_a_quota_of_tokens(
    spark: SparkSession, service: EnrichService, guess: float, caplog: pytest.LogCaptureFixture
) -> None:
    """A job with more rows than the quota allows stays within the quota, even if estimates are too high."""
    service.script(delay=0.3, quota=quota(QUOTA))
    budget = Budget(QUOTA, cost=lambda row: guess * (50 + row.id * 37 % 101), usage=lambda answer: answer["tokens"])
    out = enrich_batch(
        spark.range(0, 140, 1, 2),
        ask,
        output="name string, tokens long",
        resource=session_at(service.url),
        limits=Limits(budget=budget, max_in_flight=50, total_timeout=600),
    )
    assert [row.name for row in out.orderBy("id").collect()] == [f"n{row}" for row in range(140)]
    calls = service.calls()
    assert throughput(calls) >= 0.9 * QUOTA
    assert len(calls) <= 1.1 * 140
    assert caplog.messages == []


def test_without_a_budget_the_quota_rejects_calls(spark: SparkSession, service: EnrichService) -> None:
    """Control: without a budget, the service rejects calls for the same rows."""
    service.script(delay=0.3, quota=quota(QUOTA))
    out = enrich_batch(
        spark.range(0, 140, 1, 2),
        ask,
        output="name string, tokens long",
        resource=session_at(service.url),
        limits=Limits(max_in_flight=50, total_timeout=600),
    )
    assert out.count() == 140
    assert Counter(call.outcome for call in service.calls())["429"] > 20


def test_below_the_quota_no_call_is_rejected(spark: SparkSession, service: EnrichService) -> None:
    """If the calls in flight need only 80 % of the quota, leases hardly delay the job."""
    service.script(delay=0.5, quota=quota(QUOTA))
    out = enrich_batch(
        spark.range(0, 80, 1, 2),
        ask,
        output="name string, tokens long",
        resource=session_at(service.url),
        limits=Limits(
            budget=Budget(QUOTA, cost=lambda row: 50 + row.id * 37 % 101),
            max_in_flight=2,
            rate_limit=Rate(1000),
        ),
    )
    assert out.count() == 80
    calls = service.calls()
    assert {call.outcome for call in calls} == {"200"}
    # Each task makes 40 half-second calls, two at a time.
    for part in range(2):
        began = [call.began for call in calls if int(call.key) // 40 == part]
        assert len(began) == 40
        assert began[-1] - began[0] <= 9.5 / 0.8


def test_calls_in_flight_are_limited_for_the_whole_job(spark: SparkSession, service: EnrichService) -> None:
    """A task without further rows releases its share of the calls in flight to the other task."""
    service.script(delay=0.1)
    rows = spark.range(0, 10, 1, 1).union(spark.range(10, 110, 1, 1))

    began = time.monotonic()
    out = enrich_batch(
        rows,
        get,
        output="key string",
        resource=opener(service.port),
        limits=Limits(max_in_flight_job=10, max_in_flight=50),
    )
    assert out.count() == 110
    assert max(call.in_flight for call in service.calls()) in (9, 10)
    assert time.monotonic() - began < 60
    late = [call.in_flight for call in service.calls() if int(call.key) > 60]
    assert max(late) > 5


def test_a_lazy_enrichment_leases_from_the_driver(
    spark: SparkSession, service: EnrichService, caplog: pytest.LogCaptureFixture
) -> None:
    """A task without further rows leaves the whole limit to the other one, in each computation of the DataFrame."""
    caplog.set_level("WARNING")
    service.script(delay=0.2)
    rows = spark.range(0, 40, 1, 1).union(spark.range(40, 41, 1, 1))

    limits = Limits(max_in_flight_job=8, max_in_flight=50)
    out = enrich(rows, get, output="key string", resource=opener(service.port), limits=limits)
    for computed in range(1, 3):
        assert len({row.key for row in out.collect()}) == 41
        calls = service.calls()
        assert len(calls) == 41 * computed
        assert max(call.in_flight for call in calls[-41:]) in (7, 8)
    assert caplog.messages == []


def test_tasks_that_cannot_reach_the_driver_are_logged_once(
    spark: SparkSession, service: EnrichService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each batch opens another port, and the batches of a stream repeat no warning."""
    caplog.set_level("WARNING")

    def unreachable(df: Any, *, wanted: bool, ledger: Any, progress: Any, state: Any) -> Any:
        return opened_channel("127.0.0.1", "127.0.0.2", ledger, progress, state)

    monkeypatch.setattr(batch, "batch_channel", unreachable)
    limits, resource = Limits(max_in_flight_job=4), opener(service.port)
    for rows in (20, 30):
        out = enrich_batch(spark.range(0, rows, 1, 2), get, output="key string", resource=resource, limits=limits)
        assert out.count() == rows
    assert max(call.in_flight for call in service.calls()) <= 4
    (message,) = caplog.messages
    assert message.startswith("a task cannot connect to the driver at 127.0.0.2 (Connection refused); such tasks share")
    assert "let executors connect to the driver, or give Limits.concurrent_tasks" in message


def test_without_the_channel_tasks_share_evenly(
    spark: SparkSession, service: EnrichService, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the driver channel, each of two tasks receives half of the calls in flight and half of the budget.

    One warning says so.
    """
    caplog.set_level("WARNING")
    budget = Budget(QUOTA, cost=lambda row: 50 + row.id * 37 % 101)
    limits = Limits(max_in_flight_job=4, budget=budget, driver_channel=False)
    for form in (enrich, enrich_batch):
        service.script(delay=0.05, quota=quota(QUOTA))
        made: dict[str, Any] = {"output": "name string, tokens long", "resource": session_at(service.url)}
        out = form(spark.range(0, 60, 1, 2), ask, limits=limits, **made)
        assert len({row.name for row in out.collect()}) == 60
        calls = service.calls()
        assert {call.outcome for call in calls} == {"200"}
        assert max(call.in_flight for call in calls) <= 4
    (message,) = (message for message in caplog.messages if "cannot lease the job's limits" in message)
    assert "each task uses 1/2 of rate_limit, budget, max_in_flight_job and Auto.max" in message
