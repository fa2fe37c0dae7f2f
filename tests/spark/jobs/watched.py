"""Runs until Spark's own Prometheus servlet shows a reporter of spark-events, and writes down what it shows."""

import os
import time
import urllib.request

from control import FOLDER, write_down
from pyspark.sql import SparkSession

os.makedirs(os.path.join(FOLDER, "csv"))  # the sink does not make it
spark = SparkSession.builder.appName("watched").getOrCreate()
address = spark.sparkContext.uiWebUrl + "/metrics/prometheus/"
deadline = time.monotonic() + 60
text = ""
while "events_reporter" not in text or not os.listdir(os.path.join(FOLDER, "csv")):
    if time.monotonic() > deadline:
        break
    assert spark.range(3).count() == 3
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
write_down(text)
spark.stop()
