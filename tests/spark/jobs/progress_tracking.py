"""Queries with synchronous and asynchronous progress tracking; each ends after its fifth batch."""

import os

from control import FOLDER
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

spark = SparkSession.builder.appName("progress-tracking").getOrCreate()


def start(name: str, sink: str, **options: str) -> StreamingQuery:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
    return (
        rows.writeStream.queryName(name)
        .format(sink)
        .options(checkpointLocation=os.path.join(FOLDER, name), **options)
        .trigger(processingTime="100 milliseconds")
        .start()
    )


def stop_after_five_batches(query: StreamingQuery) -> None:
    while (query.lastProgress or {"batchId": -1})["batchId"] < 5:
        query.awaitTermination(1)
    query.stop()


stop_after_five_batches(start("synchronous", "noop"))
asynchronous = start(
    "asynchronous",
    "noop",
    asyncProgressTrackingEnabled="true",
    asyncProgressTrackingCheckpointIntervalMs="600000",
)
while not asynchronous.lastProgress:
    asynchronous.awaitTermination(1)
stop_after_five_batches(start("files", "parquet", path=os.path.join(FOLDER, "output")))
stop_after_five_batches(asynchronous)
stop_after_five_batches(
    start(
        "entries",
        "noop",
        asyncProgressTrackingEnabled="true",
        asyncProgressTrackingCheckpointIntervalMs="300",
    )
)
spark.stop()
