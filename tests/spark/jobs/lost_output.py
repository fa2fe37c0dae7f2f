"""A shuffle whose last task stands still while the executor that has run another one is killed."""

import os
import time
from collections.abc import Iterable

from control import FOLDER, say, told
from pyspark import TaskContext
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("lost-output").getOrCreate()
here = os.path.join(FOLDER, "here")
go = os.path.join(FOLDER, "go")


def work(index: int, rows: Iterable[int]) -> Iterable[tuple[int, int]]:
    """The last task goes on when it is told to; the others keep their executors busy until both have one."""
    context = TaskContext.get()
    assert context is not None
    os.makedirs(here, exist_ok=True)
    with open(os.path.join(here, str(index)), "a") as file:
        file.write(f"{os.getpid()}\n")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if os.path.exists(go) if index == 2 else len(os.listdir(here)) > 1:
            break
        time.sleep(0.02)
    return [(row % 2, row) for row in rows]


rows = spark.sparkContext.parallelize(range(30), 3).mapPartitionsWithIndex(work).groupByKey(2).count()
assert rows == 2, rows
assert told("go")
say("done")
spark.stop()
