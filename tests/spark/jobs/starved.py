"""Job that waits for an executor that cannot start, until the test ends the wait."""

from threading import Thread

from control import count, wait_until_received
from pyspark import SparkContext

spark = SparkContext(appName="starved")
Thread(target=lambda: count(spark), daemon=True).start()
wait_until_received("release")
spark.stop()
