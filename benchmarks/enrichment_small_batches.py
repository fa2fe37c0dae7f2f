"""Measure what ``enrich_batch`` adds to a small micro-batch, beside a hand-written ``mapInPandas``: real Spark.

All variants run alternately in one warmed-up driver, so other load on the machine affects all of them. Besides the
duration, the benchmark counts the calls of the JVM that a batch makes over Py4J.

``SMALL_BATCHES_ROUNDS`` (20): batches per variant.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from py4j import clientserver
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from spark_events import enrich_batch

_ROUNDS = int(os.environ.get("SMALL_BATCHES_ROUNDS", "20"))
_WARM_UP = 4
_GOAL_MS, _GOAL_CALLS = 60, 150


async def _answer(row: Any) -> dict[str, Any]:
    return {"answer": row.id}


def _answers(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        batch["answer"] = batch["id"]
        yield batch


def _enriched(df: DataFrame) -> DataFrame:
    return enrich_batch(df, _answer, output="answer long")


def _mapped(df: DataFrame) -> DataFrame:
    return df.mapInPandas(_answers, "id long, answer long")


def _written(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()


class _Calls:
    """Number of commands that Python has sent to the JVM, including those that release objects."""

    def __init__(self) -> None:
        self.number = 0
        send = clientserver.JavaClient.send_command

        def counted(client: Any, *arguments: Any, **options: Any) -> Any:
            self.number += 1
            return send(client, *arguments, **options)

        clientserver.JavaClient.send_command = counted


def run() -> None:
    """Print the duration of a micro-batch of 1 row and of 100 rows, and its calls of the JVM."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    calls = _Calls()
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    variants: dict[str, Callable[[DataFrame], DataFrame]] = {"mapInPandas": _mapped, "enrich_batch": _enriched}
    for rows in (1, 100):
        df = spark.createDataFrame([(number,) for number in range(rows)], "id long").localCheckpoint()
        seconds: dict[str, list[float]] = {name: [] for name in variants}
        sent: dict[str, list[int]] = {name: [] for name in variants}
        for turn in range(_WARM_UP + _ROUNDS):
            for name, variant in variants.items():
                before, began = calls.number, time.perf_counter()
                _written(variant(df))
                if turn >= _WARM_UP:
                    seconds[name].append(time.perf_counter() - began)
                    sent[name].append(calls.number - before)
        pairs = zip(seconds["enrich_batch"], seconds["mapInPandas"], strict=True)
        added = 1000 * statistics.median(ours - theirs for ours, theirs in pairs)
        least = 1000 * (min(seconds["enrich_batch"]) - min(seconds["mapInPandas"]))
        print(
            f"{rows} rows: enrich_batch adds {added:.0f} ms to mapInPandas (median of pairs; fastest: {least:.0f}; "
            f"goal {_GOAL_MS}), {statistics.median(sent['enrich_batch']):.0f} calls of the JVM (goal {_GOAL_CALLS})",
            flush=True,
        )
    spark.stop()
