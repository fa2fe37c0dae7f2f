"""Load the classes that most test jobs need: SQL, a Python worker, a failure, and a stream with a batch function."""

import contextlib
import sys
from pathlib import Path

from pyspark.sql import SparkSession

folder = Path(sys.argv[1])
spark = SparkSession.builder.master("local[2]").getOrCreate()
assert spark.range(100).selectExpr("id % 3 as k").groupBy("k").count().orderBy("k").count() == 3
with contextlib.suppress(Exception):
    spark.sparkContext.parallelize([1]).map(lambda one: one // 0).collect()
(folder / "in").mkdir()
(folder / "in" / "0.json").write_text('{"v": 0}\n')
query = (
    spark.readStream.schema("v int")
    .json(str(folder / "in"))
    .writeStream.foreachBatch(lambda df, _: df.write.parquet(str(folder / "out")))
    .option("checkpointLocation", str(folder / "checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
