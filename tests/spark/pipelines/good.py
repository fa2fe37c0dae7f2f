"""Pipeline whose flows succeed: a batch flow, a streaming flow, and a flow with a name of its own."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.materialized_view
def orders() -> DataFrame:
    return spark.range(10)


@dp.materialized_view
def totals() -> DataFrame:
    return spark.table("orders").groupBy().count()


dp.create_streaming_table("clicks")


@dp.append_flow(target="clicks", name="clicks_of_web")
def clicks_of_web() -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
