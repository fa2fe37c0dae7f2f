"""Task that fails on the only executor, which is busy, so that its stage waits for another executor."""

import os
import time
from collections.abc import Iterable

from control import FOLDER, announce, wait_until_received
from pyspark import SparkContext, TaskContext

spark = SparkContext(appName="unschedulable")
again = os.path.join(FOLDER, "again")


def fail_once(rows: Iterable[int]) -> Iterable[int]:
    task = TaskContext.get()
    assert task is not None
    if task.partitionId() == 1:
        if task.attemptNumber() == 0:
            raise ValueError("no luck")
        with open(again, "w"):
            pass
    # Keeps the executor busy, because Spark would replace an idle executor.
    while not os.path.exists(again):
        time.sleep(0.02)
    return rows


spark.parallelize(range(2), 2).mapPartitions(fail_once).count()
announce("done")
wait_until_received("end", 300)
spark.stop()
