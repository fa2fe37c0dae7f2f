"""Program with some of five endings, for the comparison of a live run and of ``spark-events follow``.

Arguments: the folder, the endings, separated by commas, and the folder with the checkpoints and the live events. Each
ending has its own application; the last one may end the program.
"""

import os
import signal
import sys
from typing import Any

import psutil
from control import wait_until
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

endings, place = sys.argv[2].split(","), sys.argv[3]


def divide(value: int) -> float:
    return 1 / (value - 2)


def fail_at_the_third_batch(rows: DataFrame, batch: int) -> None:
    if rows.count() and batch == 2:
        raise KeyError("currency")


def fail_once(rows: DataFrame, batch: int) -> None:
    mark = os.path.join(place, "has-failed")
    if rows.count() and batch == 1 and not os.path.exists(mark):
        with open(mark, "w"):
            pass
        raise ConnectionRefusedError(111, "Connection refused")


def started(spark: SparkSession, book: Any, name: str) -> StreamingQuery:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    writer = rows.writeStream.queryName(name).foreachBatch(book)
    return writer.option("checkpointLocation", os.path.join(place, f"checkpoint-{name}")).start()


def has_committed(query: StreamingQuery, batch: int) -> bool:
    return query.lastProgress is not None and query.lastProgress["batchId"] >= batch


def is_reported(text: str) -> bool:
    with open(os.path.join(place, "events.jsonl")) as events:
        return text in events.read()


def cause(how: str, spark: SparkSession) -> None:
    numbers = spark.sparkContext.parallelize(range(4), 2)
    if how == "failed-query":
        started(spark, fail_at_the_third_batch, "book-payments").awaitTermination()
    elif how == "finally":
        try:
            numbers.map(divide).collect()
        finally:
            spark.stop()
    elif how == "killed":
        query = started(spark, lambda rows, batch: rows.count(), "count-clicks")
        wait_until("a batch is committed", lambda: has_committed(query, 0))
        wait_until("the batch is reported", lambda: is_reported("'count-clicks' committed"))
        [driver] = [one for one in psutil.Process().parents() if "deploy.SparkSubmit" in " ".join(one.cmdline())]
        driver.send_signal(signal.SIGKILL)
    elif how == "recovering":
        query = started(spark, fail_once, "book-refunds")
        wait_until("the query recovers or fails", lambda: not query.isActive or has_committed(query, 2))
        if not query.isActive:
            query.awaitTermination()
        query.stop()
    else:
        try:
            numbers.map(divide).collect()
        except Exception as error:
            print(type(error).__name__)
        print(numbers.count())


for ending in endings:
    session = SparkSession.builder.appName(f"followed-{ending}").getOrCreate()
    cause(ending, session)
    session.stop()
