"""Tests of enriched batches in a real session. The service's log shows the number and order of the calls."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import gc
import itertools
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pydantic
import pytest
from enrich_service import EnrichService, rule
from py4j.clientserver import JavaClient
from pyspark.sql import DataFrame, Row, SparkSession, functions, types
from spark.enriching import GIVES_UP, ONCE, first, lookup, opener
from spark.harness import spark_version, wait_for

from spark_events import (
    Auto,
    Buffer,
    EnrichmentError,
    InvalidPlanError,
    Key,
    Limits,
    OnFailure,
    Replay,
    Retry,
    enrich,
    enrich_batch,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

OUTPUT = "name string, score double"
RELIABLE = Limits(buffer=Buffer(storage="reliable"))


def called(service: EnrichService) -> dict[str, int]:
    """Return the number of calls for each key."""
    return dict(Counter(call.key for call in service.calls()))


def once_each(rows: int) -> dict[str, int]:
    return {str(number): 1 for number in range(rows)}


def test_each_row_is_called_once_for_any_number_of_uses(
    spark: SparkSession, service: EnrichService, tmp_path: Path
) -> None:
    """Two sinks, a sort, a self-join and a count that read one result cause one call per row in total."""
    df = spark.range(0, 60, 1, 3)
    out = enrich_batch(df, lookup, output=OUTPUT, resource=opener(service.port))
    assert called(service) == once_each(60)
    out.write.parquet(str(tmp_path / "one"))
    out.write.json(str(tmp_path / "two"))
    assert out.count() == 60
    assert first(out.orderBy(functions.desc("score"))).name == "n59"
    other = out.withColumnRenamed("id", "other").select("other")
    assert out.join(other, out.id == other.other).count() == 60
    assert spark.read.parquet(str(tmp_path / "one")).where("name is not null").count() == 60
    assert called(service) == once_each(60)


def test_a_result_survives_a_change_of_its_source_table(
    spark: SparkSession, service: EnrichService, tmp_path: Path
) -> None:
    """A settled result is not recomputed when its source table changes, unlike a cached DataFrame."""
    spark.range(0, 5).write.saveAsTable("reread")
    try:
        out = enrich_batch(spark.table("reread"), lookup, output=OUTPUT, resource=opener(service.port))
        spark.range(5, 10).write.mode("append").saveAsTable("reread")
        assert sorted(row.id for row in out.collect()) == list(range(5))
    finally:
        spark.sql("drop table reread")
    assert called(service) == once_each(5)


def test_order_partitions_and_other_columns_are_kept(spark: SparkSession, service: EnrichService) -> None:
    """Rows keep their order, partitions and all other columns, although answers arrive in any order."""
    service.script(delay=0.001, tail=[0.1, 0.05])
    df = spark.range(0, 200, 1, 3).selectExpr(
        "id", "struct(id as a, array(cast(id as string)) as b) as nested", "cast(id as decimal(20,3)) as d",
        "map('k', id) as m", "timestamp_seconds(id) as t",
    )  # fmt: skip
    out = enrich_batch(
        df, lookup, output=OUTPUT, input_cols="id", resource=opener(service.port), limits=Limits(max_in_flight=20)
    )
    partition = functions.spark_partition_id().alias("place")
    assert out.select(partition, *df.columns).collect() == df.select(partition, *df.columns).collect()
    assert [row.name for row in out.collect()] == [f"n{number}" for number in range(200)]
    assert out.schema.fields[: len(df.columns)] == df.schema.fields


@pytest.mark.any_spark
def test_unordered_rows_are_complete(spark: SparkSession, tmp_path: Path) -> None:
    """With ordered=False, the result has the same rows and answers, and a replay of the batch makes no call."""
    log = tmp_path / "calls"

    async def late(row: Row) -> dict[str, int]:
        with log.open("a") as file:
            file.write(f"{row.id}\n")
        await asyncio.sleep(0.2 if row.id % 100 == 0 else 0)
        return {"twice": 2 * row.id}

    df = spark.range(0, 2_000, 1, 2).withColumn("text", functions.col("id").cast("string"))
    limits = Limits(max_in_flight=20, buffer=Buffer(rows=100, ordered=False))
    replay = Replay(store=str(tmp_path / "store"), query="unordered", batch_id=1)
    for _ in range(2):
        out = enrich_batch(df, late, output="twice long", limits=limits, replay=replay)
        rows = out.collect()
        assert sorted(tuple(row) for row in rows) == [(number, str(number), 2 * number) for number in range(2_000)]
    assert len(log.read_text().split()) == 2_000
    lazy = enrich(df, late, output="twice long", limits=limits).collect()
    assert sorted(lazy) == sorted(rows)
    assert lazy != sorted(lazy)


def test_results_have_the_declared_types_and_nullability(spark: SparkSession) -> None:
    """Result columns have the declared types and nullability. Since 4.1, Spark can check NOT NULL."""

    async def twice(row: Any) -> dict[str, Any]:
        return {"x": 2 * row["i.d"], "y": {"z": "a"}}

    df = spark.range(10).selectExpr("id as `i.d`", "array(struct(id)) as nested")
    wanted: Any = {"output": "x long not null, y struct<z: string not null>", "on_failure": "column"}
    setting = "spark.sql.execution.arrow.pyspark.validateSchema.enabled"
    spark.conf.set(setting, "true")
    try:
        for one in (df, df.selectExpr("*", "1 as plain")):
            assert [row.x for row in enrich_batch(one, twice, **wanted).collect()] == list(range(0, 20, 2))
            assert enrich(one, twice, **wanted).count() == 10
    finally:
        spark.conf.unset(setting)


class Part(pydantic.BaseModel):
    """Model that is nested in :class:`Reply`."""

    name: str


class Reply(pydantic.BaseModel):
    """Output model of an enrichment."""

    score: int
    part: Part | None = None


@pytest.mark.any_spark
def test_a_class_can_be_the_output(spark: SparkSession, tmp_path: Path) -> None:
    """A Pydantic output model of the main program converts answers. Invalid answers are retried."""

    log = tmp_path / "calls"

    async def reply(row: Row) -> Any:
        with log.open("a") as file:
            file.write(f"{row.id} ")
        again = log.read_text().split().count(str(row.id)) > 1
        if row.id == 0:
            return Reply(score=7, part=Part(name="a"))
        return {"score": "12" if again else "many"}

    retry = Retry(attempts=2, initial=0, jitter=0, on_invalid=True)
    out = enrich_batch(spark.range(2), reply, output=Reply, retry=retry)
    assert out.schema.simpleString() == "struct<id:bigint,score:bigint,part:struct<name:string>>"
    assert sorted(out.collect()) == [(0, 7, ("a",)), (1, 12, None)]
    assert sorted(log.read_text().split()) == ["0", "1", "1"]
    with pytest.raises(EnrichmentError, match=r"OutputError: Reply rejects the function's result: score"):
        enrich_batch(spark.range(5, 6), reply, output=Reply)


def test_values_of_every_type_arrive_and_return(spark: SparkSession, service: EnrichService) -> None:
    """The function receives Python values: maps and structs as dictionaries, timestamps with a time zone."""
    zone = datetime.timezone.utc
    values = {
        "i": 7, "s": "é", "b": b"\x00\xff", "t": datetime.datetime(2026, 1, 31, 12, tzinfo=zone),
        "n": datetime.datetime(2026, 1, 31, 12), "d": datetime.date(2026, 1, 31), "x": decimal.Decimal("1.250"),
        "m": {"a": 1}, "l": [1, None], "st": {"a": 1, "m": {"k": [2]}}, "f": 1.5, "o": True, "z": None,
    }  # fmt: skip
    ddl = (
        "i int, s string, b binary, t timestamp, n timestamp_ntz, d date, x decimal(10,3), m map<string,int>, "
        "l array<int>, st struct<a:int,m:map<string,array<int>>>, f float, o boolean, z string"
    )

    async def give(row: Any) -> dict[str, Any]:
        return dict(values)

    async def take(row: Any) -> dict[str, Any]:
        return {"same": row.asDict() == values, "seen": "" if row.asDict() == values else repr(row.asDict())}

    made = enrich_batch(spark.range(1), give, output=ddl)
    back = first(enrich_batch(made.drop("id"), take, output="same boolean, seen string"))
    assert back.seen == ""
    assert back.same
    assert first(made.selectExpr("st.m['k'][0] as k")).k == 2


def test_rows_without_an_answer_fail_the_batch_and_no_call_is_repeated(
    spark: SparkSession, service: EnrichService
) -> None:
    """Rows without an answer fail the batch but not their task, so Spark does not repeat the task's calls."""
    service.script(rules=[rule("[37]", forever={"status": 500})])
    with pytest.raises(EnrichmentError) as caught:
        enrich_batch(spark.range(0, 10, 1, 2), lookup, output=OUTPUT, resource=opener(service.port), retry=ONCE)
    assert called(service) == once_each(10)
    error = caught.value
    assert (error.failed, error.rows, error.batch_id) == (2, 10, None)
    assert [(one.partition, one.row) for one in error.samples] == [(0, 3), (1, 2)]
    assert "2 of 10 rows have no answer" in str(error)
    assert "ConnectionError" in str(error)
    assert "partition 0, row 3" in str(error)


