"""Pipeline with a materialized view that fails, and a streaming flow that commits meanwhile."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.materialized_view
def orders() -> DataFrame:
    return spark.range(10).select(F.raise_error(F.lit("no such order")).alias("order"))


@dp.table
def clicks() -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
