"""A small job that writes down in which of Spark's queues somebody listens."""

import time

from control import write_down
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("listening").getOrCreate()
assert spark.range(3).count() == 3
bus = spark.sparkContext._jsc.sc().listenerBus()
assert spark._jvm is not None
threads = spark._jvm.java.lang.Thread.getAllStackTraces
# A listener that leaves its queue does so when it is told of the application's start, on a thread of its own.
bus.waitUntilEmpty(600_000)
while any(thread.getName() == "spark-events-leaves" for thread in threads().keySet()):
    time.sleep(0.02)
queues = bus.activeQueues()
write_down([queue for queue in ("executorManagement", "shared") if queues.contains(queue)], "queues")
spark.stop()
