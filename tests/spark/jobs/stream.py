"""A stream that commits one batch after the other until it is told to stop.

Arguments: the folder, and how many batches to do when nobody says stop (0: no end).
"""

import itertools
import os
import sys

from control import FOLDER, put, say, told, write_down
from pyspark.sql import SparkSession

most = int(sys.argv[2]) if len(sys.argv) > 2 else 0
spark = SparkSession.builder.appName("stream").getOrCreate()
source = os.path.join(FOLDER, "in")
put(source, 0, [{"v": 0}])
query = (
    spark.readStream.schema("v int")
    .json(source)
    .writeStream.queryName("steady")
    .format("noop")
    .option("checkpointLocation", os.path.join(FOLDER, "steady"))
    .start()
)
query.processAllAvailable()
say("streaming")
for number in itertools.count(1):
    if told("stop") or number == most:
        break
    if told("flood"):
        # Job starts whose records are too large for many of them to fit into a pipe.
        spark.sparkContext.setJobDescription("x" * 60_000)
        spark.range(1).count()
        spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]  # it takes the description away
    put(source, number, [{"v": number}])
    query.processAllAvailable()
query.stop()
write_down({"id": query.id, "run_id": query.runId, "app_id": spark.sparkContext.applicationId})
say("stopping")
spark.stop()
