"""Number of partitions of a DataFrame, found without running a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_events.enrichment.driver.micro_batch import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["partitions_of"]

#: Physical plan nodes of Spark 3.5 to 4 whose RDDs are created without a job: leaves that read available data, ...
_AT_HAND = (
    "CommandResultExec", "LocalTableScanExec", "OneRowRelationExec", "RDDScanExec", "RangeExec", "RowDataSourceScanExec"
)  # fmt: skip
#: ... and inner nodes that process each partition separately. Other nodes sort by range, broadcast, number rows or fill
#: a cache.
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
    # The planned number, which is an upper bound for a coalesce, and 0 if Spark does not know it.
    planned = int(plan.outputPartitioning().numPartitions())
    return planned or None


def _is_idle(plan: Any) -> bool:
    """Return whether the RDD is created without a job: no sampling, broadcast, subquery, cache or file listing."""
    if not plan.subqueries().isEmpty():
        return False
    kind = _kind(plan)
    if kind == "FileSourceScanExec":
        # The index of a partitioned table lists its files on first use, with a job if there are many.
        return _kind(plan.relation().location()) == "InMemoryFileIndex"
    children = plan.children()
    if kind not in (_ONE_BY_ONE if children.size() else _AT_HAND):
        return False
    return all(_is_idle(children.apply(place)) for place in range(children.size()))


def _kind(one: Any) -> str:
    return str(one.getClass().getSimpleName())
