"""Tests of the number of tasks that share a rate, computed from data of the cluster and the plan, without Spark."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from spark_events import Auto, Budget
from spark_events.enrichment.driver.rate import (
    check_tasks,
    ledger_of,
    limits_of,
    sharing_tasks,
    state_of,
    tasks_at_a_time,
)
from spark_events.enrichment.plan import Plan
from spark_events.errors import InvalidPlanError

DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}
MOST = {**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "10"}
TEN = {"spark.executor.instances": "10"}
CORES = {"spark.cores.max": "14"}
FOUR = {"spark.executor.cores": "4"}
STANDALONE = "spark://host:7077"
APPLICATIONS = itertools.count()


class Conf:
    """Test double of Java's SparkConf."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings

    def getBoolean(self, key: str, default: bool) -> bool:
        return self._settings.get(key, str(default)).lower() == "true"

    def getInt(self, key: str, default: int) -> int:
        return int(self._settings.get(key, default))


def named(kind: str, **methods: Any) -> Any:
    return SimpleNamespace(getClass=lambda: SimpleNamespace(getSimpleName=lambda: kind), **methods)


def frame(settings: dict[str, str], *, now: int, partitions: int | None, master: str = "yarn") -> Any:
    """Return a DataFrame of a new application.

    Executors have four cores on YARN and Kubernetes. On other clusters, the number is unknown unless it is set. If
    ``partitions`` is None, Spark determines the number of partitions at run time.
    """
    is_known = master == "yarn" or master.startswith("k8s://") or "spark.executor.cores" in settings
    settings = {"spark.app.id": f"app-{next(APPLICATIONS)}", **(FOUR if is_known else {}), **settings}
    each = int(settings["spark.executor.cores"]) // int(settings.get("spark.task.cpus", 1)) if is_known else 1
    profile = SimpleNamespace(maxTasksPerExecutor=lambda _: each, isCoresLimitKnown=lambda: is_known)
    scala = SimpleNamespace(
        getConf=lambda: Conf(settings),
        resourceProfileManager=lambda: SimpleNamespace(defaultResourceProfile=lambda: profile),
        maxNumConcurrentTasks=lambda _: now,
    )
    context = SimpleNamespace(master=master, _jsc=SimpleNamespace(sc=lambda: scala))
    plan = (
        named("AdaptiveSparkPlanExec")
        if partitions is None
        else named(
            "AnyExec",
            subqueries=lambda: SimpleNamespace(isEmpty=lambda: True),
            children=lambda: SimpleNamespace(size=lambda: 0),
            outputPartitioning=lambda: SimpleNamespace(numPartitions=lambda: partitions),
        )
    )
    execution = SimpleNamespace(executedPlan=lambda: plan)
    return SimpleNamespace(
        isStreaming=False,
        sparkSession=SimpleNamespace(sparkContext=context, conf=settings),
        _jdf=SimpleNamespace(queryExecution=lambda: execution),
    )


@pytest.mark.parametrize(
    ("df", "tasks"),
    [
        (frame({}, now=8, partitions=None), 8),
        (frame({}, now=8, partitions=3), 3),
        # Idle executors were removed, and new executors start for this batch.
        (frame(MOST, now=0, partitions=None), 40),
        (frame(MOST, now=8, partitions=None), 40),
        (frame(MOST, now=44, partitions=None), 44),
        (frame(MOST, now=0, partitions=100), 40),
        (frame(MOST, now=0, partitions=6), 6),
        # There is no maximum, or the number of cores per executor is unknown.
        (frame(DYNAMIC, now=4, partitions=6), 6),
        (frame(DYNAMIC, now=4, partitions=None), None),
        (frame(MOST, now=4, partitions=None, master=STANDALONE), None),
        # A standalone cluster also has the limit spark.cores.max, which other clusters ignore.
        (frame({**MOST, **FOUR, "spark.cores.max": "12"}, now=4, partitions=None, master=STANDALONE), 12),
        (
            frame(
                {**MOST, **FOUR, "spark.cores.max": "12", "spark.task.cpus": "2"},
                now=4,
                partitions=None,
                master=STANDALONE,
            ),
            6,
        ),
        (frame({**DYNAMIC, **CORES}, now=4, partitions=None, master=STANDALONE), 14),
        (frame({**DYNAMIC, **CORES}, now=4, partitions=9, master=STANDALONE), 9),
        (frame({**MOST, **FOUR, "spark.cores.max": "80"}, now=4, partitions=None, master=STANDALONE), 40),
        (frame({**MOST, "spark.cores.max": "12"}, now=4, partitions=None), 40),
        # Local mode ignores dynamic allocation.
        (frame(DYNAMIC, now=2, partitions=None, master="local[2]"), 2),
    ],
)
def test_dynamic_allocation_counts_all_possible_executors(df: Any, tasks: int | None) -> None:
    assert tasks_at_a_time(df, Plan(fn), None) == tasks
    assert tasks_at_a_time(df, Plan(fn), 5) == 5


