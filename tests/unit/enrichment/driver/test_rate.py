"""Tests of the limits of a job, and of the tasks that share them without leases, without Spark."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from spark_events import Auto, Budget, Limits
from spark_events.enrichment.driver.rate import ledger_of, limits_of, log_limits, sharing_tasks, state_of
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.worker.channel_client import ChannelAddress

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


def frame(settings: dict[str, str], *, now: int, master: str = "yarn") -> Any:
    """Return a DataFrame of a new application.

    Executors have four cores on YARN and Kubernetes. On other clusters, the number is unknown unless it is set.
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
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context, conf=settings))


@pytest.mark.parametrize(
    ("df", "tasks"),
    [
        (frame({}, now=44), 44),
        # Idle executors were removed, and new executors start for this batch.
        (frame(MOST, now=0), 40),
        (frame(MOST, now=8), 40),
        (frame(MOST, now=44), 44),
        # There is no maximum, or the number of cores per executor is unknown.
        (frame(DYNAMIC, now=4), 4),
        (frame(MOST, now=4, master=STANDALONE), 4),
        # A standalone cluster also has the limit spark.cores.max, which other clusters ignore.
        (frame({**MOST, **FOUR, "spark.cores.max": "12"}, now=4, master=STANDALONE), 12),
        (frame({**MOST, **FOUR, "spark.cores.max": "12", "spark.task.cpus": "2"}, now=4, master=STANDALONE), 6),
        (frame({**DYNAMIC, **CORES}, now=4, master=STANDALONE), 14),
        (frame({**MOST, **FOUR, "spark.cores.max": "80"}, now=4, master=STANDALONE), 40),
        (frame({**MOST, "spark.cores.max": "12"}, now=4), 40),
        # Local mode ignores dynamic allocation.
        (frame(DYNAMIC, now=2, master="local[2]"), 2),
        # A lost executor is being replaced, or most executors have not registered yet.
        (frame(TEN, now=36), 40),
        (frame(TEN, now=0, master="k8s://https://host"), 40),
        (frame({**TEN, "spark.task.cpus": "3"}, now=1), 10),
        # The result is at least the number of existing task slots.
        (frame(TEN, now=44), 44),
        # Spark's default is two executors.
        (frame({}, now=4), 8),
        # These clusters ignore both settings.
        (frame({**CORES}, now=4), 8),
        (frame(TEN, now=4, master=STANDALONE), 4),
        (frame({**TEN, **CORES}, now=2, master="local[2]"), 2),
        # All possible cores count. If executor or task sizes are known, only whole executors and whole tasks count.
        (frame(CORES, now=4, master=STANDALONE), 14),
        (frame({**CORES, **FOUR}, now=4, master=STANDALONE), 12),
        (frame({**CORES, "spark.task.cpus": "4"}, now=1, master=STANDALONE), 3),
        (frame({**CORES, **FOUR, "spark.task.cpus": "3"}, now=1, master=STANDALONE), 3),
        (frame({"spark.cores.max": "3", **FOUR}, now=0, master=STANDALONE), 1),
        # Local mode runs inside the driver.
        (frame({}, now=1, master="local-cluster[2,1,1024]"), 2),
        (frame({}, now=1, master="local-cluster[ 3 , 6 , 1024 ]"), 18),
        (frame(FOUR, now=1, master="local-cluster[3,6,1024]"), 12),
        (frame(CORES, now=1, master="local-cluster[3,6,1024]"), 14),
        (frame({**DYNAMIC, **FOUR}, now=1, master="local-cluster[3,6,1024]"), 12),
    ],
)
def test_slots_of_requested_executors_count_before_they_register(df: Any, tasks: int) -> None:
    """Requested executors are counted before they register. Otherwise, each would push a batch above its rate."""
    assert sharing_tasks(df, None) == tasks
    assert sharing_tasks(df, 5) == 5


async def fn(row: Any) -> None: ...


def test_an_even_share_is_logged_once_in_an_application(caplog: pytest.LogCaptureFixture) -> None:
    """Without leases, one warning contains the assumption and the remedy, unless the user has given the number."""
    caplog.set_level("WARNING")
    df = frame({}, now=4, master=STANDALONE)
    plan, address = Plan(fn, rate_limit=10, tasks=4), ChannelAddress("", 0, b"")
    log_limits(df, plan, Limits(rate_limit=10), address)
    log_limits(df, Plan(fn, max_in_flight=10, tasks=4), Limits(max_in_flight=10), None)
    log_limits(df, plan, Limits(rate_limit=10, concurrent_tasks=4), None)
    assert caplog.messages == []
    for _ in range(2):
        log_limits(df, plan, Limits(rate_limit=10), None)
        log_limits(df, Plan(fn, tasks=4), Limits(), None)
    assert caplog.messages == [SPLIT.format(tasks=4)]


SPLIT = (
    "the driver cannot lease the job's limits to its tasks: each task uses 1/{tasks} of rate_limit, budget, "
    "max_in_flight_job and Auto.max, as if {tasks} tasks run at a time. Fewer tasks stay below the limits, and more "
    "exceed them; give Limits.concurrent_tasks"
)


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
    """The slots are counted once per session. Without a limit that the user can divide, no warning is logged."""
    caplog.set_level("WARNING")
    df: Any = OverConnect(f"session-{next(APPLICATIONS)}")
    budget = Budget(6000, cost=len)
    for _ in range(2):
        assert sharing_tasks(df, None) == 6
    assert df.jobs == 1
    log_limits(df, Plan(fn, tasks=6), Limits(), None)
    assert caplog.messages == []
    log_limits(df, Plan(fn, budget=budget, tasks=6), Limits(budget=budget), None)
    assert caplog.messages == [SPLIT.format(tasks=6)]
    assert sharing_tasks(df, 3) == 3
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
