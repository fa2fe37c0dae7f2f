"""How many tasks run at the same time: a job's rate is split over them, and calls in flight add up over them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from spark_events.enrich.plan import Plan
from spark_events.enrich.spark.batches import is_connect
from spark_events.enrich.spark.counting import partitions_of
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["rate_of_a_task", "tasks_at_a_time"]

_LOG = logging.getLogger(__name__)


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
    return rate


def tasks_at_a_time(df: DataFrame, given: Any) -> int | None:
    """As the caller says; else the cluster's slots, or the partitions where these are fewer and can be known."""
    if given is not None:
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise InvalidPlanError(f"concurrent_tasks is {given!r}; allowed: a whole number of at least 1")
        return given
    if is_connect(df):
        return None
    context = df.sparkSession.sparkContext
    scala = context._jsc.sc()
    slots = max(1, int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())))
    partitions = partitions_of(df)
    return slots if partitions is None else max(1, min(slots, partitions))
