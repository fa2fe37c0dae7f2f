"""Stream with a trigger every 150 ms.

Arguments: the folder, and the number of commits after which the stream stops.
"""

import os
import sys

from control import FOLDER, announce
from pyspark.sql import SparkSession

most = int(sys.argv[2])
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
while (query.lastProgress or {"batchId": -1})["batchId"] < 0:
    query.awaitTermination(1)
announce("streaming")
while (query.lastProgress or {"batchId": -1})["batchId"] < most - 1:
    query.awaitTermination(1)
query.stop()
spark.stop()
