"""Streaming job that counts clicks per minute and page, from files, with event time and a watermark.

Usage: spark-submit clickstream.py INPUT OUTPUT. The job is plain PySpark and does not mention spark-events.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

source, target = sys.argv[1:]
spark = SparkSession.builder.appName("clickstream").getOrCreate()

clicks = (
    spark.readStream.schema("time timestamp, page string, user int")
    .option("maxFilesPerTrigger", 1)
    .json(source)
    .withWatermark("time", "30 seconds")
)
query = (
    clicks.groupBy(F.window("time", "1 minute"), "page")
    .count()
    .writeStream.queryName("clicks-per-minute")
    .format("json")
    .option("checkpointLocation", f"{target}/checkpoint")
    .trigger(availableNow=True)
    .start(f"{target}/windows")
)
query.awaitTermination()
spark.stop()
