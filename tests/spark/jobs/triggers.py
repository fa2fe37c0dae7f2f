"""Stream with a trigger every 150 ms, which stops 20 commits after the test's command ``stop``.

The job writes down the last batch that Spark reported as committed.
"""

import os

from control import FOLDER, announce, received, write_down
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("triggers").getOrCreate()
rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1)
query = (
    rate.load()
    .writeStream.queryName("triggers")
    .format("noop")
    .option("checkpointLocation", os.path.join(FOLDER, "checkpoint"))
    .trigger(processingTime="150 milliseconds")
    .start()
)


def last_batch() -> int:
    return int((query.lastProgress or {"batchId": -1})["batchId"])


while last_batch() < 0:
    query.awaitTermination(1)
announce("streaming")
while not received("stop"):
    query.awaitTermination(1)
enough = last_batch() + 20
while last_batch() < enough:
    query.awaitTermination(1)
write_down(last_batch())
query.stop()
spark.stop()
