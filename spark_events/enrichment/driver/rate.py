"""How many tasks run at the same time: a job's rate is split over them, and calls in flight add up over them."""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.driver.micro_batch import is_connect, is_local
from spark_events.enrichment.driver.partitions import partitions_of
from spark_events.enrichment.driver.warnings import warn_of_rate
from spark_events.enrichment.plan import Plan
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["rate_of_a_task", "tasks_at_a_time"]

_LOG = logging.getLogger(__name__)
#: Spark's own default for the most executors of a dynamic allocation: the greatest number that there is in Java.
_AS_MANY_AS_IT_LIKES = 2**31 - 1
#: Spark's own default for the executors of YARN and Kubernetes where they are not allocated dynamically.
_EXECUTORS = 2
#: Workers, and the cores of each.
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,")
#: A task that waits for longer, in seconds, looks like one that hangs.
_LONG_SECONDS = 10.0


def rate_of_a_task(plan: Plan, tasks: int | None) -> float | None:
    """One task's share of ``rate_limit``.

    Raises:
        InvalidPlanError: nobody knows of how many it is one.
    """
    if tasks is None:
        if plan.rate_limit is None:
            return None
        raise InvalidPlanError(
            "rate_limit is for the whole job, and here Spark does not tell how many tasks run at a time: "
            "give concurrent_tasks"
        )
    rate = None if plan.rate_limit is None else plan.rate_limit / tasks
    said = "" if rate is None else f", {plan.rate_limit:g} attempts a second ({rate:g} a task)"
    _LOG.info(
        "up to %s calls in flight: %s in each of %s tasks at a time%s",
        f"{plan.max_in_flight * tasks:,}", f"{plan.max_in_flight:,}", tasks, said,
    )  # fmt: skip
    if rate is not None and 1 / rate > _LONG_SECONDS:
        _LOG.warning(
            "with rate_limit=%g shared by %s tasks at a time, each task waits %.0f s before its first call;"
            " where fewer run at a time, give concurrent_tasks",
            plan.rate_limit, tasks, 1 / rate,
        )  # fmt: skip
    return rate


def tasks_at_a_time(df: DataFrame, plan: Plan, given: Any) -> int | None:
    """As the caller says; else the cluster's slots, or the partitions where these are fewer and can be known.

    Slots that may yet come count as well. None: neither is known.
    """
    if given is not None:
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise InvalidPlanError(f"concurrent_tasks is {given!r}; allowed: a whole number of at least 1")
        return given
    if is_connect(df):
        return None
    slots, is_bounded = _slots(df, looks_back=plan.rate_limit is not None)
    partitions = partitions_of(df)
    known = [number for number in (slots, partitions) if number is not None]
    if not known:
        return None
    tasks = max(1, min(known))
    if not is_bounded and plan.rate_limit is not None and tasks != partitions:
        warn_of_rate(df)
    return tasks


def _slots(df: DataFrame, looks_back: bool) -> tuple[int | None, bool]:
    """Of all executors that may come, and whether there can be no more: a batch may begin while few of them are there.

    Some have not come yet when an application begins, one that was lost is being replaced, or, with dynamic allocation,
    they were idle and have been ended. None: as many as Spark likes. To look back takes calls to the JVM for each
    executor that there ever was.
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
    return max(now, _ever(scala)) if looks_back else now, False


def _most(master: str, conf: Any, profile: Any, is_dynamic: bool) -> int | None:
    """The slots that settings let the application have; None: they do not say."""
    each = int(profile.maxTasksPerExecutor(conf))
    # A standalone cluster that is not told spark.executor.cores gives an executor all that its machine has.
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


def _ever(scala: Any) -> int:
    """The most slots that the application's executors have had at a time, as far back as Spark remembers them."""
    changes: list[tuple[int, int]] = []
    with contextlib.suppress(Exception):  # it is not a part of Spark that anybody has promised
        executors = scala.statusStore().executorList(False)
        for place in range(executors.size()):
            executor = executors.apply(place)
            slots, removed = int(executor.maxTasks()), executor.removeTime()
            changes.append((int(executor.addTime().getTime()), slots))
            if removed.isDefined():
                changes.append((int(removed.get().getTime()), -slots))
    # Of the same moment, what goes is before what comes.
    return max(itertools.accumulate(slots for _, slots in sorted(changes)), default=0)
