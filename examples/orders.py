"""A batch job: yesterday's turnover. Its strict reading of the file fails; it falls back to a tolerant one.

Usage: spark-submit orders.py INPUT. Plain PySpark; it knows nothing of spark-events.
"""

import sys

from pyspark.sql import SparkSession

source = sys.argv[1]
spark = SparkSession.builder.appName("orders").config("spark.sql.ansi.enabled", "true").getOrCreate()
spark.read.csv(source, header=True).createOrReplaceTempView("orders")

try:
    total = spark.sql("SELECT sum(CAST(amount AS int)) FROM orders").first()
except Exception as error:
    print(f"not every amount is a number ({type(error).__name__}); those that are not count as 0")
    total = spark.sql("SELECT sum(coalesce(try_cast(amount AS int), 0)) FROM orders").first()

assert total is not None  # a sum is always one row
print(f"turnover: {total[0]}")
spark.stop()
