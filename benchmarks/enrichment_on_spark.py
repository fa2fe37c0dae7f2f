"""Measure the cost of enrich on Spark: processor time relative to an identity mapInArrow, memory, and alternatives.

psutil reports the processor time and memory of the workers. Compared variants run alternately.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from benchmarks import _spark_recipes
from spark_events import enrich

_ROUNDS = int(os.environ.get("ENRICHMENT_ROUNDS", "3"))
_ROWS = 1_000_000
_MEMORY_ROWS = (100_000, 1_000_000, 10_000_000)
_TAIL_EVERY, _TAIL, _REST = 100, 0.1, 0.001
_TAIL_ROWS, _IN_FLIGHT, _SLOTS = 100_000, 100, 2
#: Recipes that gather groups are slow, so their runs use fewer rows.
_GROUP_ROWS = 20_000
_LOOK_SECONDS = 0.05


async def _at_once(row: Any) -> dict[str, Any]:
    return {"answer": row.id}


async def _record(row: Any) -> dict[str, Any]:
    return {"country": f"country {row.id}", "risk": row.id / 7}


async def _heavy_tail(row: int) -> int:
    await asyncio.sleep(_TAIL if row % _TAIL_EVERY == 0 else _REST)
    return row


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


@contextlib.contextmanager
def _session(**settings: str) -> Iterator[SparkSession]:
    for module in (__name__, _spark_recipes.__name__):
        cloudpickle.register_pickle_by_value(sys.modules[module])  # type: ignore[no-untyped-call]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(f"local[{_SLOTS}]").config("spark.ui.enabled", "false")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _workers() -> list[psutil.Process]:
    """Return the daemon of Spark's Python workers and the workers."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "pyspark.daemon" in process.cmdline():
                found.append(process)
    return found


def _processor_seconds() -> float:
    seconds = 0.0
    for process in _workers():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            seconds += times.user + times.system
    return seconds


def _compute(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()


def _processor_time(spark: SparkSession) -> None:
    rows = spark.range(0, _ROWS, 1, 1)
    ways = {
        "identity mapInArrow": rows.mapInArrow(_unchanged, "id long"),
        "enrich": enrich(rows, _at_once, output="answer long"),
    }
    spent: dict[str, list[float]] = {way: [] for way in ways}
    took: dict[str, list[float]] = {way: [] for way in ways}
    for df in ways.values():
        _compute(df)
    for _ in range(2 * _ROUNDS):
        for way, df in ways.items():
            before, began = _processor_seconds(), time.perf_counter()
            _compute(df)
            took[way].append((time.perf_counter() - began) / _ROWS * 1e6)
            spent[way].append((_processor_seconds() - before) / _ROWS * 1e6)
    for way in ways:
        print(
            f"{way}: {min(spent[way]):.2f} µs of the worker's processor time per row"
            f" (median {statistics.median(spent[way]):.2f}), {min(took[way]):.2f} of wall-clock time"
            f" (median {statistics.median(took[way]):.2f})"
        )
    nothing, ours = ways
    print(
        f"difference: {min(spent[ours]) - min(spent[nothing]):.2f} µs of processor time per row"
        f" (median {statistics.median(spent[ours]) - statistics.median(spent[nothing]):.2f}),"
        f" {min(took[ours]) - min(took[nothing]):.2f} of wall-clock time",
        flush=True,
    )


def _most_memory(run: Callable[[], None]) -> float:
    """Return the peak resident memory of a worker while ``run`` executes, in megabytes."""
    over, most = threading.Event(), 0

    def look() -> None:
        nonlocal most
        while not over.wait(_LOOK_SECONDS):
            for process in _workers():
                with contextlib.suppress(psutil.Error):
                    most = max(most, process.memory_info().rss)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        run()
    finally:
        over.set()
        looking.join()
    return most / 2**20


def _memory(spark: SparkSession) -> None:
    sizes = {}
    for rows in _MEMORY_ROWS:
        df = enrich(spark.range(0, rows, 1, 1), _record, output="country string, risk double")
        sizes[rows] = _most_memory(lambda df=df: _compute(df))  # type: ignore[misc]
    figures = ", ".join(f"{rows:,} rows: {size:.1f} MB" for rows, size in sizes.items())
    print(f"memory of the worker, {figures}; ratio {sizes[max(sizes)] / sizes[min(sizes)]:.3f}", flush=True)


def _against_others(spark: SparkSession) -> None:
    recipes = _spark_recipes.RECIPES
    mean = (_TAIL + _REST * (_TAIL_EVERY - 1)) / _TAIL_EVERY
    ways = {name: (recipe, _IN_FLIGHT) for name, recipe in recipes.items()}
    # In the last variant, all tasks together have as many calls in flight as the recipes at the driver.
    ways[f"enrich_batch, {_IN_FLIGHT} in flight over all tasks"] = (recipes["enrich_batch"], _IN_FLIGHT // _SLOTS)
    for size in (10_000, 1_000):
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(size))
        shares: dict[str, list[float]] = {name: [] for name in ways}
        # The first round warms up Spark.
        for number in range(_ROUNDS + 1):
            for name in list(ways) if number % 2 == 0 else reversed(ways):
                recipe, in_flight = ways[name]
                count = _GROUP_ROWS if number == 0 or "groups" in name else _TAIL_ROWS
                began = time.perf_counter()
                made = recipe(spark.range(0, count, 1, _SLOTS), _heavy_tail, in_flight)
                took = time.perf_counter() - began
                assert [(row.id, row.answer) for row in made.collect()] == [(row, row) for row in range(count)]
                if number:
                    shares[name].append(took / (count * mean / (_IN_FLIGHT * _SLOTS)))
        print(f"heavy tail, {_SLOTS} slots, {_IN_FLIGHT} in flight each, batches of {size:,}; ratio to the limit:")
        ours = statistics.median(shares["enrich_batch"])
        for name, found in shares.items():
            median = statistics.median(found)
            print(f"  {name}: {median:.2f} (best {min(found):.2f}), {median / ours:.2f} times enrich_batch", flush=True)


def run() -> None:
    """Print all results."""
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with _session() as spark:
        _processor_time(spark)
        _against_others(spark)
    # A reused worker would keep the memory of earlier runs.
    with _session(**{"spark.python.worker.reuse": "false"}) as spark:
        _memory(spark)


if __name__ == "__main__":
    run()
