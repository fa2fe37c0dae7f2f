"""Work that hangs until the test ends the wait: in a source, a foreachBatch, a task and a commit."""

import os
from threading import Thread
from typing import Any

from control import FOLDER, announce, put, received, wait_until_received
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import spark_events

# With `configure`, the sidecar can request the current line of the foreachBatch from this Python process.
spark = spark_events.configure(SparkSession.builder.appName("hangs")).getOrCreate()
os.makedirs(f"{FOLDER}/in", exist_ok=True)
put(f"{FOLDER}/in", 0, [{"n": 1}])
FLAGS = ("hang-list-in", "hang-create-commits")


def rows(scheme: str) -> DataFrame:
    return spark.readStream.schema("n int").json(f"{scheme}://{FOLDER}/in")


def start(writer: Any, name: str, checkpoint: str = "file") -> Any:
    options = writer.queryName(name).option("checkpointLocation", f"{checkpoint}://{FOLDER}/checkpoint-{name}")
    return options.start()


def wait_in_python(_: DataFrame, __: int) -> None:
    # A thread looks for the file, so that this one has the same line at any time.
    waiting = Thread(target=wait_until_received, args=("release-python",))
    waiting.start()
    wait_for(waiting)


def wait_for(thread: Thread) -> None:
    thread.join()  # the place


def value(n: int) -> int:
    import time

    while not os.path.exists(f"{FOLDER}/release-task"):
        time.sleep(0.02)
    return n


source = start(rows("hang").writeStream.format("noop"), "source")
source.processAllAvailable()
announce(FLAGS[0])
python = start(rows("file").writeStream.foreachBatch(wait_in_python), "python")
wait_until_received("release-source")
os.remove(f"{FOLDER}/{FLAGS[0]}")
source.processAllAvailable()
python.processAllAvailable()
source.stop()
python.stop()
os.makedirs(f"{FOLDER}/checkpoint-commit/commits", exist_ok=True)
announce(FLAGS[1])
commit = start(rows("file").writeStream.format("noop"), "commit", "hang")
function = udf(value, "int")
task = start(rows("file").select(function("n")).writeStream.format("noop"), "task")
wait_until_received("release-commit")
os.remove(f"{FOLDER}/{FLAGS[1]}")
wait_until_received("release-task")
commit.processAllAvailable()
task.processAllAvailable()
assert not received("never")
spark.stop()
