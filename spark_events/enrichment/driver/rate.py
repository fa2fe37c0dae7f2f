"""Limits of a job, which the driver leases to the tasks or divides among concurrent tasks."""

from __future__ import annotations

import dataclasses
import logging
import re
import threading
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.driver.micro_batch import is_connect, is_local
from spark_events.enrichment.driver.warnings import warn_of_rate, warn_of_split
from spark_events.enrichment.engine.job_state import JobState
from spark_events.enrichment.engine.ledger import JobLimits, Ledger
from spark_events.enrichment.engine.process import LruCache
from spark_events.enrichment.plan import Plan
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Nodes of Spark's physical plans, versions 3.5 to 4, whose RDDs are created without a job: leaf nodes that read
#: available data, ...
_AT_HAND = (
    "CommandResultExec", "LocalTableScanExec", "OneRowRelationExec", "RDDScanExec", "RangeExec", "RowDataSourceScanExec"
)  # fmt: skip
#: ... and inner nodes that process each partition separately. Other nodes may run a job: to sort by range, to
#: broadcast, to number rows or to fill a cache.
_ONE_BY_ONE = (
    "ArrowEvalPythonExec", "BatchEvalPythonExec", "CoalesceExec", "ColumnarToRowExec", "ExpandExec", "FilterExec",
    "GenerateExec", "InputAdapter", "MapInArrowExec", "MapInPandasExec", "ProjectExec", "PythonMapInArrowExec",
    "SampleExec", "SortExec", "UnionExec", "WholeStageCodegenExec",
)  # fmt: skip


def partitions_of(df: DataFrame) -> int | None:
    """Return the number of partitions, or None if it is unknown without running a job."""
    if is_connect(df) or df.isStreaming:
        return None
    execution = df._jdf.queryExecution()
    plan = execution.executedPlan()
    if "Adaptive" in _kind(plan):
        return None  # adaptive execution decides the number at run time
    if _is_idle(plan):
        return int(execution.toRdd().getNumPartitions())
    # Use the planned number. It is an upper bound for a coalesce, and 0 if Spark does not know it.
    planned = int(plan.outputPartitioning().numPartitions())
    return planned or None


def _is_idle(plan: Any) -> bool:
    """Return whether Spark creates the RDD without a job: no sampling, broadcast, subquery, cache or file listing."""
    if not plan.subqueries().isEmpty():
        return False
    kind = _kind(plan)
    if kind == "FileSourceScanExec":
        # The index of a partitioned table lists its files on first use; for many files, the listing runs a job.
        return _kind(plan.relation().location()) == "InMemoryFileIndex"
    children = plan.children()
    if kind not in (_ONE_BY_ONE if children.size() else _AT_HAND):
        return False
    return all(_is_idle(children.apply(index)) for index in range(children.size()))


def _kind(one: Any) -> str:
    return str(one.getClass().getSimpleName())


_LOG = logging.getLogger(__name__)
#: Spark's default for dynamicAllocation.maxExecutors: Int.MaxValue.
_AS_MANY_AS_IT_LIKES = 2**31 - 1
#: Spark's default number of executors on YARN and Kubernetes, without dynamic allocation.
_EXECUTORS = 2
#: Pattern of a local cluster's master, with the number of workers and the cores of each worker.
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,")
#: If a task's first wait exceeds this many seconds, the driver logs a warning, because the task appears to hang.
_LONG_SECONDS = 10.0


#: Ledgers and states of this application, by function and limits. The micro-batches of a stream share them.
_ledgers: LruCache[Ledger] = LruCache()
_states: LruCache[JobState] = LruCache()
_ledgers_lock = threading.Lock()
#: Number of task slots of each Connect server, by session id.
_connect_slots: dict[str, int] = {}
#: Number of rows of the DataFrame that reveals the task slots of a Connect server by its default number of partitions.
_PROBE_ROWS = 100_000


def limits_of(plan: Plan) -> JobLimits:
    """Return the limits that apply to the whole job."""
    amount = None if plan.budget is None else plan.budget.per_minute
    return JobLimits(plan.rate_limit, amount, plan.max_in_flight_job)


def ledger_of(plan: Plan, calls: str) -> Ledger | None:
    """Return the ledger for the job's limits, or None without limits; ``calls`` is the digest of the function."""
    if not (limits := limits_of(plan)):
        return None
    with _ledgers_lock:
        return _ledgers.get((calls, limits), lambda: Ledger(limits))


def state_of(plan: Plan, calls: str) -> JobState:
    """Return the window, unless each task has a fixed number of calls in flight, and the allowed rate of the job."""
    bounds = plan.window
    is_fixed = bounds.min == bounds.max
    with _ledgers_lock:
        return _states.get((calls, bounds.min, bounds.max), lambda: JobState(None if is_fixed else bounds))


def sharing_tasks(df: DataFrame, plan: Plan, given: int | None, *, leases: bool) -> int | None:
    """Return the number of tasks that share the job's limits without leases.

    The result is None if the number is unknown.

    Args:
        df: the DataFrame, partitioned and sorted for the calls.
        plan: the plan of the enrichment.
        given: the number from ``Limits.concurrent_tasks``, or None.
        leases: whether the driver leases the limits to the tasks that reach its port. If so, the current number of
            slots replaces an unknown number.
    """
    if given is not None or not limits_of(plan):
        return tasks_at_a_time(df, plan, given)
    if is_connect(df):
        slots = _slots_of_connect(df)
        warn_of_split(df, slots)
        return slots
    tasks = tasks_at_a_time(df, plan, None, warns=not leases)
    if tasks is None and leases:
        scala = df.sparkSession.sparkContext._jsc.sc()
        tasks = max(1, int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())))
    return tasks


