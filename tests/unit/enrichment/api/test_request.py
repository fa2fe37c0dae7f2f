"""Tests of the task that a request sends to the executors, without Spark."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from enrich_engine import definition
from virtual_engine import VirtualRun, virtual_now

from spark_events.enrichment.api.request import Request
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Budget
from spark_events.enrichment.worker.task import Task


def task_of(plan: Plan) -> Task:
    df: Any = SimpleNamespace(columns=["id"])
    output: Any = SimpleNamespace(serialised=lambda: b"")
    request = Request(df, plan, output, ("id",), (), "fn", "", b"", definition())
    return request.task(scope=None, settles=False)


@pytest.mark.parametrize(
    "limit",
    [{}, {"budget": Budget(24_000, cost=lambda row: 6_000 if row == 0 else 1)}, {"max_in_flight_job": 40}],
    ids=["alone", "budget", "calls in flight"],
)
def test_without_leases_no_second_exceeds_the_rate_after_a_stall(limit: dict[str, Any]) -> None:
    """If another limit, or slow calls, delay the attempts for a minute, they do not start together afterwards."""
    begun: list[float] = []

    async def fn(row: int) -> int:
        begun.append(virtual_now())
        if row < 10:
            await asyncio.sleep(60)
        return row

    plan: dict[str, Any] = {"max_in_flight": 100, "timeout": None, "total_timeout": None, "rate_limit": 20, **limit}
    task = task_of(Plan(fn, tasks=4, **plan))
    job = None if task.job is None else task.job.share(4)
    run = VirtualRun(fn, job=job, **plan)
    assert run.of(range(200)) == list(range(200))
    # The ledger lets an idle task accumulate a tenth of a second of the rate, and at least one call.
    assert max(sum(first <= moment < first + 1 for moment in begun) for first in begun) <= 6
