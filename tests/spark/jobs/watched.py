"""Run until Spark's metrics contain spark-events' reporters, and record the output of the metrics servlet."""

import os
import re
import time
import urllib.request

from control import FOLDER, count, write_down
from pyspark import SparkContext

os.makedirs(os.path.join(FOLDER, "csv"))  # the sink does not create this folder
spark = SparkContext(appName="watched")
assert spark.uiWebUrl is not None
address = spark.uiWebUrl + "/metrics/prometheus/"
deadline = time.monotonic() + 300
text = ""


def all_metrics_are_published() -> bool:
    """Return whether both sinks contain the second reporter's metrics, which are published last."""
    files = os.listdir(os.path.join(FOLDER, "csv"))
    delivered = re.search(r"_on_call_deliveredCount_Value\S* 7", text) is not None
    return delivered and any("on-call.oldest" in name for name in files)


while not all_metrics_are_published():
    if time.monotonic() > deadline:
        break
    assert count(spark) == 3
    with urllib.request.urlopen(address, timeout=60) as answer:
        text = answer.read().decode()
write_down(text)
spark.stop()
