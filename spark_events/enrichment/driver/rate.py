"""Limits of a job, which the driver leases to the tasks or divides among concurrent tasks."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from spark_events.enrichment.driver.micro_batch import is_connect, is_local
from spark_events.enrichment.engine.ledger import JobLimits, Ledger
from spark_events.enrichment.engine.process import LruCache
from spark_events.enrichment.plan import Plan
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)
#: If a task's first wait exceeds this many seconds, the driver logs a warning, because the task appears to hang.
_LONG_SECONDS = 10.0


#: Ledgers of this application, by function and limits. The micro-batches of a stream share one ledger.
_ledgers: LruCache[Ledger] = LruCache()
_ledgers_lock = threading.Lock()


def limits_of(plan: Plan) -> JobLimits:
    """Return the limits that apply to the whole job."""
    amount = None if plan.budget is None else plan.budget.per_minute
    return JobLimits(plan.rate_limit, amount, plan.max_in_flight_job)


def ledger_of(plan: Plan, calls: str) -> Ledger:
    """Return the ledger for the job's limits; ``calls`` is the digest of the function."""
    limits = limits_of(plan)
    with _ledgers_lock:
        return _ledgers.get((calls, limits), lambda: Ledger(limits))


def sharing_tasks(df: DataFrame, plan: Plan, given: int | None, *, leases: bool) -> int:
    """Return the number of tasks that share the job's limits without leases; 1 if the job has no limits.

    Args:
        df: the DataFrame.
        plan: the plan of the enrichment.
        given: the number from ``Limits.concurrent_tasks``, or None.
        leases: whether the driver leases the limits to the tasks that reach its port. If so, the default is the number
            of slots that the cluster has now; it applies to tasks that do not reach the port.

    Raises:
        InvalidPlanError: when the number is required: without leases, unless the only executor is the driver.
    """
    names = names_of_limits(plan)
    if given is not None or not names:
        return given or 1
    if not leases and (is_connect(df) or not is_local(df)):
        raise InvalidPlanError(
            f"{names[0]} applies to the whole job, but the driver cannot lease it to the tasks here, and does not know "
            "how many tasks run at a time: give Limits.concurrent_tasks"
        )
    scala = df.sparkSession.sparkContext._jsc.sc()
    return max(1, int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())))


def executors_of(df: DataFrame) -> int:
    """Return the number of executors that can run tasks now, at least 1.

    The result is 1 in local mode, on Connect, which has no API for this number, and before the first executor has
    registered.
    """
    if is_connect(df) or is_local(df):
        return 1
    # The map also has an entry for the driver.
    return max(1, int(df.sparkSession.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1)


def names_of_limits(plan: Plan) -> list[str]:
    """Return the names of a plan's job-wide limits."""
    names = {"rate_limit": plan.rate_limit, "budget": plan.budget, "max_in_flight_job": plan.max_in_flight_job}
    return [name for name, value in names.items() if value is not None]


def log_limits(plan: Plan, tasks: int, *, leases: bool) -> None:
    """Log the limits of the calls; ``tasks`` share the limits of the job unless the driver leases them."""
    window = plan.window
    scope = "task" if window.min == window.max else "executor"
    _LOG.info("up to %s calls in flight per %s", f"{window.max:,}", scope)
    # With another limit, a task makes its first attempt at once, see Request.task.
    if leases or plan.rate_limit is None or names_of_limits(plan) != ["rate_limit"]:
        return
    seconds = tasks / plan.rate_limit
    if seconds > _LONG_SECONDS:
        _LOG.warning(
            "rate_limit=%g is shared by %s concurrent tasks, so each task waits %.0f s before its first call;"
            " if fewer tasks run at a time, give a smaller Limits.concurrent_tasks",
            plan.rate_limit, tasks, seconds,
        )  # fmt: skip
