"""Applications that run successful jobs before and after two failed jobs, and measure the durations.

Arguments: the folder, the name and the settings of each application as JSON, and the number of successful jobs.
"""

import json
import sys
import time

from control import begin, write_down
from pyspark.sql import SparkSession

good = int(sys.argv[3])


def succeed(spark: SparkSession) -> float:
    began = time.monotonic()
    for _ in range(good):
        assert len(spark.range(3).collect()) == 3
    return time.monotonic() - began


for name, settings in json.loads(sys.argv[2]).items():
    begin(name)
    spark = SparkSession.builder.appName("failing").config(map=settings).getOrCreate()
    before = succeed(spark)
    for _ in range(2):
        try:
            spark.range(1).selectExpr("raise_error('boom')").collect()
        except Exception as error:
            failed = type(error).__name__
    after = succeed(spark)
    write_down({"before": before, "after": after, "failed": failed}, f"{name}/truth")
    spark.stop()
