"""Streaming job that fails because its foreachBatch reads a payment without a currency.

Usage: spark-submit payments.py INPUT OUTPUT. The job is plain PySpark and does not mention spark-events.
"""

import sys

from pyspark.sql import DataFrame, SparkSession

source, target = sys.argv[1:]


def book(payments: DataFrame, batch_id: int) -> None:
    for payment in payments.collect():
        if payment.currency is None:
            raise ValueError(f"payment {payment.id} has no currency")
        print(f"booked payment {payment.id}: {payment.amount} {payment.currency}")


spark = SparkSession.builder.appName("payments").getOrCreate()
query = (
    spark.readStream.schema("id int, amount int, currency string")
    .option("maxFilesPerTrigger", 1)
    .json(source)
    .writeStream.queryName("book-payments")
    .foreachBatch(book)
    .option("checkpointLocation", f"{target}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()  # raises the query's error, which fails the job
