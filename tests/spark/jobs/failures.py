"""Failures of many kinds, each in a separate job whose description is the name of the failure."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from control import FOLDER, write_down
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.appName("failures").getOrCreate()
spark.conf.set("spark.sql.adaptive.enabled", "false")
data = os.path.join(FOLDER, "data")
outcomes: dict[str, str] = {}


def attempt(name: str, work: Callable[[], Any]) -> None:
    spark.sparkContext.setJobDescription(name)
    try:
        work()
        outcomes[name] = "succeeded"
    except Exception as error:
        outcomes[name] = type(error).__name__


def with_udf(function: Callable[[int], int]) -> DataFrame:
    return spark.range(0, 2, 1, 2).select(F.udf(function, "int")("id").alias("v"))


def segfault(_: int) -> int:
    os.kill(os.getpid(), signal.SIGSEGV)
    return 1


def killed(_: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 1


def misleading(_: int) -> int:
    class PaymentError(Exception):
        """Exception class defined in a function, so its qualified name contains ``<locals>``."""

    raise PaymentError("payment failed\nCaused by: com.acme.Bank: no money\nmore")  # the misleading error


def slow(value: int) -> int:
    time.sleep(60)
    return value


def cancel_when_it_runs() -> None:
    tracker = spark.sparkContext.statusTracker()
    while not tracker.getActiveStageIds():
        time.sleep(0.02)
    spark.sparkContext.cancelAllJobs()


def once(value: int) -> int:
    """Run a stage that succeeds: one task fails at its first attempt, and the remaining tasks are slow."""
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0 and context.partitionId() == 0:
        open(os.path.join(FOLDER, "has-failed-once"), "w").close()
        raise RuntimeError("once")
    time.sleep(60)
    return value


def broken(value: int) -> int:
    while not os.path.exists(os.path.join(FOLDER, "has-failed-once")):
        time.sleep(0.02)
    time.sleep(1)
    return 1 // (value * 0)  # the broken error


attempt("segfault", lambda: with_udf(segfault).collect())
attempt("killed", lambda: with_udf(killed).collect())
attempt("misleading", lambda: with_udf(misleading).collect())

spark.range(5).write.orc(f"{data}/orc")
spark.range(5).write.parquet(f"{data}/parquet")
attempt("orc as parquet", lambda: spark.read.schema("id long").parquet(f"{data}/orc").collect())
attempt("parquet as orc", lambda: spark.read.schema("id long").orc(f"{data}/parquet").collect())
attempt("another schema", lambda: spark.read.schema("id array<int>").parquet(f"{data}/parquet").collect())

threading.Thread(target=cancel_when_it_runs, daemon=True).start()
attempt("cancelled", lambda: with_udf(slow).collect())

healthy = with_udf(once).groupBy("v").count()
attempt("beside a healthy stage", lambda: healthy.union(with_udf(broken).groupBy("v").count()).collect())

# The second job reads the first job's shuffle output. This output is missing, so Spark recomputes it.
spark.sparkContext.setJobDescription("missing shuffle output")
grouped = spark.sparkContext.parallelize(range(10), 2).map(lambda v: (v % 2, v)).groupByKey(2)
grouped.count()
for file in Path(FOLDER, "local").rglob("shuffle_*"):
    file.unlink()
grouped.count()

write_down(outcomes)
spark.stop()
