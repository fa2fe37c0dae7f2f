"""The two ways to ask for an enrichment: of a DataFrame, lazily; of a micro-batch, settled."""

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
    tell_workers: bool = True,
    **options: Unpack[Options],
) -> DataFrame:
    """Calls an async function for every row when the DataFrame is computed, and adds what it returns.

    Lazy, as every transformation: computed twice, it calls twice, and a row that fails makes Spark run its task again,
    up to ``spark.task.maxFailures`` times in all (in local mode once). :func:`enrich_batch` does neither. For
    ``DataFrame.transform``, and for streams without ``foreachBatch``. The idea is Flink's stateless ordered async I/O
    (FLINK-38605).

    Args:
        df: batch or streaming, classic or Connect.
        fn: ``async def fn(row)`` or ``fn(row, ctx)``; returns a mapping with the output's columns.
        output: the columns to be added, as ``"country string, risk double not null"`` or a ``StructType``.
        input_cols: the columns that the function gets; the others stay Arrow. Default: all.
        sort_within_key: with ``key``: the order of the rows of one key, where they must be brought together.
        failure_column: its name, with ``on_failure="column"``.
        idempotency_cols: the columns that tell one row from another, for ``ctx.idempotency_key``. Default: all.
        concurrent_tasks: how many tasks share ``rate_limit``, where Spark does not tell.
        tell_workers: the driver opens a port, over which tasks hear when their stage has ended (the query was stopped,
            the job was cancelled). Without it, and with Connect, tasks go on calling until Spark kills them.
        options: as in :class:`~spark_events.enrichment.plan.Plan`.

    Raises:
        InvalidPlanError: what was asked for cannot be.
        MissingExtraError: pyarrow or pandas is not installed.
    """
    check_libraries()
    from spark_events.enrichment.api.request import Request, mapped
    from spark_events.enrichment.driver.driver_channel import lazy_channel_address

    _check_flag("tell_workers", tell_workers)
    request = Request.of(
        df, fn, output, input_cols, sort_within_key, failure_column, idempotency_cols, concurrent_tasks, options
    )
    if request.plan.on_failure == "dead_letter":
        raise InvalidPlanError("on_failure='dead_letter' makes a second DataFrame: use enrich_batch, or 'column'")
    if request.plan.max_failure_ratio is not None:
        raise InvalidPlanError("max_failure_ratio is of a whole batch, which only enrich_batch sees")
    channel = lazy_channel_address(df, wanted=tell_workers)
    return mapped(request, request.task(scope=None, settles=False, channel=channel))


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
    """Calls an async function for every row, now, and waits until every call has been answered.

    What it returns is settled: it may be used any number of times, and no call is made again. In ``foreachBatch`` the
    micro-batch is thus committed only after its last call. What is stored meanwhile is released at the query's next
    batch and at its end. The idea is Flink's stateless ordered async I/O (FLINK-38605), taken to Spark.

    Args:
        df: a batch DataFrame: what ``foreachBatch`` gave, or something made of it.
        fn: as in :func:`enrich`, like the arguments that are not named here.
        on_failure: of rows whose attempts are exhausted. ``fail``: the batch fails. ``null``: their answers are null.
            ``column``: that, and ``failure_column`` says why. ``dead_letter``: they are in a second DataFrame.
        storage: where the result is kept: ``local`` on its executors, memory first; ``replicated`` on two of them each
            (Spark 4); ``reliable`` in the checkpoint directory (slower; survives every executor).
        replay_store: the address of a folder that all executors reach: answers of a batch that fails are kept there,
            and its replay makes the calls that are missing. Default: none.
        replay_version: part of the key of stored answers. The code of ``fn`` is not: give another version when ``fn``
            answers differently, or its replay uses answers of the code before.
        batch_id: as ``foreachBatch`` gave it; needed there with Connect, in threads that inherit nothing of Spark's,
            and with ``replay_store`` outside of a stream.
        query: a name that stays the same over restarts; needed wherever ``batch_id`` is.
        tell_workers: whether the driver opens a port while the batch runs, over which its tasks hear at once when it is
            given up. Without, and with Connect, they go on calling until Spark kills them, two to four seconds; with
            Connect on Spark 4.0, where Spark does not, to the batch's end.

    Returns:
        The DataFrame with the answers, in the order of ``df``; with ``on_failure="dead_letter"`` a second one, with the
        rows that have none.

    Raises:
        EnrichmentError: rows have no answer: how many of how many, and why.
        InvalidPlanError: what was asked for cannot be.
        MissingExtraError: pyarrow or pandas is not installed.
    """
    check_libraries()
    from spark_events.enrichment.api.batch import run
    from spark_events.enrichment.api.request import Request
    from spark_events.enrichment.driver.checkpoint import check_storage
    from spark_events.enrichment.driver.micro_batch import micro_batch

    if df.isStreaming:
        raise InvalidPlanError(
            "enrich_batch is for a batch, as foreachBatch gives it; use enrich for a streaming DataFrame"
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
