"""Batch job that computes yesterday's turnover.

Strict parsing of the file fails, so the job parses the file again in permissive mode.

Usage: spark-submit orders.py INPUT. The job is plain PySpark and does not mention spark-events.
"""

import sys

from pyspark.sql import SparkSession

source = sys.argv[1]
spark = SparkSession.builder.appName("orders").config("spark.sql.ansi.enabled", "true").getOrCreate()
spark.read.csv(source, header=True).createOrReplaceTempView("orders")

try:
    total = spark.sql("SELECT sum(CAST(amount AS int)) FROM orders").first()
except Exception as error:
    print(f"some amounts are not numbers ({type(error).__name__}); counting them as 0")
    total = spark.sql("SELECT sum(coalesce(try_cast(amount AS int), 0)) FROM orders").first()

assert total is not None  # An aggregate without GROUP BY always returns one row.
print(f"turnover: {total[0]}")
spark.stop()
