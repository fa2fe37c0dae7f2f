"""Queries over one Kafka topic with 1,000 rows: micro-batches, continuous and real-time mode.

The arguments are the broker, the topic, and the names of the queries to run, one after the other.
"""

import glob
import sys

from control import FOLDER, wait_until, write_down
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

servers, topic, *modes = sys.argv[2:]
spark = SparkSession.builder.appName("kafka-modes").config("spark.sql.shuffle.partitions", "1").getOrCreate()


def writer(name: str, **options: str) -> DataStreamWriter:
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    rows = source.options(startingOffsets="earliest", **options).load().selectExpr("CAST(value AS STRING) AS value")
    out = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", name)
    return out.queryName(name).option("checkpointLocation", f"{FOLDER}/{name}").outputMode("update")


if "micro-batch" in modes:
    query = writer("micro-batch", maxOffsetsPerTrigger="100").trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    write_down(
        [
            {**progress["sources"][0], "metrics": dict(progress["sources"][0]["metrics"])}
            for progress in query.recentProgress
        ]
    )
    query.stop()
if "continuous" in modes:
    query = writer("continuous").outputMode("append").trigger(continuous="1 second").start()
    wait_until("Spark commits two epochs", lambda: len(glob.glob(f"{FOLDER}/continuous/commits/[0-9]*")) >= 2)
    write_down(len(query.recentProgress), "continuous")
    query.stop()
if "real-time" in modes:
    query = writer("real-time").trigger(realTime="5 seconds").start()  # type: ignore[call-overload]
    wait_until("Spark processes two batches", lambda: (query.lastProgress or {"batchId": 0})["batchId"] >= 1)
    query.stop()
spark.stop()
