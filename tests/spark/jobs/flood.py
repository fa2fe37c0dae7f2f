"""Job with so many tasks that a small listener queue of Spark overflows while a listener waits."""

from control import received
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("flood").getOrCreate()
while not received("stop"):
    spark.range(0, 200, 1, 200).count()
spark.stop()
