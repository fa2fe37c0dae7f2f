"""Job that waits for an executor that cannot start, until the test ends the wait."""

from threading import Thread

from control import count, wait_until_received
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("starved").getOrCreate()
Thread(target=lambda: count(spark.sparkContext), daemon=True).start()
wait_until_received("release")
spark.stop()
