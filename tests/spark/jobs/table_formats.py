"""Writes to a table of Delta Lake and to a table of Iceberg, and what the tables then say about themselves."""

import os

from control import FOLDER, write_down
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.builder.appName("table-formats").getOrCreate()
truth: dict[str, object] = {}
TABLES = {"spark_catalog.default.deltas": "delta", "ice.db.icebergs": "iceberg"}
for name, format in TABLES.items():
    spark.sql(f"create table {name} (id long, part long) using {format}")
    spark.range(10).selectExpr("id", "id % 3 part").writeTo(name).append()
    spark.sql(
        f"merge into {name} t using (select 100L id) s on t.id = s.id when not matched then insert (id) values (s.id)"
    )
    spark.sql(f"delete from {name} where id < 2")
    truth[format] = spark.table(name).count()
spark.sql("create table ice.db.copies (id long) using iceberg")
insertions = "insert into ice.db.copies select id where id < 5 insert into ice.db.copies select id where id >= 5"
spark.sql(f"from ice.db.icebergs {insertions}")


def inside(batch: DataFrame, number: int) -> None:
    batch.write.format("iceberg").mode("append").saveAsTable("ice.db.batched")
    batch.write.format("delta").mode("append").saveAsTable("delta_batched")


for _ in range(2):
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load().writeStream
    writer = rows.queryName("inside").foreachBatch(inside).option("checkpointLocation", os.path.join(FOLDER, "cp"))
    writer.trigger(availableNow=True).start().awaitTermination()
for name in TABLES:
    spark.range(3, 5).selectExpr("id", "0L part").writeTo(name).overwritePartitions()
    # Iceberg deletes all rows without writing a file.
    spark.sql(f"delete from {name}")
spark.sql("select * from ice.db.icebergs.snapshots").collect()
write_down(truth)
spark.stop()
