"""Tests of the number of tasks that share the limits of a job without leases, without Spark."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from spark_events import Budget
from spark_events.enrichment.driver.rate import ledger_of, limits_of, log_limits, sharing_tasks
from spark_events.enrichment.plan import Plan
from spark_events.errors import InvalidPlanError

NAMES = itertools.count()


class Frame:
    """Test double of a classic DataFrame whose cluster has four task slots."""

    def __init__(self, master: str) -> None:
        scala = SimpleNamespace(
            resourceProfileManager=lambda: SimpleNamespace(defaultResourceProfile=lambda: None),
            maxNumConcurrentTasks=lambda _: 4,
        )
        context = SimpleNamespace(master=master, _jsc=SimpleNamespace(sc=lambda: scala))
        self.sparkSession = SimpleNamespace(sparkContext=context)


class OverConnect:
    """Test double of a Spark Connect DataFrame."""


OverConnect.__module__ = "pyspark.sql.connect.dataframe"


async def fn(row: Any) -> None: ...


LIMITED = [
    Plan(fn, rate_limit=10),
    Plan(fn, max_in_flight_job=10),
    Plan(fn, budget=Budget(60, cost=len)),
]


@pytest.mark.parametrize("plan", LIMITED)
@pytest.mark.parametrize(("df", "leases"), [(Frame("local[4]"), False), (Frame("yarn"), True)])
def test_the_slots_are_the_default(df: Any, leases: bool, plan: Plan) -> None:
    """Local mode has a fixed number of slots; with leases, the slots are used only by tasks that miss the port."""
    assert sharing_tasks(df, plan, None, leases=leases) == 4
    assert sharing_tasks(df, plan, 7, leases=leases) == 7


@pytest.mark.parametrize("df", [Frame("yarn"), Frame("local-cluster[2,1,1024]"), OverConnect()])
def test_an_even_split_on_a_cluster_requires_a_number(df: Any) -> None:
    """Without leases, each executor that Spark adds would push the job above its limits."""
    names = ["rate_limit", "max_in_flight_job", "budget"]
    for plan, name in zip(LIMITED, names, strict=True):
        with pytest.raises(InvalidPlanError, match=rf"^{name} applies to the whole job.*give Limits\.concurrent_tasks"):
            sharing_tasks(df, plan, None, leases=False)
        assert sharing_tasks(df, plan, 5, leases=False) == 5
    assert sharing_tasks(df, Plan(fn), None, leases=False) == 1


def test_an_even_split_divides_each_limit() -> None:
    assert limits_of(Plan(fn, budget=Budget(6000, cost=len))).share(6).amount_per_minute == 1000


@pytest.mark.parametrize(("tasks", "warns"), [(200, False), (201, True), (20_000, True)])
def test_long_waits_before_the_first_call_are_logged(tasks: int, warns: bool, caplog: pytest.LogCaptureFixture) -> None:
    """If a task waits long before its first call, a warning explains the wait."""
    caplog.set_level("WARNING")
    log_limits(Plan(fn, rate_limit=20), tasks, leases=False)
    messages = [
        f"rate_limit=20 is shared by {tasks} concurrent tasks, so each task waits {tasks / 20:.0f} s before its first"
        " call; if fewer tasks run at a time, give a smaller Limits.concurrent_tasks"
    ]
    assert caplog.messages == (messages if warns else [])


def test_with_leases_or_another_limit_no_task_waits_before_its_first_call(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    log_limits(Plan(fn, rate_limit=20, max_in_flight_job=10), 201, leases=False)
    log_limits(Plan(fn, rate_limit=20), 201, leases=True)
    assert caplog.messages == []


def test_micro_batches_share_a_ledger() -> None:
    """Micro-batches with equal limits share one ledger. Otherwise, each batch could use a whole minute's budget."""
    plan = Plan(fn, rate_limit=5)
    name = f"calls-{next(NAMES)}"
    assert ledger_of(plan, name) is ledger_of(Plan(fn, rate_limit=5), name)
    assert ledger_of(plan, name) is not ledger_of(Plan(fn, rate_limit=6), name)
