"""Tests of the durations in buckets."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from enrich_engine import Run
from hypothesis import given
from hypothesis import strategies as st

from spark_events.enrichment.engine import durations
from spark_events.enrichment.engine.durations import buckets, middle, quantile


@given(st.floats(1e-9, 1e6), st.floats(1e-9, 1e6))
def test_buckets_are_ordered_and_accurate(first: float, second: float) -> None:
    """Buckets are ordered, and a quantile from the buckets has an error of at most 3.2 %."""
    found = buckets([first, second])
    assert sorted(found) == buckets(sorted([first, second]))
    assert [middle(number) for number in found] == pytest.approx([first, second], rel=0.032)


def test_quantiles_of_many() -> None:
    """Quantiles from buckets agree with the quantiles of all sorted values."""
    rng = random.Random(3)
    seconds = [rng.lognormvariate(-4, 1) for _ in range(10_000)]
    found = Counter(buckets(seconds))
    for fraction in (0.5, 0.9, 0.99, 1.0):
        exact = sorted(seconds)[max(0, round(fraction * 10_000) - 1)]
        assert middle(quantile(found, fraction)) == pytest.approx(exact, rel=0.035)
    assert quantile({}, 0.5) == 0


def test_a_quantile_is_weighted() -> None:
    """The median window is the size that was in use for half of the time."""
    assert quantile({10: 1.0, 20: 0.5, 40: 2.0}, 0.5) == 40
    assert quantile({10: 2.0, 20: 0.5, 40: 1.0}, 0.5) == 10


def test_no_call_waits_for_sorting_durations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Durations of a thousand runners are sorted into buckets in small parts, so no call waits for the sorting."""
    sizes = []

    def sorted_into(seconds: Any) -> Any:
        sizes.append(len(seconds))
        return buckets(seconds)

    async def fn(row: int) -> int:
        await asyncio.sleep(0)
        return row

    monkeypatch.setattr(durations, "buckets", sorted_into)
    run = Run(fn, max_in_flight=1_000)
    assert run.of(range(100_000)) == list(range(100_000))
    assert sum(run.numbers["latency"].values()) == 100_000
    assert len(sizes) > 10
    assert max(sizes) < 4_000