def _slots_of_connect(df: DataFrame) -> int:
    """Return the current number of task slots of a Connect server.

    The number is the server's default number of partitions. Connect has no API for this number, so a job counts the
    partitions once per session, in a few milliseconds.
    """
    session = df.sparkSession
    known = str(session.session_id)  # type: ignore[attr-defined]
    if known not in _connect_slots:
        partitions = session.range(_PROBE_ROWS).selectExpr("spark_partition_id() AS partition")
        # Connect 3.5 returns numpy integers.
        _connect_slots[known] = max(1, int(partitions.distinct().count()))
    return _connect_slots[known]


def names_of_limits(plan: Plan) -> list[str]:
    """Return the names of a plan's job-wide limits."""
    names = {"rate_limit": plan.rate_limit, "budget": plan.budget, "max_in_flight_job": plan.max_in_flight_job}
    return [name for name, value in names.items() if value is not None]


def check_tasks(plan: Plan, tasks: int | None, *, leases: bool = False) -> None:
    """Check that the tasks can share the job's limits, and log the limits.

    Raises:
        InvalidPlanError: when the job has limits and the number of concurrent tasks is unknown.
    """
    if tasks is None:
        if names := names_of_limits(plan):
            raise InvalidPlanError(
                f"{names[0]} applies to the whole job, but Spark does not report how many tasks run at a time here: "
                "give Limits.concurrent_tasks"
            )
        return
    rate = None if plan.rate_limit is None else plan.rate_limit / tasks
    limit = "" if rate is None else f", {plan.rate_limit:g} attempts per second ({rate:g} per task)"
    window = plan.window if leases else dataclasses.replace(plan, tasks=tasks).task_window
    scope = "job" if leases and window.min < window.max else "task"
    _LOG.info("up to %s calls in flight per %s; up to %s concurrent tasks%s", f"{window.max:,}", scope, tasks, limit)
    # With another limit, a task makes its first attempt at once, see Request.task.
    waits = not leases and names_of_limits(plan) == ["rate_limit"]
    if rate is not None and waits and 1 / rate > _LONG_SECONDS:
        _LOG.warning(
            "rate_limit=%g is shared by %s concurrent tasks, so each task waits %.0f s before its first call;"
            " if fewer tasks run at a time, give Limits.concurrent_tasks",
            plan.rate_limit, tasks, 1 / rate,
        )  # fmt: skip


def tasks_at_a_time(df: DataFrame, plan: Plan, given: int | None, *, warns: bool = True) -> int | None:
    """Return the number of tasks that run concurrently, or None if it is unknown.

    If the caller specified a number, the function returns this number. Otherwise, the result is the number of the
    cluster's task slots, including slots that may still be added. If the number of partitions is known and smaller, the
    result is this number.
    """
    if given is not None:
        return given
    if is_connect(df):
        return None
    is_limited = bool(limits_of(plan))
    slots, is_bounded = _slots(df)
    # Counting the partitions takes dozens of calls of the JVM. In local mode, only limits of the job depend on them.
    partitions = partitions_of(df) if is_limited or not is_local(df) else None
    known = [number for number in (slots, partitions) if number is not None]
    if not known:
        return None
    tasks = max(1, min(known))
    if warns and not is_bounded and is_limited and tasks != partitions:
        warn_of_rate(df, names_of_limits(plan))
    return tasks


def _slots(df: DataFrame) -> tuple[int | None, bool]:
    """Return the task slots of all executors that may run, and whether this number is an upper bound.

    The slots of executors that Spark may still add count too, because few executors may be running when a batch begins:
    at the start of an application, while Spark replaces a lost executor, or after dynamic allocation has removed idle
    executors. None means that Spark sets no limit.
    """
    scala = df.sparkSession.sparkContext._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    now = max(1, int(scala.maxNumConcurrentTasks(profile)))
    if is_local(df):
        return now, True
    conf = scala.getConf()
    is_dynamic = bool(conf.getBoolean("spark.dynamicAllocation.enabled", False))
    most = _most(str(df.sparkSession.sparkContext.master), conf, profile, is_dynamic)
    if most is not None:
        return max(now, most), True
    if is_dynamic:
        return None, False
    return now, False


def _most(master: str, conf: Any, profile: Any, is_dynamic: bool) -> int | None:
    """Return the maximum number of task slots that the settings allow, or None if they set no limit."""
    each = int(profile.maxTasksPerExecutor(conf))
    # Without spark.executor.cores, an executor of a standalone cluster uses all cores of its machine.
    size = int(conf.getInt("spark.executor.cores", 1)) if profile.isCoresLimitKnown() else None

    def of_cores(cores: int) -> int:
        return cores // int(conf.getInt("spark.task.cpus", 1)) if size is None else cores // size * each

    found = []
    if is_dynamic:
        executors = int(conf.getInt("spark.dynamicAllocation.maxExecutors", _AS_MANY_AS_IT_LIKES))
        if executors != _AS_MANY_AS_IT_LIKES and size is not None:
            found.append(executors * each)
    elif master.lower() == "yarn" or master.startswith("k8s://"):
        found.append(int(conf.getInt("spark.executor.instances", _EXECUTORS)) * each)
    workers = _LOCAL_CLUSTER.match(master)
    if workers:
        found.append(int(workers[1]) * of_cores(int(workers[2])))
    if workers or master.startswith("spark://"):
        cores = int(conf.getInt("spark.cores.max", _AS_MANY_AS_IT_LIKES))
        if cores != _AS_MANY_AS_IT_LIKES:
            found.append(of_cores(cores))
    return min(found, default=None)
