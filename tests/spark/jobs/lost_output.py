"""Shuffle whose last task blocks while the test kills the executor on which another task has finished."""

import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from control import FOLDER, announce
from pyspark import SparkContext

spark = SparkContext(appName="lost-output")
here = os.path.join(FOLDER, "here")
go = os.path.join(FOLDER, "go")


def work(index: int, rows: Iterable[int]) -> Iterable[tuple[int, int]]:
    """Block the last task until the test releases it. Keep all other tasks busy until each executor runs a task."""
    os.makedirs(here, exist_ok=True)
    with open(os.path.join(here, str(index)), "a") as file:
        file.write(f"{os.getpid()}\n")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if os.path.exists(go) if index == 2 else len(os.listdir(here)) > 1:
            break
        time.sleep(0.02)
    return [(row % 2, row) for row in rows]


def count() -> int:
    return spark.parallelize(range(30), 3).mapPartitionsWithIndex(work).groupByKey(2).count()


def finished() -> int:
    stage = spark.statusTracker().getStageInfo(0)
    return stage.numCompletedTasks if stage is not None else 0


with ThreadPoolExecutor() as pool:
    counted = pool.submit(count)
    while finished() < 2 and not counted.done():
        time.sleep(0.02)
    announce("half")
    assert counted.result() == 2
spark.stop()
