"""A query whose newest RocksDB snapshot is damaged between two runs of it."""

import os
import time
from pathlib import Path

from control import FOLDER
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

STATE = Path(FOLDER, "checkpoint", "state", "0", "0")
STORE = "spark.sql.streaming.stateStore."
SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.sql.shuffle.partitions": "1",
    STORE + "providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    STORE + "rocksdb.changelogCheckpointing.enabled": "true",
    STORE + "autoSnapshotRepair.enabled": "true",
    STORE + "autoSnapshotRepair.numFailuresBeforeActivating": "1",
    STORE + "maintenanceInterval": "100ms",
    STORE + "minDeltasForSnapshot": "2",
}


def session() -> SparkSession:
    # A new context has an empty state store, which loads the snapshot.
    return SparkSession.builder.appName("repair").config(map=SETTINGS).getOrCreate()


def add_files(count: int) -> None:
    Path(FOLDER, "input").mkdir(exist_ok=True)
    for _ in range(count):
        written = Path(FOLDER, f".{time.time_ns()}")
        written.write_text("a\nb\n")
        written.rename(Path(FOLDER, "input", f"{time.time_ns()}.txt"))


def start(spark: SparkSession) -> StreamingQuery:
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(os.path.join(FOLDER, "input"))
    return (
        lines.dropDuplicates(["value"])
        .writeStream.queryName("repaired")
        .format("noop")
        .option("checkpointLocation", os.path.join(FOLDER, "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )


add_files(6)
spark = session()
query = start(spark)
query.processAllAvailable()
while not list(STATE.glob("*.zip")):
    query.awaitTermination(1)
query.stop()
spark.stop()

newest = max(STATE.glob("*.zip"), key=lambda path: int(path.stem))
newest.write_bytes(b"damaged")
newest.with_name(f".{newest.name}.crc").unlink()

add_files(1)
spark = session()
query = start(spark)
query.processAllAvailable()
query.stop()
spark.stop()
