"""Program that causes one failure of a selected kind, and catches the failure or not."""

import sys
import threading
import time
from typing import Any

from control import FOLDER
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

how = sys.argv[2]
spark = SparkSession.builder.appName("incidents").getOrCreate()
context = spark.sparkContext


@F.udf("int")
def check(value: int) -> int:
    raise ValueError(f"payment {value} has no currency")  # the udf error


def fail() -> Any:
    return spark.range(1003, 1004).select(check("id")).collect()


def cancel_when_it_runs() -> None:
    tracker = context.statusTracker()
    while not tracker.getActiveStageIds():
        time.sleep(0.02)
    context.cancelJobGroup("nightly")


def book(payments: DataFrame, batch: int) -> None:
    if payments.count() and batch >= 1:
        raise ValueError("payment 1003 has no currency")  # the error of the query


def count(payments: DataFrame, batch: int) -> None:
    payments.count()


if how == "udf":
    fail()
elif how == "caught":
    try:
        fail()
    except Exception:
        spark.range(3).collect()
elif how == "query":
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    writer = rates.writeStream.queryName("book-payments").foreachBatch(book)
    writer.option("checkpointLocation", f"{FOLDER}/checkpoint").start().awaitTermination()
elif how == "restarted":
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    writer = rates.writeStream.queryName("book-payments").option("checkpointLocation", f"{FOLDER}/checkpoint")
    for _ in range(3):
        try:
            writer.foreachBatch(book).start().awaitTermination()
        except Exception as error:
            print(type(error).__name__)
    query = writer.foreachBatch(count).start()
    while not (query.lastProgress and query.lastProgress["batchId"] >= 1):
        time.sleep(0.1)
    query.stop()
else:
    context.setJobGroup("nightly", "the cancelled job", True)
    threading.Thread(target=cancel_when_it_runs, daemon=True).start()
    try:
        spark.range(1).rdd.map(lambda row: time.sleep(60)).collect()
    except Exception as error:
        print(type(error).__name__)
spark.stop()
