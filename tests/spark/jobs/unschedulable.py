"""Task that fails on the only executor, which is busy, so that its stage waits for another executor."""

import os
from collections.abc import Iterable

from control import FOLDER, announce, wait_until, wait_until_received
from pyspark import SparkContext, TaskContext

spark = SparkContext(appName="unschedulable")
again = os.path.join(FOLDER, "again")


def fail_once(rows: Iterable[int]) -> Iterable[int]:
    task = TaskContext.get()
    assert task is not None
    if task.partitionId() == 0:
        # Keeps the executor busy, because Spark would replace an idle executor.
        wait_until("the other task runs again", lambda: os.path.exists(again), 300)
    elif task.attemptNumber() == 0:
        raise ValueError("no luck")
    else:
        with open(again, "w"):
            pass
    return rows


spark.parallelize(range(2), 2).mapPartitions(fail_once).count()
announce("done")
wait_until_received("end", 300)
spark.stop()
