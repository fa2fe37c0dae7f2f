"""Application with two executors, which runs until the test ends it."""

from control import announce, count, wait_until_received
from pyspark import SparkContext

spark = SparkContext(appName="decommissioned")
count(spark)
announce("done")
wait_until_received("end", 300)
spark.stop()
