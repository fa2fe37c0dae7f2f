"""Job that waits for an executor that never starts, until the test releases the program."""

from threading import Thread

from control import wait_until_received
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("starved").getOrCreate()
Thread(target=lambda: spark.range(3).count(), daemon=True).start()
wait_until_received("release")
spark.stop()
