"""Common alternatives to enrich_batch on Spark: calls at the driver, and calls in tasks.

Only enrich_batch has retries, timeouts and results for failed rows. Gathering by groups is the shortest code that
limits the calls in flight, and a semaphore is the fastest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from spark_events import Limits, enrich_batch

__all__ = ["RECIPES", "Call"]

Call = Callable[[int], Awaitable[int]]


def _enrich(df: DataFrame, call: Call, in_flight: int) -> DataFrame:
    async def fn(row: Any) -> dict[str, int]:
        return {"answer": await call(row.id)}

    return enrich_batch(df, fn, output="answer long", limits=Limits(max_in_flight=in_flight))


async def _in_groups(rows: list[int], call: Call, in_flight: int) -> list[int]:
    answers: list[int] = []
    for start in range(0, len(rows), in_flight):
        answers += await asyncio.gather(*map(call, rows[start : start + in_flight]))
    return answers


async def _with_semaphore(rows: list[int], call: Call, in_flight: int) -> list[int]:
    free = asyncio.Semaphore(in_flight)

    async def one(row: int) -> int:
        async with free:
            return await call(row)

    return await asyncio.gather(*map(one, rows))


def _collected(how: Callable[..., Any]) -> Callable[[DataFrame, Call, int], DataFrame]:
    """Collect all rows, make the calls at the driver, and create a DataFrame from the answers."""

    def recipe(df: DataFrame, call: Call, in_flight: int) -> DataFrame:
        rows = [row.id for row in df.collect()]
        answers = asyncio.run(how(rows, call, in_flight))
        return df.sparkSession.createDataFrame(list(zip(rows, answers, strict=True)), "id long, answer long")

    return recipe


def _per_batch(how: Callable[..., Any]) -> Callable[[DataFrame, Call, int], DataFrame]:
    """Make the calls in tasks, with one event loop per Arrow batch. Store the result, as enrich_batch does."""

    def recipe(df: DataFrame, call: Call, in_flight: int) -> DataFrame:
        def called(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                answers = asyncio.run(how(batch.column(0).to_pylist(), call, in_flight))
                yield pa.RecordBatch.from_arrays([batch.column(0), pa.array(answers)], names=["id", "answer"])

        return df.mapInArrow(called, "id long, answer long").localCheckpoint()

    return recipe


RECIPES: dict[str, Callable[[DataFrame, Call, int], DataFrame]] = {
    "enrich_batch": _enrich,
    "collect, gather by groups": _collected(_in_groups),
    "collect, gather with a semaphore": _collected(_with_semaphore),
    "asyncio.run per Arrow batch, gather by groups": _per_batch(_in_groups),
    "asyncio.run per Arrow batch, gather with a semaphore": _per_batch(_with_semaphore),
}
