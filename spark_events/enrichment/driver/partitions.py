"""How many partitions a DataFrame will have, without running anything for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_events.enrichment.driver.micro_batch import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["partitions_of"]

#: Nodes of a physical plan whose RDDs are made without a job, by Spark 3.5 to 4: they read what is at hand, ...
_AT_HAND = (
    "CommandResultExec", "LocalTableScanExec", "OneRowRelationExec", "RDDScanExec", "RangeExec", "RowDataSourceScanExec"
)  # fmt: skip
#: ... or take one partition after the other as it comes. Others sort by range, broadcast, number rows or fill a cache.
_ONE_BY_ONE = (
    "ArrowEvalPythonExec", "BatchEvalPythonExec", "CoalesceExec", "ColumnarToRowExec", "ExpandExec", "FilterExec",
    "GenerateExec", "InputAdapter", "MapInArrowExec", "MapInPandasExec", "ProjectExec", "PythonMapInArrowExec",
    "SampleExec", "SortExec", "UnionExec", "WholeStageCodegenExec",
)  # fmt: skip


def partitions_of(df: DataFrame) -> int | None:
    """How many, where that can be known without running anything."""
    if is_connect(df) or df.isStreaming:
        return None
    execution = df._jdf.queryExecution()
    plan = execution.executedPlan()
    if "Adaptive" in _kind(plan):
        return None  # it is decided while it runs
    if _is_idle(plan):
        return int(execution.toRdd().getNumPartitions())
    # What Spark has planned, which for a coalesce is the most that there will be; 0 where it does not know.
    planned = int(plan.outputPartitioning().numPartitions())
    return planned or None


def _is_idle(plan: Any) -> bool:
    """Whether its RDD is made without a job: no sampling, broadcast, subquery or cache, and no list of files."""
    if not plan.subqueries().isEmpty():
        return False
    kind = _kind(plan)
    if kind == "FileSourceScanExec":
        # The index of a table with partitions lists its files when it is asked, with a job where there are many.
        return _kind(plan.relation().location()) == "InMemoryFileIndex"
    children = plan.children()
    if kind not in (_ONE_BY_ONE if children.size() else _AT_HAND):
        return False
    return all(_is_idle(children.apply(place)) for place in range(children.size()))


def _kind(one: Any) -> str:
    return str(one.getClass().getSimpleName())
