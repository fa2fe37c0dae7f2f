"""Program that uses the exit hooks of configure or start, and ends in the way that its argument selects."""

import os
import signal
import sys

from control import FOLDER, count
from pyspark.sql import SparkSession

import spark_events

way, how = sys.argv[2:]
audit = {"audit": {"type": "file", "path": f"{FOLDER}/events.jsonl"}}
patient = {"sidecar.start-timeout": "2min", "shutdown.timeout": "1min"}
if way == "configure":
    spark = spark_events.configure(SparkSession.builder, audit, settings=patient).getOrCreate()
else:
    spark = spark_events.configure(SparkSession.builder, sidecar=False).getOrCreate()
    spark_events.start(spark, audit, settings={"shutdown.timeout": "1min"})
assert count(spark.sparkContext) == 3


def fail() -> None:
    raise ValueError("no price for order 7")


if how.startswith("caught"):
    try:
        sys.exit(3)
    except SystemExit:
        print("caught")
if "stop" in how:
    spark.stop()
if how.endswith("raise"):
    fail()
if how == "exit-3":
    sys.exit(3)
if how == "table":
    spark.table("no_such_table")
if how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
