"""Limits of a job, which the driver leases to the tasks; without leases, the tasks share them evenly."""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.driver.micro_batch import is_connect, is_local
from spark_events.enrichment.driver.warnings import warn_of_split
from spark_events.enrichment.engine.job_state import JobState
from spark_events.enrichment.engine.ledger import JobLimits, Ledger
from spark_events.enrichment.engine.process import LruCache
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_events.enrichment.worker.channel_client import ChannelAddress

_LOG = logging.getLogger(__name__)
#: Spark's default for dynamicAllocation.maxExecutors: Int.MaxValue.
_AS_MANY_AS_IT_LIKES = 2**31 - 1
#: Spark's default number of executors on YARN and Kubernetes, without dynamic allocation.
_EXECUTORS = 2
#: Pattern of a local cluster's master, with the number of workers and the cores of each worker.
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,")

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


def log_limits(df: DataFrame, plan: Plan, limits: Limits, address: ChannelAddress | None) -> None:
    """Log the limits; warn if the driver leases none, unless the user has given the number of tasks that share them.

    ``address`` is the address at which the driver leases the limits, or None.
    """
    tasks, is_shared = plan.tasks, address is None
    window = plan.task_window if is_shared else plan.window
    scope = "task" if is_shared or window.min == window.max else "job"
    rate = "" if plan.rate_limit is None else f", {plan.rate_limit:g} attempts per second of all tasks"
    _LOG.info("up to %s calls in flight per %s; up to %s concurrent tasks%s", f"{window.max:,}", scope, tasks, rate)
    if not is_shared or limits.concurrent_tasks is not None:
        return
    if limits_of(plan) or (window.min < window.max and not is_connect(df)):
        warn_of_split(df, tasks)


def sharing_tasks(df: DataFrame, given: int | None) -> int:
    """Return the number of tasks that share the job's limits where the driver leases none.

    It is the number of the cluster's task slots. The slots of executors that Spark may still add count too, because few
    executors may be running when a batch begins: at the start of an application, while Spark replaces a lost executor,
    or after dynamic allocation has removed idle executors.

    Args:
        df: the DataFrame.
        given: the number from ``Limits.concurrent_tasks``, or None.
    """
    if given is not None:
        return given
    if is_connect(df):
        return _slots_of_connect(df)
    scala = df.sparkSession.sparkContext._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    now = max(1, int(scala.maxNumConcurrentTasks(profile)))
    if is_local(df):
        return now
    return max(now, _most(str(df.sparkSession.sparkContext.master), scala.getConf(), profile) or 1)


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


def _most(master: str, conf: Any, profile: Any) -> int | None:
    """Return the maximum number of task slots that the settings allow, or None if they set no limit."""
    each = int(profile.maxTasksPerExecutor(conf))
    # Without spark.executor.cores, an executor of a standalone cluster uses all cores of its machine.
    size = int(conf.getInt("spark.executor.cores", 1)) if profile.isCoresLimitKnown() else None

    def of_cores(cores: int) -> int:
        return cores // int(conf.getInt("spark.task.cpus", 1)) if size is None else cores // size * each

    found = []
    if bool(conf.getBoolean("spark.dynamicAllocation.enabled", False)):
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
