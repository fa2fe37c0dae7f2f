"""Pipeline that defines a data set twice."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.materialized_view(name="orders")
def first() -> DataFrame:
    return spark.range(3)


@dp.materialized_view(name="orders")
def second() -> DataFrame:
    return spark.range(4)
