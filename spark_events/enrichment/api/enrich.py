"""Entry points of enrichment: ``enrich`` (lazy, for any DataFrame) and ``enrich_batch`` (settled, for one batch)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, overload

from spark_events.enrichment.api.options import check_libraries, names_checked, plan_of
from spark_events.enrichment.settings import Action, Buffer, Cache, Key, Limits, OnFailure, Replay, Retry
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["enrich", "enrich_batch"]


@names_checked
def enrich(
    df: DataFrame,
    fn: Callable[..., Any],
    *,
    output: str | StructType | type[Any],
    input_cols: str | Sequence[str] | None = None,
    resource: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
    key: str | Sequence[str] | Key | None = None,
    batch_size: int | None = None,
    limits: Limits = Limits(),
    retry: Retry | None = Retry(),
    on_failure: Action | OnFailure[Any] = "fail",
    cache: Cache | None = None,
    replay: Replay = Replay(),
) -> DataFrame:
    """Add columns with the answers of an async function, called for every row when the DataFrame is computed.

    The function is lazy, like every transformation: if Spark computes the DataFrame twice, every call is made twice. If
    a row fails, Spark retries its task, up to ``spark.task.maxFailures`` attempts in total (one attempt in local mode).
    ``enrich_batch`` avoids both kinds of repeated calls. Use this function with ``DataFrame.transform``, and for
    streams without ``foreachBatch``. The idea is Flink's stateless ordered async I/O (FLINK-38605).

    Args:
        df: a batch or streaming DataFrame, of a classic or Connect session.
        fn: ``async def fn(row)`` or ``fn(row, ctx)``; returns a mapping with the output's columns. With ``batch_size``,
            ``fn(rows)`` or ``fn(rows, ctx)``; returns a list of such mappings, one for each row.
        output: the columns to add, such as ``"country string, risk double not null"``, a ``StructType``, or a
            dataclass, TypedDict or Pydantic model, whose instances the function may return. The type of strings is
            ``string``, not ``char`` or ``varchar``.
        input_cols: the columns that the function receives; the other columns stay in Arrow format. Default: all.
        resource: a function without arguments that returns an async context manager; opened once per worker process
            and available as ``ctx.resource``.
        key: columns; calls for rows with equal values run one after another, in order. If the rows must be shuffled, a
            ``Key`` also determines this order.
        batch_size: maximum number of rows in one call. Default: one row per call.
        limits: calls in flight, time, rate and buffer space.
        retry: conditions and pauses for retries; None: one attempt only.
        on_failure: treatment of rows whose attempts are exhausted: ``fail``, ``null`` or ``column``, or an
            ``OnFailure``.
        cache: answers that equal rows share; None: the function is called
            for every row.
        replay: identity of rows; only ``Replay.name`` and ``Replay.idempotency_cols`` apply here.

    Returns:
        The DataFrame with the answers as additional columns.

    Raises:
        InvalidPlanError: when an argument or a combination of arguments is invalid. Options of a whole batch are
            rejected: ``Replay.store``, ``version``, ``query`` and ``batch_id``, ``OnFailure.max_ratio`` and
            ``Buffer.storage``.
        MissingExtraError: when pyarrow or pandas is not installed.

    Examples:
        Enrich a stream without ``foreachBatch``, with the functions in the example of ``enrich_batch``. A row without
        an answer has the reason in the column ``failure``.

        ```python
        enriched = orders.transform(enrich, lookup, output="country string", resource=open_session, on_failure="column")
        query = enriched.writeStream.option("checkpointLocation", "checkpoint").start("enriched", format="parquet")
        ```
    """
    check_libraries()
    from spark_events.enrichment.api.request import Request, mapped
    from spark_events.enrichment.driver.channel_server import lazy_channel
    from spark_events.enrichment.driver.rate import ledger_of, log_limits, state_of

    plan, failures = plan_of(df, fn, output, resource, key, batch_size, limits, retry, on_failure, cache, replay)
    if plan.on_failure == "dead_letter":
        raise InvalidPlanError("on_failure='dead_letter' returns a second DataFrame: use enrich_batch, or 'column'")
    of_a_batch = {
        "OnFailure.max_ratio": failures.max_ratio is not None,
        "Replay.store, version, query and batch_id": replay
        != Replay(name=replay.name, idempotency_cols=replay.idempotency_cols),
        "Buffer.storage": limits.buffer.storage != Buffer().storage,
    }
    for name, is_set in of_a_batch.items():
        if is_set:
            raise InvalidPlanError(f"{name} applies to a whole batch: use enrich_batch, or leave it out")
    request = Request.of(df, plan, output, input_cols, key, failures.column, limits, replay)
    calls = request.definition.calls
    address = lazy_channel(df, ledger_of(plan, calls), state_of(plan, calls)) if limits.driver_channel else None
    log_limits(df, request.plan, limits, address)
    return mapped(request, request.task(scope=None, settles=False, channel=address))


@overload
def enrich_batch(
    df: DataFrame,
    fn: Callable[..., Any],
    *,
    output: str | StructType | type[Any],
    input_cols: str | Sequence[str] | None = ...,
    resource: Callable[[], AbstractAsyncContextManager[Any]] | None = ...,
    key: str | Sequence[str] | Key | None = ...,
    batch_size: int | None = ...,
    limits: Limits = ...,
    retry: Retry | None = ...,
    on_failure: Literal["dead_letter"] | OnFailure[Literal["dead_letter"]],
    cache: Cache | None = ...,
    replay: Replay = ...,
) -> tuple[DataFrame, DataFrame]: ...


@overload
def enrich_batch(
    df: DataFrame,
    fn: Callable[..., Any],
    *,
    output: str | StructType | type[Any],
    input_cols: str | Sequence[str] | None = ...,
    resource: Callable[[], AbstractAsyncContextManager[Any]] | None = ...,
    key: str | Sequence[str] | Key | None = ...,
    batch_size: int | None = ...,
    limits: Limits = ...,
    retry: Retry | None = ...,
    on_failure: Literal["fail", "null", "column"] | OnFailure[Literal["fail", "null", "column"]] = ...,
    cache: Cache | None = ...,
    replay: Replay = ...,
) -> DataFrame: ...


@names_checked
def enrich_batch(
    df: DataFrame,
    fn: Callable[..., Any],
    *,
    output: str | StructType | type[Any],
    input_cols: str | Sequence[str] | None = None,
    resource: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
    key: str | Sequence[str] | Key | None = None,
    batch_size: int | None = None,
    limits: Limits = Limits(),
    retry: Retry | None = Retry(),
    on_failure: Action | OnFailure[Any] = "fail",
    cache: Cache | None = None,
    replay: Replay = Replay(),
) -> DataFrame | tuple[DataFrame, DataFrame]:
    """Call an async function for every row now, and wait until every call is answered.

    The result is settled: every row has an answer or a final failure, and using the result again repeats no call. In
    ``foreachBatch``, Spark therefore commits the micro-batch only after its last call. The stored result is released at
    the query's next enriched batch, or when the query ends. The idea is Flink's stateless ordered async I/O
    (FLINK-38605).

    Args:
        df: a batch DataFrame: the DataFrame of ``foreachBatch``, or one derived from it.
        fn: ``async def fn(row)`` or ``fn(row, ctx)``; returns a mapping with the output's columns. With ``batch_size``,
            ``fn(rows)`` or ``fn(rows, ctx)``; returns a list of such mappings, one for each row.
        output: the columns to add, such as ``"country string, risk double not null"``, a ``StructType``, or a
            dataclass, TypedDict or Pydantic model, whose instances the function may return. The type of strings is
            ``string``, not ``char`` or ``varchar``.
        input_cols: the columns that the function receives; the other columns stay in Arrow format. Default: all.
        resource: a function without arguments that returns an async context manager; opened once per worker process
            and available as ``ctx.resource``.
        key: columns; calls for rows with equal values run one after another, in order. If the rows must be shuffled, a
            ``Key`` also determines this order.
        batch_size: maximum number of rows in one call. Default: one row per call.
        limits: calls in flight, time, rate and buffer space.
        retry: conditions and pauses for retries; None: one attempt only.
        on_failure: treatment of rows whose attempts are exhausted. ``fail``: the batch fails. ``null``: their answers
            are null. ``column``: their answers are null and an additional column contains the reason. ``dead_letter``:
            they are returned in a second DataFrame. An ``OnFailure`` also names that column and limits the ratio.
        cache: answers that equal rows share; None: the function is called
            for every row.
        replay: identity of rows and batches, and answers that a repeated batch reuses.

    Returns:
        The DataFrame with the answers, in the order of ``df`` unless ``Buffer.ordered`` is False; with
        ``on_failure="dead_letter"`` also a second DataFrame with the rows that have no answer.

    Raises:
        EnrichmentError: when rows have no answer; the message gives their number, the total and the reasons.
        InvalidPlanError: when an argument or a combination of arguments is invalid.
        MissingExtraError: when pyarrow or pandas is not installed.

    Examples:
        Look up the user of each order, with at most 50 calls per second. Up to 5 % of the rows of a batch may fail.

        ```python
        @contextlib.asynccontextmanager
        async def open_session():
            async with aiohttp.ClientSession("http://users.internal") as session:
                yield session

        async def lookup(row, ctx):
            headers = {"Idempotency-Key": ctx.idempotency_key}
            async with ctx.resource.get(f"/users/{row.user_id}", headers=headers) as answer:
                answer.raise_for_status()
                user = await answer.json()
            return {"country": user["country"]}

        def process(df, batch_id):
            good, dead = enrich_batch(
                df,
                lookup,
                output="country string",
                input_cols="user_id",
                resource=open_session,
                limits=Limits(rate_limit=50, timeout=5),
                on_failure=OnFailure("dead_letter", max_ratio=0.05),
            )
            good.write.mode("append").parquet("enriched")
            dead.write.mode("append").parquet("dead")

        query = orders.writeStream.foreachBatch(process).option("checkpointLocation", "checkpoint").start()
        ```
    """
    check_libraries()
    from spark_events.enrichment.api.batch import WithDeadLetters, run
    from spark_events.enrichment.api.request import Request
    from spark_events.enrichment.driver.checkpoint import check_storage
    from spark_events.enrichment.driver.micro_batch import micro_batch

    if df.isStreaming:
        raise InvalidPlanError(
            "enrich_batch accepts batch DataFrames only, as foreachBatch passes them; use enrich for a streaming "
            "DataFrame"
        )
    plan, failures = plan_of(df, fn, output, resource, key, batch_size, limits, retry, on_failure, cache, replay)
    check_storage(df, limits.buffer.storage)
    batch = micro_batch(df, replay.batch_id, replay.query)
    request = Request.of(df, plan, output, input_cols, key, failures.column, limits, replay)
    enriched, dead = run(request, batch, limits, replay)
    return enriched if dead is None else WithDeadLetters((enriched, dead))
