"""Tests of the decision whether a batch has failed, based on the reports of its tasks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_events import Budget
from spark_events.enrichment.driver.micro_batch import MicroBatch
from spark_events.enrichment.driver.reports import enrichment_event, judged, warn_of_failures
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.keys import HotKeys
from spark_events.enrichment.engine.statistics import EngineCounts, counted
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.worker.report import PartitionReport, Sample


async def lookup(row: Any) -> Any:
    """Function of a plan. The tests never call this function."""


def fails(ratio: float, failed: int, rows: int) -> bool:
    plan = Plan(lookup, on_failure="null", max_failure_ratio=ratio)
    report = PartitionReport(partition=0, rows=rows, failed=failed, types={}, samples=(), statistics={})
    return judged(plan, MicroBatch("q", 1), [report]) is not None


@pytest.mark.parametrize("percent", range(1, 100))
def test_a_batch_fails_above_its_ratio(percent: int) -> None:
    """The failure ratio is compared as an exact decimal. With floats, 0.29 * 100 would be 28.999999999999996."""
    assert not fails(percent / 100, percent, 100)
    assert fails(percent / 100, percent + 1, 100)


def test_the_ratios_0_and_1() -> None:
    """With ratio 0, no row may fail; with ratio 1, all rows may fail."""
    assert not fails(0.0, 0, 3)
    assert fails(0.0, 1, 3)
    assert not fails(1, 3, 3)
    assert fails(1e-7, 2, 10_000_000)
    assert not fails(1e-7, 1, 10_000_000)


def test_hints_of_a_batch_that_does_not_fail(caplog: pytest.LogCaptureFixture) -> None:
    """The hints of all partitions are logged, each once. For failures without a hint, nothing is logged."""
    batch, plan = MicroBatch("q", 1), Plan(lookup, on_failure="null")

    def reports(message: str) -> list[PartitionReport]:
        failure = RowFailure("error", "OutputError", message)
        return [PartitionReport(part, 3, 2, (Sample(part, 0, failure),), {}, {}) for part in range(2)]

    warn_of_failures(plan, batch, reports("no number"))
    assert caplog.messages == []
    warn_of_failures(plan, batch, reports("the function returned list, not a mapping with x"))
    [message] = caplog.messages
    assert message.endswith("4 rows have no answer. Hint: a function of several rows needs batch_size=…")


def test_equal_failures_are_one_example() -> None:
    """Equal failures of several rows are shown once, and an exception without a message without a colon."""
    failures = [RowFailure("error", "KeyError", "'country'")] * 3 + [RowFailure("error", "MemoryError", "")]
    samples = [Sample(2, row, failure) for row, failure in enumerate(failures)]
    report = PartitionReport(2, 9, 4, samples, {}, {"KeyError": 3, "MemoryError": 1})
    assert str(judged(Plan(lookup), MicroBatch("q", 1), [report])) == (
        "4 of 9 rows have no answer (KeyError 3, MemoryError 1). Examples: partition 2, row 0: KeyError: 'country'; "
        "partition 2, row 3: MemoryError. In batch 1 of query q"
    )


@pytest.mark.parametrize("price", [None, 0.002])
def test_the_event_has_the_usage_and_its_cost(price: float | None) -> None:
    """The usage of all partitions is added up. Without a budget, the event has neither usage nor cost."""
    counts = EngineCounts()
    counts.usage = 1500.0
    statistics = counted(counts, HotKeys(1).hot())
    reports = [PartitionReport(part, 1, 0, (), statistics, {}) for part in range(2)]
    budget = Budget(9000, cost=len, price_per_1000=price)
    attributes = enrichment_event("fn", MicroBatch("q", 1), reports, 1.0, None, budget)["attributes"]
    assert attributes["spark.enrich.usage"] == 3000
    assert attributes.get("spark.enrich.cost") == (None if price is None else pytest.approx(0.006))
    without = enrichment_event("fn", MicroBatch("q", 1), reports, 1.0, None)["attributes"]
    assert not {"spark.enrich.usage", "spark.enrich.cost"} & set(without)


def test_the_event_names_the_limits() -> None:
    """The event contains the milliseconds of each limit, summed over all partitions, longest first."""
    reports = []
    for part, limited in enumerate([{"budget": 1.5, "upstream": 0.25}, {"max_in_flight_job": 2.0, "budget": 1.0}]):
        counts = EngineCounts()
        counts.limited.update(limited)
        reports.append(PartitionReport(part, 1, 0, (), counted(counts, HotKeys(1).hot()), {}))
    attributes = enrichment_event("fn", MicroBatch("q", 1), reports, 1.0, None)["attributes"]
    shown = json.loads(attributes["spark.enrich.limited_by"])
    assert list(shown.items()) == [("budget", 2500), ("max_in_flight_job", 2000), ("upstream", 250)]
    assert attributes["spark.enrich.at_limit_ms"] == 4500
