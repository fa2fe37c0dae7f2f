"""Tests of partitioning and number of partitions, which enrichment reads from Spark's plan without running a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from spark_events import InvalidPlanError, Limits, Replay, enrich
from spark_events.enrichment.api.key_order import partitions_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


async def same(row: Any) -> dict[str, Any]:
    return {"answer": None}


def changed(batches: Iterator[Any]) -> Iterator[Any]:
    """Change the key column of each batch."""
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
        # This function changes no column, but Spark's plan does not contain this information.
        lambda df: enrich(df, same, output="earlier string"),
    ],
)
def test_partitioning_is_unknown_after_a_function_over_batches(
    spark: SparkSession, through: Callable[[DataFrame], DataFrame]
) -> None:
    """After a function over batches, partitioning is unknown, because the function may have changed the key column."""
    df = spark.range(0, 40, 1, 2).selectExpr("id % 3 as k", "id").repartition(2, "k")
    enrich(df, same, output="answer string", key="k")
    with pytest.raises(InvalidPlanError, match="give Key"):
        enrich(through(df), same, output="answer string", key="k")
    enrich(through(df).repartition(2, "k"), same, output="answer string", key="k")


@pytest.fixture(params=["false", "true"], ids=["as planned", "adaptive"])
def adaptive(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Run the test with and without adaptive execution, using sorts in several partitions."""
    settings = {"spark.sql.adaptive.enabled": request.param, "spark.sql.shuffle.partitions": "3"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield request.param == "true"
    for name, value in before.items():
        spark.conf.set(name, str(value))
    spark.catalog.clearCache()


@pytest.mark.parametrize(
    ("made", "is_single"),
    [
        (lambda df: df.repartition(1), True),
        (lambda df: df.repartition(1).where("id > 1").selectExpr("id", "id % 3 as k"), True),
        (lambda df: df.repartition(4).coalesce(1), True),
        (lambda df: ordered(df).coalesce(1), True),
        (lambda df: df.agg(functions.max("id").alias("k")), True),
        (lambda df: df.repartition(4, "k").agg(functions.max("k").alias("k")).selectExpr("k + 1 as k"), True),
        (lambda df: df.repartition(1).limit(100), True),
        (lambda df: df.repartition(1).cache(), True),
        (lambda df: df.repartition(2), False),
        (lambda df: ordered(df).coalesce(2), False),
        # Spark adds shuffles by the join's columns.
        (lambda df: df.repartition(1).join(df.selectExpr("id", "1 as more").hint("merge"), "id", "left"), False),
        (lambda df: df.repartition(1).union(df), False),
        # Adaptive execution removes a limit that exceeds the number of rows.
        (lambda df: df.selectExpr("explode(array(k)) as k").repartition(4).limit(100), None),
    ],
)
def test_a_single_partition_is_recognised(
    spark: SparkSession, adaptive: bool, made: Callable[[DataFrame], DataFrame], is_single: bool | None
) -> None:
    """Rows of one partition need no shuffle for a key, with and without adaptive execution."""
    df = made(spark.range(0, 40, 1, 2).selectExpr("id", "id % 3 as k"))
    if is_single is None:
        is_single = not adaptive
    if is_single:
        out = enrich(df, same, output="answer string", key="k")
        assert out.rdd.getNumPartitions() == 1
    else:
        with pytest.raises(InvalidPlanError, match="give Key"):
            enrich(df, same, output="answer string", key="k")


def jobs(spark: SparkSession) -> int:
    """Return the jobs that Spark has started."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def ordered(df: DataFrame) -> DataFrame:
    return df.orderBy(functions.desc("id"))


@pytest.mark.parametrize(
    ("made", "planned"),
    [
        (ordered, 3),
        (lambda df: ordered(enrich(df, same, output="earlier string")), 3),
        (lambda df: df.union(ordered(df)), None),
        (lambda df: df.join(functions.broadcast(df.selectExpr("id", "1 as other")), "id"), 2),
        (lambda df: df.join(df.selectExpr("id", "1 as other").hint("merge"), "id"), None),
        (lambda df: df.where("id > (select max(id) from range(3))"), 2),
        (lambda df: ordered(df).limit(5).selectExpr("id + 1 as id"), 1),
        (lambda df: ordered(df).cache(), None),
        (lambda df: ordered(df).cache().where("id > 1"), None),
    ],
)
def test_defining_an_enrichment_runs_no_job(
    spark: SparkSession, adaptive: bool, made: Callable[[DataFrame], DataFrame], planned: int | None
) -> None:
    """Defining an enrichment runs no job, even if the input has a sort, broadcast, subquery, cache or enrichment."""
    df = made(spark.range(0, 40, 1, 2))
    before = jobs(spark)
    enrich(df, same, output="answer string", limits=Limits(rate_limit=100))
    counted = partitions_of(df)
    assert jobs(spark) == before
    if planned is not None:
        assert counted in ((None, planned) if adaptive else (planned,))


@pytest.mark.parametrize(
    ("made", "partitions"),
    [
        (lambda df: df, 4),
        (lambda df: df.where("id > 1").selectExpr("id", "explode(array(id, 1)) as one").sortWithinPartitions("one"), 4),
        (lambda df: df.union(df).coalesce(6).sample(0.5), 6),
        (lambda df: df.coalesce(9), 4),
        (lambda df: enrich(df, same, output="earlier string"), 4),
        (lambda df: df.localCheckpoint(), 4),
        (lambda df: df.sparkSession.createDataFrame(df.rdd.map(tuple), "id long"), 4),
    ],
)
def test_existing_partitions_are_counted(
    spark: SparkSession, adaptive: bool, made: Callable[[DataFrame], DataFrame], partitions: int
) -> None:
    """For input without a shuffle, the existing partitions are counted without a job."""
    df = made(spark.range(0, 40, 1, 4))
    before = jobs(spark)
    assert partitions_of(df) == partitions
    assert jobs(spark) == before


def test_partitions_of_files_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    """Partitions of files are counted without a job, because Spark lists the files when it creates the DataFrame."""
    spark.range(0, 40, 1, 4).write.parquet(str(tmp_path / "rows"))
    df = spark.read.parquet(str(tmp_path / "rows")).coalesce(3).where("id > 3")
    before = jobs(spark)
    assert partitions_of(df) == df.rdd.getNumPartitions()
    assert jobs(spark) == before


async def keyed(row: Any, ctx: Any) -> dict[str, Any]:
    return {"answer": ctx.idempotency_key}


@pytest.mark.parametrize(
    ("made", "columns", "warns"),
    [
        (lambda df: df.selectExpr("id", "uuid() as request"), None, True),
        (lambda df: df.selectExpr("id", "rand() as `a.b`"), ["id", "a.b"], True),
        (lambda df: df.selectExpr("id", "uuid() as request"), ["id"], False),
        (lambda df: df.selectExpr("id", "id + 1 as request").localCheckpoint(), None, False),
    ],
)
def test_keys_of_values_that_differ_in_each_run_are_logged(
    spark: SparkSession,
    made: Callable[[DataFrame], DataFrame],
    columns: list[str] | None,
    warns: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If Spark computes an identifying column anew in each run, no key is stable. The other columns do not matter."""

    async def reads(row: Any, ctx: Any) -> dict[str, Any]:
        return await keyed(row, ctx)

    # The warning is logged once for a function and its columns.
    reads.__qualname__ = f"reads {columns} {warns}"
    enrich(made(spark.range(3)), reads, output="answer string", replay=Replay(idempotency_cols=columns))
    found = [message for message in caplog.messages if "computes anew" in message]
    assert len(found) == warns
    assert all("in Replay.idempotency_cols" in message for message in found)
