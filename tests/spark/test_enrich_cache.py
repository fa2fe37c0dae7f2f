"""Tests of the state that a worker process keeps between tasks, and of sharing this state between rows and runs."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from enrich_service import EnrichService, rule
from pyspark.sql import SparkSession
from spark.enriching import by_value, session
from spark.harness import spark_version

from spark_events import Cache, InvalidPlanError, Limits, Retry, enrich, enrich_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    by_value(__name__)
    # With one task at a time, Spark uses one worker, and therefore one cache.
    with session(tmp_path_factory.mktemp("spark"), **{"spark.master": "local[1]"}) as made:
        yield made


def opener(address: str) -> Callable[[], Any]:
    """Return a resource that provides the address to the function."""

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[str]:
        yield address

    return opened


async def another(row: Any, ctx: Any) -> dict[str, str]:
    """Return a new value for each call, so that two equal answers prove the use of the cache."""
    return {"answer": uuid.uuid4().hex}


def answer(spark: SparkSession, query: str, **options: Any) -> str:
    """Return the answer for the query's only row."""
    (row,) = enrich_batch(spark.sql(query), another, output="answer string", **{"cache": Cache(), **options}).collect()
    return str(row.answer)


PRODUCTION, TEST = opener("http://production/"), opener("http://test/")
ROW = "select 7 as id, 1 as home, 1 as work"


@pytest.mark.any_spark
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"query": ROW, "resource": PRODUCTION}, {"query": ROW, "resource": TEST}),
        ({"query": "select 1 as a, 2 as b"}, {"query": "select 1 as b, 2 as a"}),
        ({"query": ROW, "input_cols": ["home"]}, {"query": ROW, "input_cols": ["work"]}),
        ({"query": ROW, "cache": Cache(by="home")}, {"query": ROW, "cache": Cache(by="work")}),
        (
            {"query": ROW, "cache": Cache(by="id")},
            {"query": ROW, "cache": Cache(by="id"), "input_cols": ["id", "home"]},
        ),
        ({"query": ROW}, {"query": ROW, "retry": Retry(on_result=lambda result: not result["answer"])}),
        ({"query": "select 1 as v"}, {"query": "select 1.0D as v"}),
        ({"query": "select 1 as v"}, {"query": "select true as v"}),
        ({"query": "select 1 as v"}, {"query": "select 1L as v"}),
        ({"query": "select 1.0 as v"}, {"query": "select 1.00 as v"}),
        ({"query": "select array(1) as v"}, {"query": "select array(1.0D) as v"}),
        ({"query": ROW, "cache": Cache(by="id")}, {"query": ROW.replace("7", "7.0D"), "cache": Cache(by="id")}),
    ],
)
def test_another_request_is_not_answered_from_the_cache(
    spark: SparkSession, one: dict[str, Any], other: dict[str, Any]
) -> None:
    """The cache does not answer a request with different columns, even if the values are equal."""
    first = answer(spark, **one)
    assert answer(spark, **other) != first
    assert answer(spark, **one) == first


@pytest.mark.any_spark
def test_columns_outside_the_request_do_not_affect_the_cache(spark: SparkSession) -> None:
    """Columns outside the request do not affect the cache, and neither do the order and nullability of columns."""
    first = answer(spark, "select 3 as only_here, 4 as more", input_cols="only_here")
    assert answer(spark, "select 'x' as more, if(rand() < 2, 3, null) as only_here", input_cols="only_here") == first


@pytest.mark.any_spark
def test_equal_rows_share_a_call_within_a_partition(spark: SparkSession) -> None:
    """Equal rows of a partition share one call. To share calls over partitions, rows need a shuffle by the columns."""
    equal = spark.range(0, 40, 1, 4).selectExpr("id", "'DE' as country")
    for df, calls in ((equal, 4), (equal.repartition(4, "country"), 1)):
        made = enrich_batch(df, another, output="answer string", cache=Cache(by="country", ttl=0))
        assert len({row.answer for row in made.collect()}) == calls