@pytest.mark.any_spark
def test_a_failed_batch_releases_its_data(spark: SparkSession, service: EnrichService) -> None:
    before = set(spark.sparkContext._jsc.getPersistentRDDs())
    service.script(rules=[rule("3", forever={"status": 500})])
    with pytest.raises(EnrichmentError):
        enrich_batch(spark.range(10), lookup, output=OUTPUT, resource=opener(service.port), retry=ONCE)
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) <= before


def test_failures_become_nulls_a_column_or_dead_letters(spark: SparkSession, service: EnrichService) -> None:
    """Failed rows are reported as nulls, in a column or as dead letters; the three forms agree."""
    script = {"rules": [rule("[37]", forever={"status": 500})]}
    common: Any = {"output": OUTPUT, "resource": opener(service.port), "retry": ONCE}
    df = spark.range(0, 10, 1, 2)
    service.script(**script)
    nulls = enrich_batch(df, lookup, on_failure="null", **common).collect()
    assert [row.id for row in nulls if row.name is None and row.score is None] == [3, 7]
    rows = enrich_batch(df, lookup, on_failure=OnFailure("column", "why"), **common).collect()
    assert [(row.id, row.why.type, row.why.attempts) for row in rows if row.why is not None] == [
        (3, "ConnectionError", 1),
        (7, "ConnectionError", 1),
    ]
    good, dead = enrich_batch(df, lookup, on_failure="dead_letter", **common)
    assert [row.id for row in good.collect()] == [0, 1, 2, 4, 5, 6, 8, 9]
    assert [(row.id, row.failure.kind) for row in dead.collect()] == [(3, "error"), (7, "error")]
    assert dead.columns == ["id", "failure"]
    assert set(called(service).values()) == {3}


