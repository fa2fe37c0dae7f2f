"""Stop a stream while Spark's listener queue is full."""

import time
from collections.abc import Sequence

from control import write_down
from pyspark.sql import SparkSession

import spark_events


class Slow(spark_events.Reporter):
    def report(self, events: Sequence[spark_events.Event]) -> None:
        time.sleep(4)


spark = spark_events.configure(SparkSession.builder, sidecar=False).getOrCreate()
events = spark_events.start(spark, reporters=[Slow()], dispatcher="sync", settings={"shutdown.timeout": "5s"})
for _ in range(10):
    spark.range(1).count()
began = time.monotonic()
events.stop()
write_down(time.monotonic() - began)
spark.stop()
