"""Small job that ends in the way that its second argument selects."""

import os
import signal
import sys
import time

from control import FOLDER, announce, received
from pyspark.sql import SparkSession

how = sys.argv[2] if len(sys.argv) > 2 else "stop"
builder = SparkSession.builder.appName("ending")
for setting in sys.argv[3:]:
    key, _, value = setting.partition("=")
    builder = builder.config(key, value.replace("{folder}", FOLDER))
spark = builder.getOrCreate()
assert spark.range(3).count() == 3
announce("counted")
if how == "wait":
    while not received("stop"):
        spark.range(1).count()
        time.sleep(0.05)  # an interval between jobs, which leaves the processor to other tests
if how == "be-stopped":
    # Run no query here: Spark does not always stop a running query when the context stops.
    while not spark.sparkContext._jsc.sc().isStopped():
        time.sleep(0.02)
    spark.range(1).count()
if how == "with":
    with spark:
        raise ValueError("raised in a with block")
if how == "stop-then-exit-3":
    spark.stop()
    sys.exit(3)
if how == "missing-table":
    spark.table("no_such_table")
if how == "out-of-memory":
    # In local mode, a task's OutOfMemoryError makes Spark exit the driver with code 52.
    spark.range(1).selectExpr("sum(length(repeat('x', 2000000000 + cast(id as int))))").collect()
if how == "segfault":
    os.kill(os.getpid(), signal.SIGSEGV)
if how == "raise":
    raise RuntimeError("raised at top level")
if how == "system-exit":
    assert spark._jvm is not None
    spark._jvm.System.exit(3)
if how == "exit-3":
    sys.exit(3)
if how != "never-stop":
    spark.stop()
