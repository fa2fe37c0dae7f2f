"""A batch job: yesterday's turnover. Its strict reading of the file fails; it falls back to a tolerant one.

Usage: spark-submit orders.py INPUT. Plain PySpark; it knows nothing of spark-events.
"""

import sys

from pyspark.sql import SparkSession

source = sys.argv[1]
spark = SparkSession.builder.appName("orders").config("spark.sql.ansi.enabled", "true").getOrCreate()
spark.read.csv(source, header=True).createOrReplaceTempView("orders")

try:
    turnover = spark.sql("SELECT sum(CAST(amount AS int)) FROM orders").first()[0]
except Exception as error:
    print(f"not every amount is a number ({type(error).__name__}); those that are not count as 0")
    turnover = spark.sql("SELECT sum(coalesce(try_cast(amount AS int), 0)) FROM orders").first()[0]

print(f"turnover: {turnover}")
spark.stop()
