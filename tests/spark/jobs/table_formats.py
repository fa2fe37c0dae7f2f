"""Writes to a table of Delta Lake and to a table of Iceberg, and what the tables then say about themselves."""

from control import write_down
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("table-formats").getOrCreate()
truth: dict[str, object] = {}
for name, format in (("spark_catalog.default.deltas", "delta"), ("ice.db.icebergs", "iceberg")):
    spark.sql(f"create table {name} (id long, part long) using {format}")
    spark.range(10).selectExpr("id", "id % 3 part").writeTo(name).append()
    spark.sql(
        f"merge into {name} t using (select 100L id) s on t.id = s.id when not matched then insert (id) values (s.id)"
    )
    spark.sql(f"delete from {name} where id < 2")
    truth[format] = spark.table(name).count()
spark.sql("select * from ice.db.icebergs.snapshots").collect()
write_down(truth)
spark.stop()