@pytest.mark.parametrize(
    ("ddl", "good", "bad"),
    [
        ("struct<x: int not null>", {"x": 1}, {"x": None}),
        (types.ArrayType(types.IntegerType(), containsNull=False), [1], [None]),
        (types.MapType(types.StringType(), types.IntegerType(), valueContainsNull=False), {"a": 1}, {"a": None}),
    ],
)
def test_a_null_in_a_non_nullable_nested_type_fails_its_row(
    spark: SparkSession, service: EnrichService, ddl: Any, good: Any, bad: Any
) -> None:
    """A null in a non-nullable nested type fails only its row. Spark's own check would fail the task."""

    async def answer(row: Any, ctx: Any) -> dict[str, Any]:
        await lookup(row, ctx)
        return {"s": bad if row.id == 1 else good}

    output = f"s {ddl}" if isinstance(ddl, str) else types.StructType([types.StructField("s", ddl)])
    common: Any = {"output": output, "resource": opener(service.port), "retry": ONCE}
    out = enrich_batch(spark.range(3).coalesce(1), answer, on_failure="column", **common)
    first, second, third = (row.asDict(recursive=True) for row in out.collect())
    assert (first["s"], second["s"], third["s"]) == (good, None, good)
    assert re.fullmatch(r"column 's\.(x|element|value)' is NOT NULL, but .*", second["failure"]["message"])
    assert called(service) == once_each(3)


