"""Tasks with speculative copies that win and that lose, and a task that fails on one host.

Spark starts a speculative copy only on another host than that of the original, and runs a failed task again on another
host if its own is excluded.
"""

import os
import time
from collections.abc import Iterable

from control import FOLDER
from pyspark import SparkContext, TaskContext

spark = SparkContext(appName="two hosts")


def task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def until(file: str) -> None:
    """Wait until a file of the test's folder exists, or Spark kills the task."""
    while not os.path.exists(os.path.join(FOLDER, file)):
        time.sleep(0.05)


def copy_wins(rows: Iterable[int]) -> Iterable[int]:
    """Hang in the original attempt of the first task."""
    if task().partitionId() == 0 and task().attemptNumber() == 0:
        until("never")
    return rows


def copy_loses(rows: Iterable[int]) -> Iterable[int]:
    """Hang in the copy of the first task, whose original waits until the copy runs."""
    if task().partitionId() == 0:
        if task().attemptNumber() == 0:
            until("copied")
        else:
            with open(os.path.join(FOLDER, "copied"), "w"):
                pass
            until("never")
    return rows


def fail_once(rows: Iterable[int]) -> Iterable[int]:
    """Fail in the first attempt."""
    if task().attemptNumber() == 0:
        raise ValueError("no luck")
    return rows


spark.parallelize(range(4), 4).mapPartitions(copy_wins).count()
spark.parallelize(range(4), 4).mapPartitions(copy_loses).count()
# Spark never copies the only task of a stage.
spark.parallelize(range(4), 1).mapPartitions(fail_once).count()
spark.stop()
