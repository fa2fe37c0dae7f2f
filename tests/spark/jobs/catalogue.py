"""Job that produces every kind of event once and records Spark's data for comparison.

The second argument maps the name of each case to the case's settings, as JSON. The cases are applications that run one
after another in this process. The folder with the name of a case contains all files of the case.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from control import begin, put, write_down
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery


def clicks(minute: int, count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"ts": f"2026-01-01T00:{minute:02d}:{second:02d}Z", "v": start + second} for second in range(count)]


def stream(spark: SparkSession, source: str) -> DataFrame:
    return spark.readStream.schema("ts timestamp, v int").json(source)


def start_clicks(rows: DataFrame, checkpoint: str) -> StreamingQuery:
    counts = (
        rows.observe("stats", F.count(F.lit(1)).alias("rows"), F.max("v").alias("highest"), F.avg("v").alias("mean"))
        .withWatermark("ts", "10 seconds")
        .groupBy(F.window("ts", "1 minute"))
        .count()
    )
    return (
        counts.writeStream.queryName("clicks")
        .outputMode("append")
        .format("noop")
        .option("checkpointLocation", checkpoint)
        .start()
    )


def check(row: Row) -> None:
    if row.v > 2:
        raise ValueError(f"cannot take {row.v}")  # the streaming error


def careful(batch: DataFrame, batch_id: int) -> None:
    if batch_id == 1:
        for row in batch.orderBy("v").collect():
            check(row)


def mended(batch: DataFrame, batch_id: int) -> None:
    batch.count()


def start_careful(
    spark: SparkSession, source: str, checkpoint: str, function: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    return (
        spark.readStream.schema("ts timestamp, v int")
        .option("maxFilesPerTrigger", 1)
        .json(source)
        .writeStream.queryName("careful")
        .foreachBatch(function)
        .option("checkpointLocation", checkpoint)
        .start()
    )


def broken(value: int) -> int:
    return 1 // value  # the batch error


def run(case: str, settings: dict[str, Any]) -> None:
    """Run one application, from its start to its end."""
    folder = begin(case)
    os.mkdir(os.path.join(folder, "eventlog"))
    source = os.path.join(folder, "in")
    spark = SparkSession.builder.appName("catalogue").config(map=settings).getOrCreate()
    truth: dict[str, Any] = {
        "app_id": spark.sparkContext.applicationId,
        "user": spark.sparkContext.sparkUser(),
        "version": spark.version,
        "runs": [],
    }

    def note(query: StreamingQuery, checkpoint: str) -> None:
        truth["runs"].append(
            {
                "id": query.id,
                "run_id": query.runId,
                "name": query.name,
                "checkpoint": checkpoint,
                "failed": query.exception() is not None,
                "progress": [json.loads(progress.json()) for progress in query._jsq.recentProgress()],
            }
        )

    # Run a query with event time and a watermark twice, with one checkpoint.
    checkpoint = os.path.join(folder, "clicks")
    put(source, 1, clicks(1, 5))
    query = start_clicks(stream(spark, source), checkpoint)
    query.processAllAvailable()
    put(source, 2, clicks(5, 7))
    query.processAllAvailable()
    put(source, 3, clicks(1, 3))  # late rows, older than the watermark
    query.processAllAvailable()
    query.stop()
    note(query, "clicks")

    put(source, 4, clicks(9, 4))
    query = start_clicks(stream(spark, source), checkpoint)
    query.processAllAvailable()
    put(source, 5, clicks(12, 6))
    query.processAllAvailable()
    query.stop()
    note(query, "clicks")

    # Run a query that fails in the user's code, and start the query again without the error.
    checkpoint = os.path.join(folder, "careful")
    query = start_careful(spark, source, checkpoint, careful)
    try:
        query.awaitTermination()
    except Exception as error:
        truth["careful_error"] = type(error).__name__
    note(query, "careful")
    query = start_careful(spark, source, checkpoint, mended)
    query.processAllAvailable()
    query.stop()
    note(query, "careful")

    # Run a query without a name.
    writer = stream(spark, source).writeStream.format("noop")
    query = writer.option("checkpointLocation", os.path.join(folder, "unnamed")).start()
    query.processAllAvailable()
    query.stop()
    note(query, "unnamed")

    # Run two batch jobs: one succeeds, and one fails in the user's code. No job is cancelled.
    truth["good_count"] = spark.range(10).count()
    spark.sparkContext.setJobDescription("divide by what is there")
    try:
        spark.range(3).select(F.udf(broken, "int")(F.col("id").cast("int"))).collect()
    except Exception as error:
        truth["batch_error"] = type(error).__name__
    spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]  # None removes the description
    truth["good_count_after"] = spark.range(10).count()

    write_down(truth, os.path.join(case, "truth"))
    spark.stop()


for case, settings in json.loads(sys.argv[2]).items():
    run(case, settings)
