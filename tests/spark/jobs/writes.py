"""Batch writes of all kinds, a query that writes in foreachBatch, and what is then on disk."""

import os

from control import FOLDER, write_down
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.builder.appName("writes").getOrCreate()


def path(name: str) -> str:
    return os.path.join(FOLDER, name)


def files(folder: str) -> list[int]:
    found = [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names if name.startswith("part-")]
    return [len(found), sum(map(os.path.getsize, found))]


def fails() -> bool:
    try:
        spark.range(3).selectExpr("assert_true(id < 0)").write.mode("overwrite").parquet(path("failed"))
    except Exception:
        return True
    return False


truth: dict[str, object] = {}
spark.range(10).write.parquet(path("plain"))
truth["plain"] = files(path("plain"))
spark.read.parquet(path("plain")).selectExpr("id", "id % 3 p").write.mode("append").partitionBy("p").json(path("parts"))
truth["parts"] = files(path("parts"))
spark.range(3).write.mode("ignore").parquet(path("plain"))
spark.range(3).write.mode("overwrite").format("noop").save()
spark.range(5).write.saveAsTable("orders")
spark.sql("insert into orders values (1)")
spark.sql(f"insert overwrite directory '{path('dir')}' using csv select * from orders")
spark.table("orders").groupBy("id").count().collect()
# Adaptive execution plans this write again after the shuffle.
spark.sparkContext.setLocalProperty("spark.jobGroup.id", "loads")
spark.sparkContext.setLocalProperty("spark.openlineage.context", "orders/v2")
spark.table("orders").groupBy("id").count().write.parquet(path("grouped"))
spark.table("orders").write.saveAsTable("copied")
spark.range(4).write.mode("overwrite").saveAsTable("copied")
for name in ("spark.jobGroup.id", "spark.openlineage.context"):
    spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]
truth["grouped"] = files(path("grouped"))
# A connector without metrics
for mode in ("errorifexists", "append", "ignore"):
    database = {"url": f"jdbc:derby:{path('derby')};create=true", "dbtable": "totals"}
    driver = "org.apache.derby.jdbc.EmbeddedDriver"
    spark.range(3).write.mode(mode).format("jdbc").options(**database, driver=driver).save()
spark.sql("create table low (id long) using parquet")
spark.sql("create table high (id long) using json")
low, high = "insert into low select id where id < 3", "insert overwrite table high select id where id >= 3"
spark.sql(f"from orders {low} {high}")
# Adaptive execution plans both insertions again.
spark.sql(f"from (select id, count(*) from orders group by id) {low} {high}")
spark.sql("cache table kept as select * from orders")
truth["failed"] = fails()


def inside(batch: DataFrame, number: int) -> None:
    batch.write.mode("append").parquet(path("inside"))
    batch.write.mode("append").saveAsTable("made")
    batch.write.mode("overwrite").saveAsTable("replaced")
    batch.selectExpr("count(*) n").write.mode("overwrite").json(path("counts"))


rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
writer = rows.writeStream.queryName("inside").foreachBatch(inside).option("checkpointLocation", path("cp"))
for _ in range(2):
    writer.trigger(availableNow=True).start().awaitTermination()
truth["inside"] = files(path("inside"))
truth["batches"] = len(os.listdir(path("cp/commits"))) // 2
# Spark does not tell its listeners what its own file sink has written.
sink = rows.writeStream.format("parquet").option("checkpointLocation", path("cp-sink"))
sink.trigger(availableNow=True).start(path("sink")).awaitTermination()
truth["sink"] = files(path("sink"))
write_down(truth)
spark.stop()
