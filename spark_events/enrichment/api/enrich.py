"""Entry points of enrichment: ``enrich`` (any DataFrame, lazy) and ``enrich_batch`` (one micro-batch, settled)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from spark_events.enrichment.api.options import BatchOptions, Options, check_libraries
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType
    from typing_extensions import Unpack

    from spark_events.enrichment.driver.checkpoint import Storage

__all__ = ["enrich", "enrich_batch"]


def enrich(
    df: DataFrame,
    fn: Callable[..., Any],
    *,
    output: str | StructType,
    input_cols: str | Sequence[str] | None = None,
    sort_within_key: str | Column | Sequence[str | Column] | None = None,
    failure_column: str = "failure",
    idempotency_cols: str | Sequence[str] | None = None,
    concurrent_tasks: int | None = None,
    **options: Unpack[Options],
) -> DataFrame:
    """Add columns with the answers of an async function, called for every row when the DataFrame is computed.

    Lazy, like every transformation: if Spark computes the DataFrame twice, every call is made twice. If a row fails,
    Spark retries its task, up to ``spark.task.maxFailures`` attempts in total (one attempt in local mode).
    :func:`enrich_batch` avoids both. Use this function with ``DataFrame.transform`` and for streams without
    ``foreachBatch``. The idea is Flink's stateless ordered async I/O (FLINK-38605).

    Args:
        df: a batch or streaming DataFrame, of a classic or Connect session.
        fn: ``async def fn(row)`` or ``fn(row, ctx)``; returns a mapping with the output's columns.
        output: the columns to add, such as ``"country string, risk double not null"``, or a ``StructType``.
        input_cols: the columns that the function receives; the other columns stay in Arrow format. Default: all.
        sort_within_key: with ``key``: the order of the rows of one key, required if the rows must be shuffled.
        failure_column: the name of the column for failures, with ``on_failure="column"``.
        idempotency_cols: the columns that identify a row, for ``ctx.idempotency_key``. Default: all.
        concurrent_tasks: the number of tasks that share ``rate_limit``; required if Spark does not report it.
        options: the fields of :class:`~spark_events.enrichment.plan.Plan`.

    Raises:
        InvalidPlanError: when an argument or a combination of arguments is invalid.
        MissingExtraError: when pyarrow or pandas is not installed.
    """
    check_libraries()
    from spark_events.enrichment.api.request import Request, mapped

    request = Request.of(
        df, fn, output, input_cols, sort_within_key, failure_column, idempotency_cols, concurrent_tasks, options
    )
    if request.plan.on_failure == "dead_letter":
        raise InvalidPlanError("on_failure='dead_letter' returns a second DataFrame: use enrich_batch, or 'column'")
    if request.plan.max_failure_ratio is not None:
        raise InvalidPlanError("max_failure_ratio applies to a whole batch: use enrich_batch")
    return mapped(request, request.task(scope=None, settles=False))


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidPlanError(f"{name} is {value!r}; allowed: True or False")


@overload
def enrich_batch(
    df: DataFrame,
    fn: Callable[..., Any],
    *,
    output: str | StructType,
    on_failure: Literal["fail", "null", "column"] = ...,
    input_cols: str | Sequence[str] | None = ...,
    sort_within_key: str | Column | Sequence[str | Column] | None = ...,
    failure_column: str = ...,
    idempotency_cols: str | Sequence[str] | None = ...,
    concurrent_tasks: int | None = ...,
    storage: Storage = ...,
    replay_store: str | None = ...,
    replay_version: str = ...,
    batch_id: int | None = ...,
    query: str | None = ...,
    tell_workers: bool = ...,
    **options: Unpack[BatchOptions],
) -> DataFrame: ...


@overload
def enrich_batch(
    df: DataFrame,
    fn: Callable[..., Any],
    *,
    output: str | StructType,
    on_failure: Literal["dead_letter"],
    input_cols: str | Sequence[str] | None = ...,
    sort_within_key: str | Column | Sequence[str | Column] | None = ...,
    failure_column: str = ...,
    idempotency_cols: str | Sequence[str] | None = ...,
    concurrent_tasks: int | None = ...,
    storage: Storage = ...,
    replay_store: str | None = ...,
    replay_version: str = ...,
    batch_id: int | None = ...,
    query: str | None = ...,
    tell_workers: bool = ...,
    **options: Unpack[BatchOptions],
) -> tuple[DataFrame, DataFrame]: ...


def enrich_batch(
    df: DataFrame,
    fn: Callable[..., Any],
    *,
    output: str | StructType,
    on_failure: Literal["fail", "null", "column", "dead_letter"] = "fail",
    input_cols: str | Sequence[str] | None = None,
    sort_within_key: str | Column | Sequence[str | Column] | None = None,
    failure_column: str = "failure",
    idempotency_cols: str | Sequence[str] | None = None,
    concurrent_tasks: int | None = None,
    storage: Storage = "local",
    replay_store: str | None = None,
    replay_version: str = "1",
    batch_id: int | None = None,
    query: str | None = None,
    tell_workers: bool = True,
    **options: Unpack[BatchOptions],
) -> DataFrame | tuple[DataFrame, DataFrame]:
    """Call an async function for every row now, and wait until every call is answered.

    The result is settled: you may use it any number of times, and no call is repeated. In ``foreachBatch``, Spark
    therefore commits the micro-batch only after its last call. The stored result is released at the query's next batch
    and when the query ends. The idea is Flink's stateless ordered async I/O (FLINK-38605).

    Args:
        df: a batch DataFrame: the DataFrame of ``foreachBatch``, or one derived from it.
        fn: as in :func:`enrich`, like the arguments that are not listed here.
        on_failure: treatment of rows whose attempts are exhausted. ``fail``: the batch fails. ``null``: their answers
            are null. ``column``: their answers are null and ``failure_column`` contains the reason. ``dead_letter``:
            they are returned in a second DataFrame.
        storage: where the result is stored: ``local`` on its executors, in memory first; ``replicated`` on two
            executors for each partition (Spark 4); ``reliable`` in the checkpoint directory (slower; survives the loss
            of every executor).
        replay_store: the address of a folder that all executors reach. Answers of a failed batch are stored there, and
            its replay makes only the missing calls. Default: none.
        replay_version: part of the key of stored answers. The code of ``fn`` is not part of it: if ``fn`` changes its
            answers, change the version, or a replay uses the answers of the earlier code.
        batch_id: the number that ``foreachBatch`` passed; required there with Connect and in threads that do not
            inherit Spark's local properties, and with ``replay_store`` outside of a stream.
        query: a name that stays the same over restarts; required whenever ``batch_id`` is.
        tell_workers: open a port on the driver while the batch runs; it notifies the tasks at once when the batch is
            abandoned. Without it, and with Connect, tasks continue to call until Spark kills them after two to four
            seconds; Connect on Spark 4.0 does not kill them, so they continue to the end of the batch.

    Returns:
        The DataFrame with the answers, in the order of ``df``; with ``on_failure="dead_letter"`` also a second
        DataFrame with the rows that have no answer.

    Raises:
        EnrichmentError: when rows have no answer; the message gives their number, the total and the reasons.
        InvalidPlanError: when an argument or a combination of arguments is invalid.
        MissingExtraError: when pyarrow or pandas is not installed.
    """
    check_libraries()
    from spark_events.enrichment.api.batch import run
    from spark_events.enrichment.api.request import Request
    from spark_events.enrichment.driver.checkpoint import check_storage
    from spark_events.enrichment.driver.micro_batch import micro_batch

    if df.isStreaming:
        raise InvalidPlanError(
            "enrich_batch accepts batch DataFrames only, as foreachBatch passes them; use enrich for a streaming "
            "DataFrame"
        )
    check_storage(df, storage)
    _check_flag("tell_workers", tell_workers)
    batch = micro_batch(df, batch_id, query)
    all_options: Options = {**options, "on_failure": on_failure}
    request = Request.of(
        df, fn, output, input_cols, sort_within_key, failure_column, idempotency_cols, concurrent_tasks, all_options
    )
    enriched, dead = run(request, batch, storage, replay_store, replay_version, tell_workers=tell_workers)
    return enriched if dead is None else (enriched, dead)
