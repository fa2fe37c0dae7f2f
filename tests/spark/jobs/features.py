"""Features of Spark 4: transformWithState with timers and RocksDB, and a Python data source that fails."""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

# Not from control, which hides pandas.
FOLDER = sys.argv[1]
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark = (
    SparkSession.builder.appName("features")
    .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    .config("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1")
    .getOrCreate()
)


class Timers(StatefulProcessor):
    """Register a timer for each key of a batch."""

    def init(self, handle: Any) -> None:
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 3_600_000)
        yield pd.DataFrame({"id": [key[0]]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"id": [key[0]]})

    def close(self) -> None:
        pass


class Refused(DataSource, DataSourceReader):
    """Source whose service refuses the connection."""

    @classmethod
    def name(cls) -> str:
        return "refused"

    def schema(self) -> str:
        return "id long"

    def reader(self, schema: Any) -> "Refused":
        return self

    def read(self, partition: Any) -> Iterator[tuple[int]]:
        raise ConnectionError("the service refused the connection")


rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 4).load().selectExpr("value % 4 id")
timed = rows.groupBy("id").transformWithStateInPandas(Timers(), "id long", "Update", "ProcessingTime")
writer = timed.writeStream.format("noop").outputMode("update").queryName("timers")
query = writer.option("checkpointLocation", os.path.join(FOLDER, "timers")).start()
while (query.lastProgress or {"batchId": -1})["batchId"] < 3:
    query.awaitTermination(1)
query.stop()
progress = [json.loads(one.json) for one in query.recentProgress if one.durationMs.get("addBatch") is not None]
spark.dataSource.register(Refused)
try:
    spark.read.format("refused").load().collect()
except Exception as error:
    truth = {"progress": progress, "error": type(error).__name__}
    with open(os.path.join(FOLDER, "truth.json"), "w") as file:
        json.dump(truth, file)
spark.stop()
