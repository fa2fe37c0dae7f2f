"""Rows of equal keys in one partition and in order, where their calls must be made one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.api.schema import existing, quoted
from spark_events.enrichment.driver.micro_batch import is_connect
from spark_events.enrichment.driver.partitions import partitions_of
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["arranged"]

#: Shuffles that were asked for by columns: when Spark adapts the plan it merges their partitions, and never splits one.
#: It splits those of a rebalance, and those of a join whose keys are skewed.
_NEVER_SPLIT = ("REPARTITION_BY_COL", "REPARTITION_BY_NUM")


def arranged(
    df: DataFrame, key: Sequence[str] | None, sort_within_key: str | Column | Sequence[str | Column] | None
) -> DataFrame:
    """The DataFrame itself where equal keys are in one partition already, else one that is so.

    A shuffle loses the order in which rows came, so the caller must say by what it is restored. Rows are sorted by that
    alone and not by key: rows of different keys then alternate, and are called at the same time.

    Raises:
        InvalidPlanError: ``sort_within_key`` is missing, or given without ``key``, or cannot be done.
    """
    if key is None:
        if sort_within_key is not None:
            raise InvalidPlanError("sort_within_key is given without key: give both, or neither")
        return df
    columns = existing(df, "key", key)
    together = _are_together(df, columns)
    if sort_within_key is None:
        if together:
            return df
        raise InvalidPlanError(
            f"key={list(columns)!r}: rows with equal keys may be in different partitions. To be brought "
            "together they are shuffled, which loses their order: give sort_within_key, the columns that restore it"
        )
    sort: list[Any] = (
        [sort_within_key] if isinstance(sort_within_key, str) or not isinstance(sort_within_key, Sequence)
        else list(sort_within_key)
    )  # fmt: skip
    by = [quoted(*existing(df, "sort_within_key", [one])) if isinstance(one, str) else one for one in sort]
    if not by:
        raise InvalidPlanError("sort_within_key is empty; allowed: a column, or several")
    if df.isStreaming:
        raise InvalidPlanError("Spark cannot sort a streaming DataFrame: use key with enrich_batch, in foreachBatch")
    gathered = df if together else df.repartition(*(quoted(column) for column in columns))
    return gathered.sortWithinPartitions(*by)


def _are_together(df: DataFrame, columns: Sequence[str]) -> bool:
    if is_connect(df):
        return False
    if partitions_of(df) == 1:
        return True
    if df.isStreaming:
        return False
    plan = df._jdf.queryExecution().sparkPlan()
    if not _stays_together(plan):
        return False
    partitioning = plan.outputPartitioning()
    if partitioning.getClass().getSimpleName() != "HashPartitioning":
        return False
    expressions = partitioning.expressions()
    hashed = [expressions.apply(place) for place in range(expressions.size())]
    if not all(one.getClass().getSimpleName() == "AttributeReference" for one in hashed):
        return False
    # Not by their names: what a Python function makes has new columns, and Spark says of it how the old ones lay.
    attributes = plan.output()
    output = [attributes.apply(place) for place in range(attributes.size())]
    key = {one.exprId().id() for one in output if one.name() in columns}
    # By some of the key's columns is enough: rows that are equal in all are equal in these.
    return {one.exprId().id() for one in hashed} <= key


def _stays_together(plan: Any) -> bool:
    """Whether rows come straight from a shuffle that keeps its partitions whole.

    The plan is Spark's before shuffles are added to it, and before it is adapted. So nothing on the way may demand a
    distribution: Spark might shuffle for it once more, by other columns.
    """
    while True:
        kind = plan.getClass().getSimpleName()
        if kind == "ShuffleExchangeExec":
            return plan.shuffleOrigin().toString() in _NEVER_SPLIT
        if kind == "InMemoryTableScanExec":
            plan = plan.relation().cachedPlan()
        elif kind == "AdaptiveSparkPlanExec":
            plan = plan.inputPlan()
        elif plan.children().size() == 1 and _is_undemanding(plan):
            plan = plan.children().head()
        else:
            return False


def _is_undemanding(plan: Any) -> bool:
    return str(plan.requiredChildDistribution().head().getClass().getSimpleName()) == "UnspecifiedDistribution$"