@pytest.mark.parametrize(
    ("df", "tasks"),
    [
        # A lost executor is being replaced, or most executors have not registered yet.
        (frame(TEN, now=36, partitions=None), 40),
        (frame(TEN, now=0, partitions=None, master="k8s://https://host"), 40),
        (frame({**TEN, "spark.task.cpus": "3"}, now=1, partitions=None), 10),
        (frame(TEN, now=4, partitions=100), 40),
        # The result is at most the number of partitions of the batch, and at least the number of existing task slots.
        (frame(TEN, now=4, partitions=3), 3),
        (frame(TEN, now=44, partitions=None), 44),
        # Spark's default is two executors.
        (frame({}, now=4, partitions=None), 8),
        # These clusters ignore both settings.
        (frame({**CORES}, now=4, partitions=None), 8),
        (frame(TEN, now=4, partitions=None, master=STANDALONE), 4),
        (frame({**TEN, **CORES}, now=2, partitions=None, master="local[2]"), 2),
        # All possible cores count. If executor or task sizes are known, only whole executors and whole tasks count.
        (frame(CORES, now=4, partitions=None, master=STANDALONE), 14),
        (frame({**CORES, **FOUR}, now=4, partitions=None, master=STANDALONE), 12),
        (frame({**CORES, "spark.task.cpus": "4"}, now=1, partitions=None, master=STANDALONE), 3),
        (frame({**CORES, **FOUR, "spark.task.cpus": "3"}, now=1, partitions=None, master=STANDALONE), 3),
        (frame(CORES, now=4, partitions=5, master=STANDALONE), 5),
        (frame({"spark.cores.max": "3", **FOUR}, now=0, partitions=None, master=STANDALONE), 1),
        # Local mode runs inside the driver.
        (frame({}, now=1, partitions=None, master="local-cluster[2,1,1024]"), 2),
        (frame({}, now=1, partitions=None, master="local-cluster[ 3 , 6 , 1024 ]"), 18),
        (frame(FOUR, now=1, partitions=None, master="local-cluster[3,6,1024]"), 12),
        (frame(CORES, now=1, partitions=None, master="local-cluster[3,6,1024]"), 14),
        (frame({**DYNAMIC, **FOUR}, now=1, partitions=None, master="local-cluster[3,6,1024]"), 12),
    ],
)
def test_requested_executors_count_before_they_register(df: Any, tasks: int) -> None:
    """Requested executors are counted before they register. Otherwise, each would push a batch above its rate."""
    assert tasks_at_a_time(df, Plan(fn), None) == tasks


