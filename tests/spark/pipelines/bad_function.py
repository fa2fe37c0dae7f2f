"""Pipeline with a data set whose function raises an exception."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.materialized_view
def orders() -> DataFrame:
    return spark.range(3)


@dp.materialized_view
def totals() -> DataFrame:
    raise KeyError("no such total")
