"""Program that causes one failure of each selected kind, and catches the failure or not.

Arguments: the folder and the kinds, separated by commas. With several kinds, each kind has its own context, whose
events and event log are in a folder with the name of the kind.
"""

import os
import sys
import threading
import time
from typing import Any

from control import FOLDER
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

kinds = sys.argv[2].split(",")


@F.udf(IntegerType())
def check(value: int) -> int:
    raise ValueError(f"payment {value} has no currency")  # the udf error


def fail(spark: SparkSession) -> Any:
    return spark.range(1003, 1004).select(check("id")).collect()


def cancel_when_it_runs(context: SparkContext) -> None:
    tracker = context.statusTracker()
    while not tracker.getActiveStageIds():
        time.sleep(0.02)
    context.cancelJobGroup("nightly")


def book(payments: DataFrame, batch: int) -> None:
    if payments.count() and batch >= 1:
        raise ValueError("payment 1003 has no currency")  # the error of the query


def count(payments: DataFrame, batch: int) -> None:
    payments.count()


def cause(how: str, spark: SparkSession) -> None:
    if how == "udf":
        fail(spark)
    elif how == "caught":
        try:
            fail(spark)
        except Exception:
            spark.range(3).collect()
    elif how == "wrong-cause":
        try:
            fail(spark)
        except Exception as error:
            print(type(error).__name__)
        os.stat("/etc/shop/prices.yaml")  # the real cause
    elif how == "finally":
        try:
            fail(spark)
        finally:
            spark.stop()
    elif how == "finally-query":
        try:
            cause("query", spark)
        finally:
            spark.stop()
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
        context = spark.sparkContext
        context.setJobGroup("nightly", "the cancelled job", True)
        threading.Thread(target=cancel_when_it_runs, args=(context,), daemon=True).start()
        try:
            spark.range(1).rdd.map(lambda row: time.sleep(60)).collect()
        except Exception as error:
            print(type(error).__name__)


for kind in kinds:
    builder = SparkSession.builder.appName("incidents")
    if len(kinds) > 1:
        own = os.path.join(FOLDER, kind)
        os.mkdir(own)
        builder = builder.config("spark.eventLog.dir", own)
        builder = builder.config("spark.events.reporter.audit.path", os.path.join(own, "events.jsonl"))
    session = builder.getOrCreate()
    cause(kind, session)
    session.stop()
