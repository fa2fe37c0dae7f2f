"""Query without input that is stopped as soon as its watermark is reported IDLE."""

import json
import os
import time

from control import FOLDER, put
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("silent").getOrCreate()
EVENTS = os.path.join(FOLDER, "events.jsonl")
INPUT = os.path.join(FOLDER, "input")


def is_idle() -> bool:
    with open(EVENTS) as lines:
        events = [json.loads(line)["attributes"] for line in lines if line.endswith("\n")]
    wanted = {"spark.status.new": "IDLE", "spark.watermark.subject": "query"}.items()
    return any(wanted <= event.items() for event in events)


put(INPUT, 0, [{"ts": "2026-01-01T00:00:00Z", "v": 1}])
query = (
    spark.readStream.schema("ts timestamp, v int")
    .json(INPUT)
    .withWatermark("ts", "10 seconds")
    .writeStream.queryName("silent")
    .format("noop")
    .option("checkpointLocation", os.path.join(FOLDER, "checkpoint"))
    .start()
)
deadline = time.monotonic() + 300
while not is_idle():
    assert time.monotonic() < deadline, "the query never fell idle"
    time.sleep(0.02)
query.stop()
spark.stop()