@pytest.mark.any_spark
def test_a_lone_surrogate_fails_its_row_without_repeated_calls(spark: SparkSession, service: EnrichService) -> None:
    async def answer(row: Any, ctx: Any) -> dict[str, Any]:
        await lookup(row, ctx)
        if row.id == 0:
            raise ValueError("name is \ud800")
        return {"name": "\udc80" if row.id == 1 else "x"}

    out = enrich_batch(
        spark.range(3).coalesce(1), answer, output="name string", resource=opener(service.port), on_failure="column"
    )
    assert [row.name for row in out.collect()] == [None, None, "x"]
    assert first(out).failure.message == "name is ?"
    assert called(service) == once_each(3)


@pytest.mark.any_spark
def test_too_many_failures_fail_the_batch(spark: SparkSession, service: EnrichService) -> None:
    """A batch fails if the ratio of failed rows is above the limit, but not if it equals the limit."""
    common: Any = {"output": OUTPUT, "resource": opener(service.port), "retry": ONCE}
    service.script(rules=[rule("[37]", forever={"status": 500})])
    assert enrich_batch(spark.range(10), lookup, on_failure=OnFailure("null", max_ratio=0.2), **common).count() == 10
    with pytest.raises(EnrichmentError, match=r"2 of 10 rows have no answer, over OnFailure\.max_ratio=0\.1"):
        enrich_batch(spark.range(10), lookup, on_failure=OnFailure("null", max_ratio=0.1), **common)


def test_the_lazy_form_calls_on_computation_and_raises_in_the_task(spark: SparkSession, service: EnrichService) -> None:
    """`enrich` makes its calls in each computation, and a row without an answer fails its task."""
    out = spark.range(0, 6, 1, 2).transform(enrich, lookup, output=OUTPUT, resource=opener(service.port))
    assert called(service) == {}
    assert [row.name for row in out.collect()] == [f"n{number}" for number in range(6)]
    assert out.where("score > 1").count() == 3
    assert set(called(service).values()) == {2}
    service.script(rules=[rule("4", forever={"status": 500})])
    with pytest.raises(Exception, match="no answer for partition 1, row 1: ConnectionError"):
        spark.range(0, 6, 1, 2).transform(
            enrich, lookup, output=OUTPUT, resource=opener(service.port), retry=ONCE
        ).collect()


@pytest.mark.any_spark
def test_recomputing_the_lazy_form_calls_a_recovered_destination(spark: SparkSession, service: EnrichService) -> None:
    """After an outage, a new computation of an `enrich` result calls the destination again.

    Each computation starts with closed circuit breakers, and each of its tasks detects the outage separately.
    """
    service.script(rules=[rule(".*", forever={"status": 500})])
    out = enrich(
        spark.range(0, 24, 1, 8),
        lookup,
        output=OUTPUT,
        resource=opener(service.port),
        **GIVES_UP,
        on_failure="column",
    )
    kinds = Counter(row.failure.kind for row in out.collect())
    assert 0 < kinds["error"] == len(service.calls()) < 8
    assert kinds["circuit-open"] == 24 - kinds["error"]
    service.script()
    assert [row.name for row in out.collect()] == [f"n{number}" for number in range(24)]
    assert called(service) == once_each(24)


