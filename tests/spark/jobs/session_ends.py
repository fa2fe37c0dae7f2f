"""Stop a stream while Spark's listener waits for the stream's answer to an event."""

import json
import time

from control import write_down
from pyspark.sql import SparkSession

import spark_events

spark = spark_events.configure(SparkSession.builder, sidecar=False).getOrCreate()
jvm = spark._jvm
assert jvm is not None
settings = {"events.dispatcher.type": "sync", "events.dispatcher.sync.timeout": "1min"}
shim = jvm.io.sparkevents.inprocess.InProcess.open(spark._jsc.sc(), json.dumps({"settings": settings}))
shim.listen()
jvm.io.sparkevents.Events.add(json.dumps({"id": "1", "name": "Waits"}))
while b'"Waits"' not in shim.fetch(1_000):
    pass
began = time.monotonic()
shim.end()
write_down(time.monotonic() - began)
spark.stop()
