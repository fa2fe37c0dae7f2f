"""Stream that commits consecutive batches until it is stopped.

Arguments: the folder, and the number of batches after which the stream stops (0: never).
"""

import itertools
import os
import sys
import time

from control import FOLDER, announce, put, received, write_down
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
announce("streaming")
for number in itertools.count(1):
    if received("stop") or number == most:
        break
    time.sleep(0.05)  # an interval between batches, which leaves the processor to other tests
    if received("flood"):
        # Start jobs whose records are so large that a pipe holds only a few of them.
        spark.sparkContext.setJobDescription("x" * 60_000)
        spark.range(1).count()
        spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]  # None removes the description
    put(source, number, [{"v": number}])
    query.processAllAvailable()
query.stop()
write_down({"id": query.id, "run_id": query.runId, "app_id": spark.sparkContext.applicationId})
announce("stopping")
spark.stop()