def test_rows_of_a_key_are_called_in_order_across_partitions(spark: SparkSession, service: EnrichService) -> None:
    service.script(delay=0.01)
    df = spark.range(0, 60, 1, 4).selectExpr("id % 6 as k", "59 - id as n", "id")

    async def by_key(row: Any, ctx: Any) -> dict[str, Any]:
        await ctx.resource.get(f"{row.k}-{row.n}")
        return {"done": True}

    out = enrich_batch(df, by_key, output="done boolean", key=Key("k", order_by="n"), resource=opener(service.port))
    assert out.count() == 60
    calls = service.calls()
    assert len(calls) == 60
    for key in range(6):
        own = [call for call in calls if call.key.startswith(f"{key}-")]
        assert [int(call.key.partition("-")[2]) for call in own] == sorted(range(59 - key, -1, -6))
        assert all(earlier.over_at <= later.began for earlier, later in itertools.pairwise(own))
    assert max(call.in_flight for call in calls) > 1


def test_a_shuffle_that_changes_the_order_must_be_requested(spark: SparkSession, service: EnrichService) -> None:
    """With a key, a batch needs a shuffle, unless it has one partition or is already partitioned by the key."""
    common: Any = {"output": OUTPUT, "resource": opener(service.port)}
    with pytest.raises(InvalidPlanError, match="give Key"):
        enrich_batch(spark.range(0, 10, 1, 2), lookup, key="id", **common)
    assert called(service) == {}
    assert enrich_batch(spark.range(0, 10, 1, 1), lookup, key="id", **common).count() == 10
    arranged = spark.range(0, 10, 1, 2).repartition(3, "id")
    out = enrich_batch(arranged, lookup, key="id", **common)
    assert out.rdd.getNumPartitions() == 3
    assert set(called(service).values()) == {2}


def test_a_shuffle_that_spark_may_split_is_not_sufficient_for_keys(spark: SparkSession) -> None:
    """With a key, the result of a repartition needs no further shuffle; the result of any other shuffle needs one.

    Spark may split or repeat other kinds of shuffles.
    """

    async def same(row: Any) -> dict[str, Any]:
        return {"name": None, "score": None}

    df = spark.range(0, 10, 1, 2).selectExpr("id % 3 as k", "id % 5 as j", "id")
    by_key = df.repartition(3, "k")
    cached = df.repartition(4, "k").cache()
    assert cached.count() == 10  # Earlier Spark versions expose the partitioning only after the count.
    names = spark.range(3).selectExpr("id as j", "id as other").hint("merge")
    df.createOrReplaceTempView("scattered_rows")
    scattered = [
        spark.sql("select /*+ rebalance(k) */ * from scattered_rows"),
        spark.sql("select /*+ rebalance(3, k) */ * from scattered_rows"),
        df.repartition(5, "k").join(names, "j", "left"),
        df.repartition(5, "k").selectExpr("*", "row_number() over (partition by j order by id) as n"),
        spark.sql("select /*+ rebalance(k) */ * from scattered_rows").cache(),
    ]
    try:
        for one in scattered:
            with pytest.raises(InvalidPlanError, match="give Key"):
                enrich(one, same, output=OUTPUT, key="k")
        for together in (by_key, by_key.where("id > 1").drop("j"), cached, cached.drop("j")):
            enrich(together, same, output=OUTPUT, key="k")
        enrich(by_key.withColumnRenamed("k", "renamed"), same, output=OUTPUT, key="renamed")
    finally:
        spark.catalog.dropTempView("scattered_rows")
        spark.catalog.clearCache()


def test_an_empty_batch_makes_no_call(spark: SparkSession, service: EnrichService) -> None:
    """An empty batch makes no call, and its result contains the new columns."""
    out = enrich_batch(spark.range(0), lookup, output=OUTPUT, resource=opener(service.port))
    assert (out.columns, out.count()) == (["id", "name", "score"], 0)
    assert service.calls() == []


