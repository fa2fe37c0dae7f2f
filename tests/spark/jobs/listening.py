"""Small job that records which of Spark's listener queues have listeners."""

from control import write_down
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("listening").getOrCreate()
assert spark.range(3).count() == 3
bus = spark.sparkContext._jsc.sc().listenerBus()
queues = bus.activeQueues()
write_down([queue for queue in ("executorManagement", "shared") if queues.contains(queue)], "queues")
spark.stop()
