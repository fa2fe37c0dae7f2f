"""SQL that fails in the driver, cancelled jobs, and an application that fails because its SQL failed."""

import os
import sys
import threading
import time

from control import FOLDER, announce, write_down
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.functions import broadcast, udf

how = sys.argv[2]
spark = SparkSession.builder.appName("sql-failures").getOrCreate()
out = os.path.join(FOLDER, "out")
runs = os.path.join(FOLDER, "runs")
go = os.path.join(FOLDER, "go")


@udf("long")
def slow(number: int) -> int:
    with open(runs, "w"):
        pass
    while not os.path.exists(go):
        time.sleep(0.02)
    return number


def wait_for_a_task() -> None:
    while not os.path.exists(runs):
        time.sleep(0.02)
    os.remove(runs)


def fails(statement: str) -> str:
    try:
        spark.sql(statement).collect()
    except Exception as error:
        return type(error).__name__
    return ""


if how == "driver":
    spark.range(3).write.parquet(out)
    errors = [fails("drop table no_such_table")]
    try:
        spark.range(3).write.parquet(out)
    except AnalysisException as error:
        errors.append(type(error).__name__)
    # A job fails in a nested SQL execution.
    errors.append(
        fails(f"insert overwrite directory '{out}2' using parquet select assert_true(id < 0) is null x from range(2)")
    )
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.broadcastTimeout", "2")
    try:
        spark.range(10).join(broadcast(spark.range(2).select(slow("id").alias("id"))), "id").collect()
    except Exception as error:
        errors.append(type(error).__name__)
    # Spark cancels the job asynchronously. If the application stopped earlier, the job would end with the application.
    while spark.sparkContext.statusTracker().getActiveJobsIds():
        time.sleep(0.02)
    announce("go")
    write_down(errors)
    spark.stop()
if how == "memory":
    try:
        spark.range(40).selectExpr("repeat(string(id), 20000000) s").collect()
    except Exception as error:
        write_down([type(error).__name__])
    spark.stop()
if how == "exists":
    spark.range(3).write.parquet(out)
    spark.range(3).write.parquet(out)
if how == "cancelled":
    context = spark.sparkContext

    def cancels() -> None:
        wait_for_a_task()
        context.cancelAllJobs()

    canceller = threading.Thread(target=cancels)
    canceller.start()
    errors = []
    try:
        spark.range(1).select(slow("id")).collect()
    except Exception as error:
        errors.append(type(error).__name__)
    canceller.join()
    write_down(errors)
    # One job is still running when the application ends.
    threading.Thread(target=spark.range(1).select(slow("id")).collect, daemon=True).start()
    wait_for_a_task()
    spark.stop()