@pytest.mark.any_spark
def test_idempotency_keys_are_distinct_and_independent_of_partitions(
    spark: SparkSession, service: EnrichService
) -> None:
    common: Any = {"output": OUTPUT, "resource": opener(service.port), "replay": Replay(query="nightly", batch_id=3)}
    enrich_batch(spark.range(0, 40, 1, 2), lookup, **common)
    first = {call.key: call.idempotency_key for call in service.calls()}
    service.script()
    enrich_batch(spark.range(39, -1, -1, 5), lookup, **common)
    assert {call.key: call.idempotency_key for call in service.calls()} == first
    assert len(set(first.values())) == 40
    service.script()
    enrich_batch(spark.range(0, 40, 1, 2), lookup, **{**common, "replay": Replay(query="nightly", batch_id=4)})
    assert not {call.idempotency_key for call in service.calls()} & set(first.values())


@pytest.mark.parametrize("storage", ["replicated", "reliable"])
def test_a_result_can_be_stored_on_disk_or_in_checkpoints(
    spark: SparkSession, service: EnrichService, tmp_path: Path, storage: Any
) -> None:
    """With storage on disk or in checkpoints, each row causes one call. No files of a failed batch remain."""
    if storage == "replicated" and spark_version() < (4,):
        with pytest.raises(InvalidPlanError, match="needs Spark 4"):
            enrich_batch(spark.range(3), lookup, output=OUTPUT, limits=Limits(buffer=Buffer(storage=storage)))
        return
    spark.sparkContext.setCheckpointDir(str(tmp_path))
    common: Any = {
        "output": OUTPUT,
        "resource": opener(service.port),
        "limits": Limits(buffer=Buffer(storage=storage)),
        "retry": ONCE,
    }
    out = enrich_batch(spark.range(0, 20, 1, 3), lookup, **common)
    assert [row.name for row in out.collect()] == [f"n{number}" for number in range(20)]
    assert out.count() == 20
    assert called(service) == once_each(20)
    kept = set(tmp_path.rglob("part-*"))
    assert bool(kept) is (storage == "reliable")
    service.script(rules=[rule("1", forever={"status": 500})])
    with pytest.raises(EnrichmentError):
        enrich_batch(spark.range(0, 20, 1, 3), lookup, **common)
    assert set(tmp_path.rglob("part-*")) == kept


@pytest.mark.any_spark
@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_a_batch_that_ends_early_leaves_no_files_in_the_checkpoint_directory(
    spark: SparkSession, service: EnrichService, tmp_path: Path, how: str
) -> None:
    """A batch that stops early deletes its files in the checkpoint directory, but not the files of other programs."""
    spark.sparkContext.setCheckpointDir(str(tmp_path))
    kept = spark.range(3).checkpoint()
    before = set(tmp_path.glob("*/*"))
    folder = str(tmp_path)
    over = tmp_path / "over"
    others = {str(path) for path in before}

    def written() -> list[Path]:
        return [path for path in Path(folder).glob("*/*/part-*") if str(path.parent) not in others]

    def begun() -> list[Path]:
        return list(Path(folder).glob("*/*/.part-00001-attempt-*"))

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            # Wait: a task that starts to write after the deletion would create its folder again.
            while context.partitionId() == 0 and not begun():
                time.sleep(0.02)
            if context.partitionId() == 1:
                # End the task through the file: Spark 3.5 might not kill the worker of a cancelled task, and the worker
                # would keep its slot.
                while (how == "cancelled" and not over.exists()) or not written():
                    time.sleep(0.02)
                raise ValueError("a partition that cannot be read")
            yield batch

    def end() -> None:
        wait_for("a partition to be written", written)
        if how == "cancelled":
            spark.sparkContext.cancelAllJobs()

    df = spark.range(0, 20, 1, 2).mapInArrow(read, "id long")
    with ThreadPoolExecutor() as pool:
        ended = pool.submit(end)
        with pytest.raises(Exception, match=r"cancelled|cannot be read"):
            enrich_batch(df, lookup, output=OUTPUT, resource=opener(service.port), limits=RELIABLE)
        ended.result()
    over.touch()
    assert set(tmp_path.glob("*/*")) == before
    assert kept.count() == 3


