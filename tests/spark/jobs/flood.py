"""Job with many tasks, which overflows Spark's small listener queue while a listener waits."""

from control import received
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("flood").getOrCreate()
while not received("stop"):
    spark.range(0, 200, 1, 200).count()
spark.stop()
