"""Task that fails once, so Spark excludes its executor from the stage and the application, until the timeout."""

from collections.abc import Iterable

from control import announce, wait_until_received
from pyspark import SparkContext, TaskContext

spark = SparkContext(appName="excluded")


def fail_once(rows: Iterable[int]) -> Iterable[int]:
    task = TaskContext.get()
    assert task is not None
    if task.partitionId() == 0 and task.attemptNumber() == 0:
        raise ValueError("no luck")
    return rows


spark.parallelize(range(4), 4).mapPartitions(fail_once).count()
announce("done")
wait_until_received("end", 300)
spark.stop()
