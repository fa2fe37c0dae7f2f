"""Tests of column names that Spark would parse as a path or as a quoted name, in all arguments."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import LongType, StructField, StructType
from spark.enriching import first

from spark_events import Cache, InvalidPlanError, Key, OnFailure, Replay, Retry, enrich, enrich_batch

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

OUTPUT = StructType([StructField("new.x", LongType()), StructField("new`y", LongType())])


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    # Spark would also parse `a.b` as a field of a struct.
    return spark.range(0, 6, 1, 2).selectExpr(
        "id as `a.b`", "id * 10 as `c``d`", "named_struct('b', -1) as a", "id % 2 as k"
    )


async def both(row: Any) -> dict[str, Any]:
    if row["a.b"] == 5:
        raise ValueError("five")
    return {"new.x": row["a.b"] + 100, "new`y": row["c`d"] + 100}


async def dotted(row: Any) -> dict[str, Any]:
    return {"new.x": row["a.b"], "new`y": len(row)}


async def keyed(row: Any, ctx: Any) -> dict[str, Any]:
    return {"x": ctx.idempotency_key}


def values(df: DataFrame) -> list[tuple[Any, ...]]:
    """Return the values of all columns except the struct."""
    return [(row[0], row[1], *row[3:]) for row in df.collect()]


ANSWERED = [(number, 10 * number, number % 2, 100 + number, 100 + 10 * number) for number in range(5)]


def test_rows_have_their_answers_for_any_column_names(df: DataFrame) -> None:
    """Rows with special column names receive their answers and keep the names, with enrich_batch and enrich."""
    fine = df.where(col("k") >= 0).where("`a.b` < 5")
    for made in (enrich_batch(fine, both, output=OUTPUT), enrich(fine, both, output=OUTPUT)):
        assert made.columns == ["a.b", "c`d", "a", "k", "new.x", "new`y"]
        assert values(made) == ANSWERED
        assert first(made).a.b == -1


def test_a_column_outside_the_request_may_have_any_name(df: DataFrame) -> None:
    """A column outside the request may have a special name.

    Regression: a special name failed the query.
    """

    async def fn(row: Any) -> dict[str, Any]:
        return {"x": row.k}

    made = enrich_batch(df, fn, output="x long", input_cols="k")
    assert values(made) == [(number, 10 * number, number % 2, number % 2) for number in range(6)]


def test_failures_and_dead_letters_may_have_any_column_names(df: DataFrame) -> None:
    once: Any = {"output": OUTPUT, "retry": Retry(attempts=1)}
    for made in (
        enrich_batch(df, both, on_failure=OnFailure("column", "why.not"), **once),
        enrich(df, both, on_failure=OnFailure("column", "why.not"), **once),
    ):
        *answered, failed = values(made)
        assert answered == [(*row, None) for row in ANSWERED]
        assert (failed[:5], failed[5].type) == ((5, 50, 1, None, None), "ValueError")
    good, dead = enrich_batch(df, both, on_failure=OnFailure("dead_letter", "why.not"), **once)
    assert values(good) == ANSWERED
    assert dead.columns == ["a.b", "c`d", "a", "k", "why.not"]
    assert [row["why.not"].message for row in dead.collect()] == ["five"]
    nulls = enrich_batch(df, both, output=OUTPUT, on_failure="null", retry=Retry(attempts=1))
    assert values(nulls) == [*ANSWERED, (5, 50, 1, None, None)]


@pytest.mark.parametrize(
    "arguments",
    [
        {"input_cols": ["a.b"]},
        {"input_cols": "A.B", "cache": Cache(by="a.b", ttl=0)},
        {"input_cols": ["a.b"], "key": Key("a.b", order_by="c`d")},
        {"input_cols": ["a.b"], "key": Key("c`d", order_by=["A.B", "k"])},
    ],
)
def test_special_column_names_can_be_arguments(df: DataFrame, arguments: dict[str, Any]) -> None:
    """A string argument is a column name, never an expression."""
    made = enrich_batch(df, dotted, output=OUTPUT, **arguments)
    assert sorted(values(made)) == [(number, 10 * number, number % 2, number, 1) for number in range(6)]


def test_sort_expressions_are_not_names(df: DataFrame) -> None:
    """A sort expression stays an expression, because only strings are column names."""
    made = enrich_batch(
        df.coalesce(1), dotted, output=OUTPUT, input_cols="a.b", key=Key("k", order_by=col("`a.b`").desc())
    )
    assert [row[0] for row in values(made)] == [5, 4, 3, 2, 1, 0]


def test_idempotency_keys_do_not_depend_on_special_names(df: DataFrame) -> None:
    made = [
        row.x for row in enrich_batch(df, keyed, output="x string", replay=Replay(idempotency_cols="a.b")).collect()
    ]
    renamed = df.withColumnRenamed("a.b", "e").select("e")
    assert made == [row.x for row in enrich_batch(renamed, keyed, output="x string").collect()]
    assert len(set(made)) == 6


@pytest.mark.parametrize("first", ["a.b", "plain"])
def test_names_that_differ_only_in_case_are_rejected_unless_case_sensitive(spark: SparkSession, first: str) -> None:
    """Names that differ only in case are rejected before the first call, unless Spark is case-sensitive.

    With a name such as `a.b`, Spark would raise an error only after all calls.
    """
    twins = spark.range(3).select(*(col("id").alias(name) for name in (first, "x", "X")))

    async def called(row: Any) -> dict[str, Any]:
        return {"new.x": row.x + row.X, "new`y": len(row)}

    for form in (enrich, enrich_batch):
        with pytest.raises(InvalidPlanError, match="columns 'x' and 'X', which Spark treats as the same name: rename"):
            form(twins, called, output=OUTPUT)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        for made in (enrich_batch(twins, called, output=OUTPUT), enrich(twins, called, output=OUTPUT)):
            assert [tuple(row) for row in made.collect()] == [(row, row, row, 2 * row, 3) for row in range(3)]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