@pytest.mark.any_spark
def test_a_rate_applies_to_the_whole_job(spark: SparkSession, service: EnrichService) -> None:
    """Tasks lease the job's rate from the driver. This test has two slots and four partitions."""

    async def noted(row: Any, ctx: Any) -> dict[str, Any]:
        # Record the time before the call, because on a busy machine, a call may reach the service much later.
        began = time.monotonic()
        await lookup(row, ctx)
        return {"began": began}

    out = enrich_batch(
        spark.range(0, 120, 1, 4),
        noted,
        output="began double",
        resource=opener(service.port),
        limits=Limits(rate_limit=30, max_in_flight=50),
    )
    began = sorted(row.began for row in out.collect())
    assert called(service) == once_each(120)
    # Up to a tenth of a second of unused rate may accumulate, and a task may use a lease later than another task.
    assert all(later - first >= 0.95 for first, later in zip(began, began[36:], strict=False))


def test_tasks_of_an_executor_share_the_adapted_calls_in_flight(spark: SparkSession, service: EnrichService) -> None:
    """The bounds of ``Auto`` apply to both tasks together while both run; separate bounds would allow 12 calls."""
    service.script(delay=0.02)

    async def get(row: Any, ctx: Any) -> dict[str, Any]:
        return {"key": (await ctx.resource.get(row.id))["key"]}

    common: Any = {
        "output": "key string",
        "resource": opener(service.port),
        "limits": Limits(max_in_flight=Auto(min=5, max=6, initial=6)),
    }
    # Start both worker processes, so that the tasks below run at the same time.
    assert enrich_batch(spark.range(2000, 2100, 1, 2), get, **common).count() == 100
    assert enrich_batch(spark.range(0, 1200, 1, 2), get, **common).count() == 1200
    calls = sorted((call for call in service.calls() if int(call.key) < 2000), key=lambda call: call.number)
    lower = [place for place, call in enumerate(calls) if int(call.key) < 600]
    upper = [place for place, call in enumerate(calls) if int(call.key) >= 600]
    together = calls[max(lower[100], upper[100]) : min(lower[-100], upper[-100])]
    assert len(together) > 100
    # A process that was stopped for a while may have more calls for a moment.
    assert sum(call.in_flight > 6 for call in together) <= 0.1 * len(together)
    assert max(call.in_flight for call in together) >= 5


@pytest.mark.any_spark
def test_a_million_rows_in_one_partition(spark: SparkSession) -> None:
    async def double(row: Any) -> dict[str, Any]:
        return {"twice": 2 * row.id}

    out = enrich_batch(spark.range(0, 1_000_000, 1, 1), double, output="twice long", limits=Limits(max_in_flight=1000))
    total = first(out.selectExpr("sum(twice) as total", "count(*) as rows"))
    assert (total.total, total.rows) == (999_999 * 1_000_000, 1_000_000)


@pytest.mark.any_spark
def test_stored_answers_are_reused_until_the_version_changes(spark: SparkSession, tmp_path: Path) -> None:
    """Stored answers are reused until the version or the output changes. A change of the code has no effect."""

    def make(prefix: str) -> Any:
        async def name(row: Any) -> dict[str, Any]:
            return {"name": f"{prefix}{row.id}"}

        return name

    def answer(fn: Any, output: str = "name string", version: str = "1") -> str:
        replay = Replay(store=tmp_path.as_uri(), version=version, query=str(tmp_path), batch_id=0)
        return str(first(enrich_batch(spark.range(1), fn, output=output, replay=replay)).name)

    assert answer(make("old")) == "old0"
    assert answer(make("new")) == "old0"
    assert answer(make("new"), version="2") == "new0"
    assert answer(make("newer"), output="name string not null") == "newer0"


