"""Stages with a shuffle, uneven tasks, a retried task, a failure and a stream. Some stages read or write paths."""

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

folder = Path(sys.argv[1]) / "data"
spark = SparkSession.builder.appName("totals").getOrCreate()


def uneven(index: int, rows: Iterable[int]) -> Iterator[tuple[int, str]]:
    context = TaskContext.get()
    if index == 1 and context is not None and context.attemptNumber() == 0:
        raise ValueError("retry me")
    time.sleep(0.05 * index)
    return ((row % 7, "x" * 100) for row in rows)


spark.sparkContext.parallelize(range(2_000), 12).mapPartitionsWithIndex(uneven).groupByKey(3).count()
spark.range(1_000).selectExpr("id", "id % 5 as part").write.parquet(str(folder / "in"))
source = spark.read.parquet(str(folder / "in"))
source.groupBy("part").count().write.csv(str(folder / "out"))
with contextlib.suppress(Exception):
    # With a second partition, its task could end after its stage, and would count only for the application.
    spark.range(0, 1, numPartitions=1).selectExpr("raise_error('boom')").collect()
stream = spark.readStream.schema(source.schema).parquet(str(folder / "in")).writeStream.format("noop")
stream.trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
spark.stop()
