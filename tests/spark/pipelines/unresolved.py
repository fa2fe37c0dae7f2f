"""Pipeline with flows that Spark cannot analyse, so that nothing runs."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.materialized_view
def orders() -> DataFrame:
    return spark.range(3)


@dp.materialized_view
def totals() -> DataFrame:
    return spark.table("orders").select("amount")


@dp.materialized_view
def customers() -> DataFrame:
    return spark.table("people")
