"""Inputs that become idle and active again under both watermark policies, and batch jobs with retried stages.

One more query becomes idle and stops.
"""

import glob
import json
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from control import FOLDER, put, write_down
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

spark = SparkSession.builder.appName("event-time").getOrCreate()
EVENTS = os.path.join(FOLDER, "events.jsonl")


def seen(**wanted: Any) -> bool:
    """Return whether the run has reported an event with these attributes."""
    with open(EVENTS) as lines:
        events = [json.loads(line) for line in lines if line.endswith("\n")]
    wanted = {key.replace("_", "."): value for key, value in wanted.items()}
    return any(wanted.items() <= event["attributes"].items() for event in events)


def rows(second: int, count: int = 3) -> list[dict[str, Any]]:
    return [{"ts": f"2026-01-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z", "v": 1}] * count


def start(policy: str) -> StreamingQuery:
    spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", policy)
    sides = [
        spark.readStream.schema("ts timestamp, v int")
        .json(os.path.join(FOLDER, policy, side))
        .withWatermark("ts", "10 seconds")
        for side in ("left", "right")
    ]
    return (
        sides[0]
        .union(sides[1])
        .groupBy(F.window("ts", "10 seconds"))
        .count()
        .writeStream.queryName(policy)
        .outputMode("append")
        .format("noop")
        .option("checkpointLocation", os.path.join(FOLDER, policy, "checkpoint"))
        .start()
    )


def drive(query: StreamingQuery) -> None:
    """Run one query at a time: a query that waits for another query would become idle."""

    def give(side: str, number: int, second: int) -> None:
        put(os.path.join(FOLDER, query.name, side), number, rows(second))

    query.processAllAvailable()
    # The right source delivers no rows; the left source delivers rows until the right source is reported as IDLE.
    deadline = time.monotonic() + 300
    number = 0
    idle = {"spark_status_new": "IDLE", "spark_watermark_policy": query.name, "spark_streaming_query_name": query.name}
    while time.monotonic() < deadline:
        number += 1
        give("left", number, 100 + 20 * number)
        query.processAllAvailable()
        if (
            seen(**idle, spark_source_index=1, spark_watermark_subject="source")
            and (query.name == "max" or seen(**idle, spark_watermark_subject="query"))
            and number > 5
        ):
            break
        time.sleep(0.5)  # an interval between batches, which leaves the processor to other tests

    # The right source delivers rows again. Their event times are far below the maximum of both watermarks.
    give("right", 1, 100)
    query.processAllAvailable()
    give("left", number + 1, 100 + 20 * (number + 1))
    give("right", 2, 100 + 20 * (number + 1))
    query.processAllAvailable()
    query.stop()


def start_silent() -> StreamingQuery:
    """Start a query without further input and with progress events in a short interval."""
    folder = os.path.join(FOLDER, "silent")
    put(os.path.join(folder, "in"), 0, rows(0, 1))
    spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "min")
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "2500")
    query = (
        spark.readStream.schema("ts timestamp, v int")
        .json(os.path.join(folder, "in"))
        .withWatermark("ts", "10 seconds")
        .writeStream.queryName("silent")
        .format("noop")
        .option("checkpointLocation", os.path.join(folder, "checkpoint"))
        .start()
    )
    spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
    return query


def stop_when_idle(query: StreamingQuery) -> None:
    """Stop a query as soon as its watermark is reported as IDLE."""
    query.processAllAvailable()
    deadline = time.monotonic() + 300
    while not seen(spark_status_new="IDLE", spark_watermark_subject="query", spark_streaming_query_name=query.name):
        assert time.monotonic() < deadline, "the query never became idle"
        time.sleep(0.1)
    query.stop()


for policy in ("min", "max"):
    for side in ("left", "right"):
        put(os.path.join(FOLDER, policy, side), 0, rows(100))
queries = [start(policy) for policy in ("min", "max")]
with ThreadPoolExecutor() as pool:
    silent = pool.submit(stop_when_idle, start_silent())
    list(pool.map(drive, queries))
    silent.result()

progress = {query.name: [json.loads(p.json()) for p in query._jsq.recentProgress()] for query in queries}
truth: dict[str, Any] = {
    name: {
        "dropped": sum(op["numRowsDroppedByWatermark"] for progress_ in reports for op in progress_["stateOperators"]),
        "last_watermark": reports[-1]["eventTime"]["watermark"],
    }
    for name, reports in progress.items()
}

# One job with several stages.
spark.sparkContext.setJobDescription("several stages")
spark.range(0, 1000, 1, 3).groupBy(F.col("id") % 7).count().orderBy("count").collect()

# A stage with missing input is retried after the stage that produces its input.
spark.sparkContext.setJobDescription("input lost")
grouped = spark.sparkContext.parallelize([(n % 5, n) for n in range(100)], 2).groupByKey(2)
truth["first"] = grouped.count()
for path in glob.glob(os.path.join(FOLDER, "local", "**", "shuffle_*"), recursive=True):
    os.remove(path)
truth["second"] = grouped.count()


# A failed barrier stage is retried up to the limit.
def refuse(rows: Iterable[int]) -> Iterable[int]:
    raise ValueError("never")


spark.sparkContext.setJobDescription("in vain")
try:
    spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(refuse).groupBy(int).count()
except Exception as error:
    truth["in vain"] = str(error)

write_down(truth)
spark.stop()