@pytest.mark.skipif(spark_version() < (4,), reason="Spark has no collations before 4")
@pytest.mark.parametrize("form", [enrich, enrich_batch])
@pytest.mark.parametrize(
    ("text", "collation"),
    [
        ("'a' collate UTF8_LCASE", "UTF8_LCASE"),
        ("named_struct('x', 1, 'y', array('a' collate UNICODE_CI))", "UNICODE_CI"),
        ("map('a' collate UNICODE, 1)", "UNICODE"),
        ("map(1, 'a' collate de)", "de"),
    ],
)
def test_a_collated_column_cannot_identify_rows(
    spark: SparkSession, form: Callable[..., Any], text: str, collation: str
) -> None:
    """A column with a collation, in which `a` may equal `A`, is rejected as a key and in cached requests."""
    df = spark.sql(f"select 1 as id, {text} as name, 'b' collate UTF8_BINARY as plain")
    rows: dict[str, dict[str, Any]] = {
        "key": {"key": ["id", "name"]},
        "Cache.by": {"cache": Cache(by="name")},
        "cache": {"cache": Cache()},
    }
    for option, options in rows.items():
        with pytest.raises(
            InvalidPlanError, match=f"{option} compares 'name' by its bytes, .* the collation {collation}:"
        ):
            form(df, another, output="answer string", **options)
    form(df, another, output="answer string")
    form(df, another, output="answer string", key="id", cache=Cache(), input_cols=["id", "plain"])
    form(df, another, output="answer string", cache=Cache(by="plain"))
    folded = df.selectExpr("*", "lower('A' collate UTF8_LCASE) collate UTF8_BINARY as folded")
    form(folded, another, output="answer string", cache=Cache(by="folded", ttl=0), key="folded")


def client_of(url: str) -> Callable[[], Any]:
    """Return a resource that is an HTTP client of the service at this URL."""

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(base_url=url) as client:
            yield client

    return opened


async def fetch(row: Any, ctx: Any) -> dict[str, int]:
    response = await ctx.resource.get(f"/rows/{row.id}")
    response.raise_for_status()
    return {"answer": row.id}


@pytest.mark.any_spark
def test_retry_after_of_one_service_does_not_delay_another_service(
    spark: SparkSession, service: EnrichService, tmp_path: Path
) -> None:
    """A Retry-After from one service does not delay calls that the same function makes to another service."""
    service.script(rules=[rule(".*", forever={"status": 429, "retry_after": 60})])

    def answered(url: str) -> int:
        made = enrich_batch(
            spark.range(5),
            fetch,
            output="answer long",
            resource=client_of(url),
            on_failure="null",
            limits=Limits(total_timeout=20, rate_limit=1000),
        )
        return made.where("answer is not null").count()

    assert answered(service.url) == 0
    with EnrichService(tmp_path / "healthy.jsonl") as healthy:
        assert answered(healthy.url) == 5
        assert len(healthy.calls()) == 5


@pytest.mark.any_spark
@pytest.mark.parametrize("form", [enrich, enrich_batch])
def test_an_accumulator_in_the_function_counts_every_call(spark: SparkSession, form: Callable[..., Any]) -> None:
    """An accumulator in the function counts every call by four tasks, although all tasks share one worker."""
    counter = spark.sparkContext.accumulator(0)

    async def counted(row: Any, ctx: Any) -> dict[str, int]:
        counter.add(1)
        return {"answer": row.id}

    assert len(form(spark.range(0, 40, 1, 4), counted, output="answer long").collect()) == 40
    assert counter.value == 40


@pytest.mark.any_spark
def test_an_accumulator_in_the_resource_is_rejected(spark: SparkSession) -> None:
    """An accumulator in the resource is rejected, because the resource stays open after Spark reads the accumulator."""
    counter = spark.sparkContext.accumulator(0)

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        counter.add(1)
        yield

    with pytest.raises(InvalidPlanError, match=r"resource .*opened .* uses an accumulator"):
        enrich_batch(spark.range(1), another, output="answer string", resource=opened)
