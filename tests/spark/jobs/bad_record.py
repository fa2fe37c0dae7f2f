"""Fail on one bad record: of a file, or of a Kafka topic. Arguments: the kind, and the file or the broker."""

from __future__ import annotations

import json
import sys

from control import FOLDER
from pyspark.sql import DataFrame, SparkSession

kind, place = sys.argv[2:]
spark = SparkSession.builder.appName(f"bad-{kind}").getOrCreate()


def parsed(value: bytes) -> int:
    return len(json.loads(value))


def parse_all(batch: DataFrame, _: int) -> None:
    batch.select("value").rdd.map(lambda row: parsed(row.value)).count()


if kind == "kafka":
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", place).option("subscribe", "orders")
    rows = source.options(startingOffsets="earliest", maxOffsetsPerTrigger="100").load()
    query = rows.writeStream.queryName("orders").option("checkpointLocation", f"{FOLDER}/c").foreachBatch(parse_all)
    query.start().awaitTermination()
else:
    spark.read.schema("id INT").option("mode", "FAILFAST").json(place).write.format("noop").mode("overwrite").save()
