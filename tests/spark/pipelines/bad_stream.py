"""Pipeline with a streaming flow that fails each time that Spark starts it."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

dp.create_streaming_table("clicks")


@dp.append_flow(target="clicks", name="clicks_of_web")
def clicks_of_web() -> DataFrame:
    clicks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    return clicks.select(F.raise_error(F.lit("bad click")).alias("click"))
