"""Put rows with equal keys into one partition, in order, so that their calls run one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.api.schema import existing, quoted
from spark_events.enrichment.driver.micro_batch import is_connect
from spark_events.enrichment.plan import Plan
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["arranged", "check_shared_answers", "partitions_of"]

#: Shuffles that the plan requests by columns. Adaptive execution may merge partitions of such a shuffle but never
#: splits them. In contrast, it splits partitions of a rebalance, and of a join with skewed keys.
_NEVER_SPLIT = ("REPARTITION_BY_COL", "REPARTITION_BY_NUM")
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


def arranged(
    df: DataFrame, key: Sequence[str] | None, order_by: str | Column | Sequence[str | Column] | None
) -> DataFrame:
    """Return a DataFrame in which rows with equal keys share a partition; ``df`` itself if they already do.

    A shuffle loses the order of the rows, so the caller must name the columns that restore the order. Rows are sorted
    by these columns only and not by key. Rows of different keys then alternate, and their calls run concurrently.

    Raises:
        InvalidPlanError: when ``order_by`` is missing, or cannot be applied.
    """
    if key is None:
        return df
    columns = existing(df, "key", key)
    together = _are_together(df, columns)
    if order_by is None:
        if together:
            return df
        raise InvalidPlanError(
            f"key={list(columns)!r}: rows with equal keys may be in different partitions. A shuffle would "
            "gather them but lose their order: give Key an order_by with the columns that restore the order"
        )
    sort: list[Any] = (
        [order_by] if isinstance(order_by, str) or not isinstance(order_by, Sequence) else list(order_by)
    )  # fmt: skip
    by = [quoted(*existing(df, "Key.order_by", [one])) if isinstance(one, str) else one for one in sort]
    if not by:
        raise InvalidPlanError("Key.order_by is empty; allowed: one or more columns")
    if df.isStreaming:
        raise InvalidPlanError("Spark cannot sort a streaming DataFrame: use key with enrich_batch, in foreachBatch")
    gathered = df if together else df.repartition(*(quoted(column) for column in columns))
    return gathered.sortWithinPartitions(*by)


def check_shared_answers(plan: Plan, inputs: Sequence[str]) -> None:
    """Check that rows share answers only within their key if a failed row must stop the later rows of its key.

    A row that shares the call of another key does not delay the later rows of its own key, so the function would be
    called for these rows even if the shared call fails.

    Raises:
        InvalidPlanError: when a column of the key is not part of the requests.
    """
    if plan.key is None or plan.on_failure != "fail" or (plan.coalesce_by is None and plan.cache is None):
        return
    name, request = ("input_cols", inputs) if plan.coalesce_by is None else ("Cache.by", plan.coalesce_by)
    for column in plan.key:
        if column not in request:
            raise InvalidPlanError(
                f"{name} lacks {column!r}, a column of key. Rows with different keys would share one call, so calls "
                f"would follow a failed row of their key. Add {column!r} to {name}, or set another on_failure "
                "than 'fail'"
            )


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


def _are_together(df: DataFrame, columns: Sequence[str]) -> bool:
    if is_connect(df):
        return False
    if partitions_of(df) == 1:
        return True
    if df.isStreaming:
        return False
    execution = df._jdf.queryExecution()
    most = execution.optimizedPlan().maxRows()
    if most.isDefined() and most.get() <= 1:
        return True
    plan = execution.sparkPlan()
    source = _source(plan)
    if source is None:
        return False
    # Read this from the source: adaptive execution removes a limit that exceeds the number of rows, and its partition.
    if source.outputPartitioning().getClass().getSimpleName() == "SinglePartition$":
        return True
    partitioning = plan.outputPartitioning()
    if partitioning.getClass().getSimpleName() != "HashPartitioning":
        return False
    expressions = partitioning.expressions()
    hashed = [expressions.apply(index) for index in range(expressions.size())]
    if not all(one.getClass().getSimpleName() == "AttributeReference" for one in hashed):
        return False
    # Compare expression ids, by which Spark tracks original columns. A Python function returns new columns, even
    # under old names.
    attributes = plan.output()
    output = [attributes.apply(index) for index in range(attributes.size())]
    key = {one.exprId().id() for one in output if one.name() in columns}
    # A shuffle by a subset of the key's columns is sufficient, because rows with equal keys are also equal in the
    # subset.
    return {one.exprId().id() for one in hashed} <= key


def _source(plan: Any) -> Any | None:
    """Return the shuffle or ``coalesce`` from which rows come directly, or None if its partitions may be split.

    The plan is Spark's plan before Spark adds shuffles and before adaptive execution. Therefore no node on the path may
    require a distribution: for such a node, Spark might add another shuffle, by other columns.
    """
    while True:
        kind = plan.getClass().getSimpleName()
        if kind == "ShuffleExchangeExec":
            return plan if plan.shuffleOrigin().toString() in _NEVER_SPLIT else None
        if kind == "CoalesceExec" and plan.numPartitions() == 1:
            return plan
        if kind == "InMemoryTableScanExec":
            plan = plan.relation().cachedPlan()
        elif kind == "AdaptiveSparkPlanExec":
            plan = plan.inputPlan()
        elif plan.children().size() == 1 and _is_undemanding(plan):
            plan = plan.children().head()
        else:
            return None


def _is_undemanding(plan: Any) -> bool:
    return str(plan.requiredChildDistribution().head().getClass().getSimpleName()) == "UnspecifiedDistribution$"
