"""What is read off Spark's plan before anything runs: where rows of a key lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_events import InvalidPlanError, enrich

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


async def same(row: Any) -> dict[str, Any]:
    return {"answer": None}


def changed(batches: Iterator[Any]) -> Iterator[Any]:
    """The key is another one afterwards."""
    for batch in batches:
        yield batch.set_column(0, "k", batch.column("id"))


def changed_frames(frames: Iterator[Any]) -> Iterator[Any]:
    for frame in frames:
        yield frame.assign(k=frame["id"])


@pytest.mark.parametrize(
    "through",
    [
        lambda df: df.mapInArrow(changed, df.schema),
        lambda df: df.mapInPandas(changed_frames, df.schema),
        lambda df: df.mapInArrow(changed, df.schema).where("id > 1"),
        # It changes nothing, but who knows that a function does not?
        lambda df: enrich(df, same, output="earlier string"),
    ],
)
def test_behind_a_function_over_whole_batches_nobody_knows_where_keys_lie(
    spark: SparkSession, through: Callable[[DataFrame], DataFrame]
) -> None:
    """Spark says of what it makes that it lies by a column of that name, which is not the one it has now."""
    df = spark.range(0, 40, 1, 2).selectExpr("id % 3 as k", "id").repartition(2, "k")
    enrich(df, same, output="answer string", key="k")
    with pytest.raises(InvalidPlanError, match="give sort_within_key"):
        enrich(through(df), same, output="answer string", key="k")
    enrich(through(df).repartition(2, "k"), same, output="answer string", key="k")
