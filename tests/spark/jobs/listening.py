"""Consecutive contexts with the given settings; each records which of Spark's listener queues have listeners."""

import json
import sys

from control import count, write_down
from pyspark import SparkConf, SparkContext

for name, settings in json.loads(sys.argv[2]).items():
    spark = SparkContext(conf=SparkConf().setAppName(name).setAll(settings.items()))
    assert count(spark) == 3
    bus = spark._jsc.sc().listenerBus()
    queues = bus.activeQueues()
    write_down([queue for queue in ("executorManagement", "shared") if queues.contains(queue)], f"queues-{name}")
    spark.stop()
