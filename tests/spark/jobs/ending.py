"""Small job that ends in the way that its second argument selects.

Most endings need neither SQL nor Python workers, whose start would take longer than the job.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from control import FOLDER, announce, count, received, wait_until
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

how = sys.argv[2] if len(sys.argv) > 2 else "stop"
conf = SparkConf().setAppName("ending")
for setting in sys.argv[3:]:
    key, _, value = setting.partition("=")
    conf.set(key, value.replace("{folder}", FOLDER))
context = SparkContext(conf=conf)
java: Any = context._jsc
jvm: Any = context._jvm
assert count(context) == 3
announce("counted")
if how in ("never-stop", "with", "stop-then-exit-3", "missing-table", "segfault", "raise", "exit-3"):
    # The sidecar can read this process's exit status only if the sidecar starts before the exit.
    events = Path(FOLDER, "events.jsonl")
    wait_until("the application is reported", lambda: events.exists() and "RUNNING" in events.read_text())
if how == "wait":
    while not received("stop"):
        count(context)
        time.sleep(0.05)  # an interval between jobs, which leaves the processor to other tests
if how == "be-stopped":
    # Run no job here: Spark does not always stop a running job when the context stops.
    while not java.sc().isStopped():
        time.sleep(0.02)
    count(context)
if how == "with":
    with SparkSession(context):
        raise ValueError("raised in a with block")
if how == "stop-then-exit-3":
    context.stop()
    sys.exit(3)
if how == "missing-table":
    SparkSession(context).table("no_such_table")
if how == "out-of-memory":
    # In local mode, a task's OutOfMemoryError makes Spark exit the driver with code 52.
    text = "sum(length(repeat('x', 2000000000 + cast(id as int))))"
    SparkSession(context).range(1).selectExpr(text).collect()
if how == "segfault":
    os.kill(os.getpid(), signal.SIGSEGV)
if how == "raise":
    raise RuntimeError("raised at top level")
if how == "system-exit":
    jvm.System.exit(3)
if how == "exit-3":
    sys.exit(3)
if how != "never-stop":
    context.stop()
