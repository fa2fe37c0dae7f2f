"""Tests of how a run's pool is put together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from virtual_engine import VirtualRun

from spark_events.enrichment.engine import assembly
from spark_events.enrichment.engine.feedback import DestinationState
from spark_events.enrichment.engine.ledger import JobLimits
from spark_events.enrichment.engine.limiter import Attempt, Limiter, Permit
from spark_events.enrichment.engine.run import EngineRun


class CountingLimiter:
    """Limiter that admits every attempt, and counts them."""

    limits, cause, until, is_timed, min_wait = True, "", 0.0, False, 0.0

    def __init__(self) -> None:
        self.asked = 0

    async def enter(self, attempt: Attempt) -> Permit:
        self.asked += 1
        return Permit()


@pytest.mark.parametrize("job", [None, JobLimits(1_000)], ids=str)
def test_a_limiter_is_asked_once_it_is_in_the_list(monkeypatch: pytest.MonkeyPatch, job: JobLimits | None) -> None:
    """A new limiter needs no other change than its place in the list, whatever limits the plan has."""
    added = CountingLimiter()
    usual = assembly.limiters

    def with_another(run: EngineRun, destination: DestinationState) -> Iterator[Limiter]:
        yield from usual(run, destination)
        yield added

    monkeypatch.setattr(assembly, "limiters", with_another)

    async def fn(row: Any) -> Any:
        return row

    assert VirtualRun(fn, job=job).of(range(50)) == list(range(50))
    assert added.asked == 50
