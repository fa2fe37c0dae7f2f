"""Program that runs successful jobs before and after a failed job, and measures their durations."""

import sys
import time

from control import write_down
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("failing").getOrCreate()
good = int(sys.argv[2])


def succeed() -> float:
    began = time.monotonic()
    for _ in range(good):
        assert len(spark.range(3).collect()) == 3
    return time.monotonic() - began


before = succeed()
for _ in range(2):
    try:
        spark.range(1).selectExpr("raise_error('boom')").collect()
    except Exception as error:
        failed = type(error).__name__
after = succeed()
write_down({"before": before, "after": after, "failed": failed})
spark.stop()