@pytest.mark.any_spark
def test_a_replay_store_never_mixes_up_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Even if some identifying columns have equal values, a replay store never returns another row's answer."""
    df = spark.createDataFrame([(1, 2, "DE", "FR"), (2, 1, "IT", "ES")], "a long, b long, buyer string, seller string")

    async def named(row: Any) -> dict[str, Any]:
        return {"name": row.country}

    async def of_all(row: Any) -> dict[str, Any]:
        return {"name": f"{row.a} {row.b}"}

    def answers(rows: DataFrame, fn: Any, input_cols: Any, idempotency_cols: str) -> list[Any]:
        replay = Replay(store=tmp_path.as_uri(), idempotency_cols=idempotency_cols, query="q", batch_id=0)
        made = enrich_batch(rows, fn, output="name string", input_cols=input_cols, replay=replay)
        return sorted(row.name for row in made.collect())

    by_order: dict[str, Any] = {"input_cols": "country", "idempotency_cols": "a"}
    assert answers(df.selectExpr("a", "buyer as country"), named, **by_order) == ["DE", "IT"]
    assert answers(df.selectExpr("a", "seller as country"), named, **by_order) == ["ES", "FR"]
    files = len(list(tmp_path.rglob("*.arrow")))
    for columns in ("a", "b"):
        assert answers(df, of_all, input_cols=["a", "b"], idempotency_cols=columns) == ["1 2", "2 1"]
        assert len(list(tmp_path.rglob("*.arrow"))) > files
        files = len(list(tmp_path.rglob("*.arrow")))


@pytest.mark.any_spark
def test_a_damaged_replay_store_causes_only_repeated_calls(
    spark: SparkSession, service: EnrichService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged replay store causes only repeated calls. A single log message for all tasks names the damaged files."""
    common: dict[str, Any] = {"output": OUTPUT, "resource": opener(service.port)}

    def run(batch_id: int) -> tuple[int, int, list[str]]:
        service.script()
        caplog.clear()
        replay = Replay(store=tmp_path.as_uri(), query="q", batch_id=batch_id)
        rows = enrich_batch(spark.range(0, 8, 1, 2), lookup, replay=replay, **common).count()
        return rows, len(service.calls()), [record.getMessage() for record in caplog.records]

    assert run(1) == (8, 8, [])
    file, _ = tmp_path.rglob("*.arrow")
    file.write_bytes(b"")
    rows, calls, (message,) = run(1)
    assert (rows, calls) == (8, 4)
    assert f"unreadable file {file} is ignored, and its rows are called" in message
    (tmp_path / "q" / "2").touch()
    rows, calls, (message,) = run(2)
    assert (rows, calls) == (8, 8)
    assert "cannot be written, so answers are not stored" in message


@pytest.mark.any_spark
def test_batch_jobs_of_one_query_keep_each_other_s_results(spark: SparkSession, service: EnrichService) -> None:
    """A batch job keeps the results of other batch jobs of its query, because they may run at the same time."""
    common: dict[str, Any] = {"output": OUTPUT, "resource": opener(service.port)}
    ids = [Replay(query="nightly", batch_id=number) for number in range(2)]
    made = [enrich_batch(spark.range(3), lookup, replay=replay, **common) for replay in ids]
    assert [df.count() for df in made] == [3, 3]
    assert called(service) == dict.fromkeys("012", 2)


@pytest.mark.parametrize("rows", [1, 100])
def test_a_small_batch_makes_few_calls_of_the_jvm(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """A batch makes at most 150 calls of the JVM, including those that release its objects."""
    sent: list[str] = []
    made: set[str] = set()
    send = JavaClient.send_command

    def counted(client: Any, command: str, *arguments: Any, **options: Any) -> Any:
        sent.append(command)
        reply = send(client, command, *arguments, **options)
        made.update(re.findall(r"^!?yr(o\d+)", reply))
        return reply

    async def answer(row: Any) -> dict[str, Any]:
        return {"answer": row.id}

    def run() -> None:
        enriched = enrich_batch(spark.range(0, rows, 1, 2), answer, output="answer long")
        enriched.write.format("noop").mode("overwrite").save()

    run()
    gc.collect()
    monkeypatch.setattr(JavaClient, "send_command", counted)
    run()
    gc.collect()
    # Objects of earlier tests may be released meanwhile.
    calls = [one for one in sent if not one.startswith("m\n") or made.intersection(one.split("\n"))]
    assert 0 < len(calls) <= 150