def test_without_a_known_limit_a_warning_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Without a known limit, as on a standalone cluster, the current slots are counted, and one warning is logged."""
    caplog.set_level("WARNING")
    df = frame({}, now=4, partitions=None, master=STANDALONE)
    assert tasks_at_a_time(df, Plan(fn), None) == 4
    assert caplog.messages == []
    for _ in range(2):
        assert tasks_at_a_time(df, Plan(fn, rate_limit=10), None) == 4
    assert caplog.messages == [
        "Spark does not report how many executors may still be added: the limits of the job (rate_limit) are divided "
        "by the current number of concurrent tasks, and are exceeded if executors are added later; set "
        "spark.cores.max on a standalone cluster, or give Limits.concurrent_tasks"
    ]
    caplog.clear()
    tasks_at_a_time(df, Plan(fn, budget=Budget(60, cost=len), max_in_flight_job=9), None)
    assert "the limits of the job (budget, max_in_flight_job) are divided by" in caplog.messages[0]


@pytest.mark.parametrize(
    ("df", "tasks"),
    [
        # The number of partitions limits the tasks of a batch, even if executors are added.
        (frame({}, now=4, partitions=4, master=STANDALONE), 4),
        (frame(CORES, now=4, partitions=None, master=STANDALONE), 14),
        (frame(DYNAMIC, now=4, partitions=6), 6),
        (frame({}, now=2, partitions=None, master="local[2]"), 2),
        (frame({}, now=4, partitions=None), 8),
    ],
)
def test_a_rate_within_its_limit_causes_no_warning(df: Any, tasks: int, caplog: pytest.LogCaptureFixture) -> None:
    assert tasks_at_a_time(df, Plan(fn, rate_limit=10), None) == tasks
    assert caplog.messages == []


def test_a_rate_with_an_unknown_number_of_tasks_is_rejected() -> None:
    """A rate with an unknown number of tasks is rejected, because each new executor would push the calls above it."""
    df = frame(DYNAMIC, now=4, partitions=None)
    plan = Plan(fn, rate_limit=10)
    with pytest.raises(
        InvalidPlanError, match=r"does not report how many tasks run at a time here: give Limits\.concurrent_tasks"
    ):
        check_tasks(plan, tasks_at_a_time(df, plan, None))
    check_tasks(plan, tasks_at_a_time(df, plan, 5))
    check_tasks(Plan(fn), tasks_at_a_time(df, Plan(fn), None))


@pytest.mark.parametrize(("tasks", "warns"), [(200, False), (201, True), (20_000, True)])
def test_long_waits_before_the_first_call_are_logged(tasks: int, warns: bool, caplog: pytest.LogCaptureFixture) -> None:
    """If a task waits long before its first call, as with a very large maxExecutors, a warning explains the wait."""
    caplog.set_level("WARNING")
    check_tasks(Plan(fn, rate_limit=20), tasks)
    messages = [
        f"rate_limit=20 is shared by {tasks} concurrent tasks, so each task waits {tasks / 20:.0f} s before its first"
        " call; if fewer tasks run at a time, give Limits.concurrent_tasks"
    ]
    assert caplog.messages == (messages if warns else [])


def test_with_another_limit_no_task_waits_before_its_first_call(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    check_tasks(Plan(fn, rate_limit=20, max_in_flight_job=10), 201)
    assert caplog.messages == []


async def fn(row: Any) -> None: ...


def test_leases_need_no_number_of_tasks(caplog: pytest.LogCaptureFixture) -> None:
    """With leases, the limit of tasks may be unknown: tasks that cannot reach the driver assume the current slots."""
    caplog.set_level("WARNING")
    plan = Plan(fn, max_in_flight_job=10)
    df = frame(DYNAMIC, now=4, partitions=None)
    assert sharing_tasks(df, plan, None, leases=True) == 4
    assert sharing_tasks(df, plan, 7, leases=True) == 7
    assert sharing_tasks(df, plan, None, leases=False) is None
    with pytest.raises(InvalidPlanError, match="max_in_flight_job applies to the whole job"):
        check_tasks(plan, None)
    assert caplog.messages == []


class OverConnect:
    """Test double of a Spark Connect DataFrame whose server has six task slots."""

    def __init__(self, session: str) -> None:
        self.jobs = 0
        self.sparkSession: Any = SimpleNamespace(
            session_id=session, range=lambda _: self, conf={"spark.app.id": session}
        )

    def selectExpr(self, _: str) -> OverConnect:
        return self

    def distinct(self) -> OverConnect:
        return self

    def count(self) -> int:
        self.jobs += 1
        return 6


OverConnect.__module__ = "pyspark.sql.connect.dataframe"


def test_tasks_over_connect_share_evenly(caplog: pytest.LogCaptureFixture) -> None:
    """One warning contains the assumption and the remedy. The slots are counted once per session."""
    caplog.set_level("WARNING")
    df: Any = OverConnect(f"session-{next(APPLICATIONS)}")
    budget = Budget(6000, cost=len)
    for _ in range(2):
        assert sharing_tasks(df, Plan(fn, budget=budget), None, leases=False) == 6
    assert df.jobs == 1
    assert caplog.messages == [
        "the driver cannot lease the job's limits to its tasks: each task uses 1/6 of rate_limit, budget, "
        "max_in_flight_job and Auto.max, as if 6 tasks run at a time. Fewer tasks stay below the limits, and more "
        "exceed them; give Limits.concurrent_tasks"
    ]
    assert sharing_tasks(df, Plan(fn, budget=budget), 3, leases=False) == 3
    assert limits_of(Plan(fn, budget=budget)).share(6).amount_per_minute == 1000


def test_micro_batches_share_a_ledger_and_a_window() -> None:
    """Micro-batches with equal limits share one ledger. Otherwise, each batch could use a whole minute's budget."""
    plan = Plan(fn, rate_limit=5)
    name = f"calls-{next(APPLICATIONS)}"
    assert ledger_of(plan, name) is ledger_of(Plan(fn, rate_limit=5), name)
    assert ledger_of(plan, name) is not ledger_of(Plan(fn, rate_limit=6), name)
    assert ledger_of(Plan(fn), name) is None
    assert state_of(plan, name) is state_of(Plan(fn), name)
    assert state_of(plan, name) is not state_of(Plan(fn, max_in_flight=Auto(max=5)), name)
    assert state_of(Plan(fn, max_in_flight=5), name).window is None
