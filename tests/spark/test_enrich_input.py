"""Tests that invalid input causes one message: before any task runs, or with the position of the row."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from spark.enriching import first

from spark_events import (
    Buffer,
    Cache,
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

COLUMN = "__spark_events_enrichment"

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

SECRET = "hunter2"
RELIABLE = Limits(buffer=Buffer(storage="reliable"))
LOCK = threading.Lock()


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    return spark.range(0, 10, 1, 2).selectExpr("id", "id * 2 as twice")


async def fine(row: Any) -> dict[str, Any]:
    return {"x": row.id}


def not_async(row: Any) -> dict[str, Any]:
    return {"x": 1}


async def three(row: Any, ctx: Any, more: Any) -> dict[str, Any]:
    return {"x": 1}


async def holds_a_lock(row: Any) -> dict[str, Any]:
    return {"x": LOCK.locked()}


@pytest.mark.parametrize(
    ("fn", "arguments", "message"),
    [
        (not_async, {}, "not_async .* is not async"),
        (fine, {"input_cols": ["idd"]}, "input_cols contains 'idd', which does not exist; allowed: id, twice"),
        (fine, {"output": f"{COLUMN} long"}, f"output has a column '{COLUMN}', and '{COLUMN}' is a name that spark-"),
        (three, {}, "three .* takes .*expected async def fn"),
        (fine, {"output": "id long"}, "output has a column 'id', and the DataFrame has a column 'id'"),
        (fine, {"output": "X long, x long"}, "output has a column 'x', and output has a column 'X'"),
        (fine, {"output": "x lnog"}, "output is 'x lnog', which Spark cannot parse"),
        (fine, {"output": "  "}, "output is '  '; allowed"),
        (fine, {"output": "`` long"}, "output has a column with an empty name"),
        (fine, {"output": "x array<varchar(3)>"}, "output .*char.*; allowed for text: string"),
        (
            fine,
            {"output": "failure long", "on_failure": "column"},
            "output .* 'failure', and OnFailure.column is 'failure'",
        ),
        (
            fine,
            {"output": "Why long", "on_failure": OnFailure("dead_letter", "why")},
            "output has a column 'Why', and OnFailure.column is 'why': rename or drop one of them",
        ),
        (
            fine,
            {"on_failure": OnFailure("column", "ID")},
            "OnFailure.column is 'ID', and the DataFrame has a column 'id': rename or drop one of them",
        ),
        (fine, {"on_failure": OnFailure("dead_letter", "id")}, "OnFailure.column is 'id', and the DataFrame has"),
        (fine, {"on_failure": "ignore"}, "OnFailure.action is 'ignore'; allowed: 'fail', 'null', 'column', 'dead_le"),
        (fine, {"input_cols": ["id", "nope"]}, "input_cols contains 'nope', which does not exist; allowed: id, twice"),
        (fine, {"input_cols": 42}, "input_cols is 42; allowed: one or more column names"),
        (fine, {"input_cols": [1]}, r"input_cols is \[1\]; allowed: one or more column names"),
        (fine, {"input_cols": [None]}, r"input_cols is \[None\]; allowed: one or more column names"),
        (fine, {"input_cols": ["id", "id"]}, r"input_cols is \['id', 'id'\]; allowed: each column once"),
        (fine, {"key": "nope"}, "key contains 'nope'"),
        (fine, {"cache": Cache(by="nope")}, "Cache.by contains 'nope'"),
        (fine, {"key": Key("id", order_by=[])}, "Key.order_by is empty"),
        (fine, {"max_in_flight": 3}, r"enrich_batch\(\) has no argument 'max_in_flight'; write limits=Limits"),
        (fine, {"limits": 3}, "limits is 3; allowed: a Limits"),
        (fine, {"retry": 3}, r"retry is 3; allowed: a Retry, such as Retry\(attempts=3\), or None"),
        (fine, {"limits": RELIABLE}, "call spark.sparkContext.setCheckpointDir"),
        (fine, {"replay": Replay(store="/tmp/x")}, "outside of a stream, pass Replay.query and batch_id"),
        *(
            (fine, {"replay": Replay(store=store, query="q", batch_id=1)}, f"Replay.store is {store!r}.*; allowed: ")
            for store in ("relative/dir", "s4://bucket/x", "http://host/x", "s3://", "/dev/null/x", "/dev/null")
        ),
        (holds_a_lock, {}, "fn holds_a_lock .* cannot be pickled for the executors: it uses 'LOCK', of type lock"),
    ],
)
def test_invalid_arguments_are_rejected_before_a_task_runs(
    df: DataFrame, fn: Callable[..., Any], arguments: dict[str, Any], message: str
) -> None:
    """The message about an invalid argument contains the argument, the value and the allowed values."""
    with pytest.raises(InvalidPlanError, match=message):
        enrich_batch(df, fn, **{"output": "x long", **arguments})


def test_a_column_with_the_name_of_the_failure_column_is_rejected_if_it_is_added(df: DataFrame) -> None:
    failed = df.withColumnRenamed("twice", "failure")
    for on_failure in ("fail", "null"):
        made = enrich_batch(failed, fine, output="x long", on_failure=on_failure)
        assert made.columns == ["id", "failure", "x"]
    for form in (enrich, enrich_batch):
        with pytest.raises(InvalidPlanError, match=r"OnFailure\.column is 'failure', and the DataFrame has a column"):
            form(failed, fine, output="x long", on_failure="column")
    made = enrich_batch(failed, fine, output="x long", on_failure=OnFailure("column", "why"))
    assert made.columns == ["id", "failure", "x", "why"]


def test_a_column_object_is_rejected_and_no_input_columns_are_accepted(df: DataFrame) -> None:
    """The argument input_cols accepts names only; with an empty list, the function receives an empty row."""

    async def size(row: Any) -> dict[str, Any]:
        return {"x": len(row)}

    with pytest.raises(InvalidPlanError, match=r"input_cols is Column<'id'>; allowed: one or more column names"):
        enrich_batch(df, size, output="x long", input_cols=df.id)  # type: ignore[call-overload]
    none: list[str] = []
    assert {row.x for row in enrich_batch(df, size, output="x long", input_cols=none).collect()} == {0}


def test_a_dataframe_without_columns_is_rejected(spark: SparkSession) -> None:
    """A DataFrame without columns is rejected, because Spark would lose its rows without an error."""
    for form in (enrich_batch, enrich):
        with pytest.raises(InvalidPlanError, match="the DataFrame has no columns, so Spark passes no rows to fn"):
            form(spark.range(3).select(), fine, output="x long")


@pytest.mark.parametrize(
    ("column", "described"),
    [
        ("array(interval '1' year)", r"'c\.element', interval year,"),
        pytest.param(
            "map('a', make_interval(1))",
            r"'c\.value', interval,",
            marks=pytest.mark.skipif(pyspark.__version__ < "4", reason="PySpark 3.5 cannot read the schema"),
        ),
        ("named_struct('a', 1, 'a', 2)", "'c', a struct with several fields named 'a',"),
    ],
)
def test_a_column_unsupported_by_arrow_is_rejected_even_outside_the_request(
    df: DataFrame, column: str, described: str
) -> None:
    """Even outside the request, a column whose type Arrow does not support is rejected, because tasks read it."""
    wide = df.selectExpr("*", f"{column} as c")
    for form in (enrich_batch, enrich):
        with pytest.raises(InvalidPlanError, match=f"the DataFrame has {described} which Arrow does not support"):
            form(wide, fine, output="x long", input_cols="id")


def test_options_unsupported_by_the_lazy_form_are_rejected(spark: SparkSession, df: DataFrame) -> None:
    """enrich rejects options that need a settled batch, and enrich_batch rejects a streaming DataFrame."""
    with pytest.raises(InvalidPlanError, match=r"dead_letter.*use enrich_batch"):
        enrich(df, fine, output="x long", on_failure="dead_letter")
    with pytest.raises(InvalidPlanError, match=r"OnFailure\.max_ratio applies to a whole batch"):
        enrich(df, fine, output="x long", on_failure=OnFailure("null", max_ratio=0.1))
    for options in ({"replay": Replay(store="x")}, {"limits": RELIABLE}):
        with pytest.raises(InvalidPlanError, match="applies to a whole batch: use enrich_batch"):
            enrich(df, fine, output="x long", **options)
    streaming = spark.readStream.format("rate").load()
    with pytest.raises(InvalidPlanError, match="use enrich for a streaming DataFrame"):
        enrich_batch(streaming, fine, output="x long")
    with pytest.raises(InvalidPlanError, match="cannot sort a streaming DataFrame"):
        enrich(streaming, fine, output="x long", key=Key("value", order_by="timestamp"))


def answering(df: DataFrame, answer: Any, output: str, **options: Any) -> str:
    """Return the error that a batch raises if its seventh row has this answer."""

    async def fn(row: Any) -> Any:
        return answer if row.id == 6 else {"x": 1}

    with pytest.raises(EnrichmentError) as caught:
        enrich_batch(df, fn, output=output, **options)
    assert (caught.value.failed, caught.value.rows) == (1, 10)
    return str(caught.value)


@pytest.mark.parametrize(
    ("answer", "output", "message"),
    [
        ({"x": SECRET}, "x long", "column 'x' is bigint, but the function returned str"),
        ({"x": None}, "x long not null", "column 'x' is NOT NULL, but the function returned None"),
        ({"y": 1}, "x long", "the function returned a mapping without 'x' and with 'y'"),
        (SECRET, "x long", "the function returned str, not a mapping with x"),
    ],
)
def test_an_invalid_answer_is_reported_with_the_row_but_no_value(
    df: DataFrame, answer: Any, output: str, message: str
) -> None:
    """The message about an invalid answer contains the row's partition and position, but not the row's values."""
    error = answering(df, answer, output)
    assert f"partition 1, row 1: OutputError: {message}" in error
    assert SECRET not in error


@pytest.mark.parametrize("zone", ["GMT+5", "PST"])
def test_a_time_zone_unknown_to_python_fails_no_row(spark: SparkSession, zone: str) -> None:
    """In a session time zone that Python does not support, the function receives the same instant and key as in UTC."""

    async def key(row: Any, ctx: Any) -> dict[str, Any]:
        return {"at": row.t["at"].timestamp(), "key": ctx.idempotency_key}

    df = spark.range(1, 2, 1, 1).selectExpr("named_struct('at', timestamp_seconds(id)) as t")
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    found = set()
    try:
        for name in ("UTC", zone):
            spark.conf.set("spark.sql.session.timeZone", name)
            found.add(tuple(first(enrich_batch(df, key, output="at double, key string").select("at", "key"))))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    ((at, _),) = found
    assert at == 1.0


def test_a_programming_error_is_not_retried(df: DataFrame) -> None:
    """A programming error is not retried, because each retry would raise the same error."""

    async def wrong(row: Any) -> Any:
        return {"x": row.idd}

    with pytest.raises(EnrichmentError) as caught:
        enrich_batch(df, wrong, output="x long", retry=Retry(attempts=4, initial=0.01))
    assert {sample.failure.attempts for sample in caught.value.samples} == {1}
    assert "AttributeError" in str(caught.value)
    # Python 3.10 provides only the function's name, not the qualified name.
    assert re.search(r"[. ]wrong\)", str(caught.value))


def test_a_resource_that_fails_to_open_fails_every_row_with_its_reason(df: DataFrame) -> None:
    """If a resource fails to open, every row fails with the reason. The resource is not reopened for each row."""

    @contextlib.asynccontextmanager
    async def refusing() -> Any:
        raise ConnectionRefusedError("nobody is there")
        yield  # type: ignore[unreachable]  # the yield makes this function a context manager

    with pytest.raises(EnrichmentError, match=r"10 of 10 rows .*nobody is there") as caught:
        enrich_batch(df, fine, output="x long", resource=refusing, retry=Retry(attempts=1))
    assert {sample.failure.kind for sample in caught.value.samples} == {"resource"}


def test_a_function_that_blocks_the_loop_is_logged(df: DataFrame, caplog: pytest.LogCaptureFixture) -> None:
    """A function that blocks the event loop, and thus all calls of its worker, is named in a log message."""

    async def blocks(row: Any) -> dict[str, Any]:
        if row.id == 3:
            time.sleep(2.5)  # noqa: ASYNC251
        await asyncio.sleep(0)
        return {"x": 1}

    enrich_batch(df, blocks, output="x long")
    (message,) = [record.getMessage() for record in caplog.records if "blocked" in record.getMessage()]
    assert re.search(r"[. ]blocks$", message)
    assert "test_enrich_input.py" in message


def test_hot_keys_are_logged(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """A hot key, which limits the speed of the batch, is logged with its number of rows."""
    df = spark.range(0, 400, 1, 1).selectExpr("if(id % 4 = 0, cast(id as string), 'hot one') as k")
    enrich_batch(df, enough, output="x long", key="k")
    (message,) = [record.getMessage() for record in caplog.records if "hot key" in record.getMessage()]
    assert "'hot one': 300 rows" in message


async def enough(row: Any) -> dict[str, Any]:
    return {"x": 1}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("id as __Spark_events_enrichment", "a column '__Spark_events_enrichment', a name that spark-events uses"),
        ("array() as a", "'a.element', the type of array.* without elements .void., which Arrow does not support"),
        ("map() as m", r"'m.(key|value)', the type of array.* without elements .void., which Arrow does not support"),
        ("struct(array() as a) as s", "'s.a.element', the type of array"),
    ],
)
def test_columns_that_cannot_be_carried(df: DataFrame, column: str, message: str) -> None:
    with pytest.raises(InvalidPlanError, match=message):
        enrich_batch(df.selectExpr("id", column), fine, output="x long")


@pytest.mark.skipif(pyspark.__version__ < "4", reason="variants exist since Spark 4")
def test_a_function_does_not_receive_variants(df: DataFrame) -> None:
    """A function would receive undecoded bytes; a variant that it does not receive passes unchanged."""
    variants = df.selectExpr("id", "parse_json('[1]') as v")
    with pytest.raises(InvalidPlanError, match="receive 'v', a variant, as undecoded bytes: convert it with to_json"):
        enrich_batch(variants, fine, output="x long")
    carried = enrich_batch(variants, fine, output="x long", input_cols="id")
    assert [row[0] for row in carried.selectExpr("to_json(v)").distinct().collect()] == ["[1]"]


def test_a_pair_taken_for_a_dataframe(df: DataFrame) -> None:
    """Code that forgets the dead letters is told about the pair; the pair is a plain tuple otherwise."""
    both: Any = enrich_batch(df, fine, output="x long", on_failure="dead_letter")
    with pytest.raises(AttributeError, match="no attribute 'write' together: write enriched, dead = enrich_batch"):
        both.write.save()
    with pytest.raises(AttributeError, match="no attribute 'count' together"):
        both.count()
    with pytest.raises(AttributeError, match="no attribute 'x' together"):
        both["x"]
    enriched, dead = both
    assert both.count(dead) == 1
    assert both[1] is dead
    assert (enriched.count(), dead.count()) == (10, 0)


def test_frequent_blocking_calls_are_logged(df: DataFrame, caplog: pytest.LogCaptureFixture) -> None:
    """Many short calls that block the loop cause one warning, which names the line, with a remedy."""

    async def sleeps(row: Any) -> dict[str, Any]:
        time.sleep(0.1)  # noqa: ASYNC251
        return {"x": 1}

    enrich_batch(df.sparkSession.range(0, 60, 1, 1), sleeps, output="x long")
    texts = [record.getMessage() for record in caplog.records]
    (message,) = [text for text in texts if "blocks the event loop most of the time" in text]
    assert re.search(r"test_enrich_input.py:\d+ in .*sleeps blocks", message)
    assert "asyncio.to_thread" in message


def test_an_event_loop_inside_the_function(df: DataFrame) -> None:
    """A function that starts an event loop of its own gets a hint."""

    async def nested(row: Any) -> Any:
        waiting = fine(row)
        try:
            return asyncio.get_running_loop().run_until_complete(waiting)
        finally:
            waiting.close()

    with pytest.raises(EnrichmentError, match=r"already running.*Hint: fn already runs in an event loop: await"):
        enrich_batch(df, nested, output="x long", retry=None)
