"""Pipeline whose data sets read each other."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.materialized_view
def orders() -> DataFrame:
    return spark.read.table("totals")


@dp.materialized_view
def totals() -> DataFrame:
    return spark.read.table("orders")
