"""Merges, updates and deletions of rows in a table of Spark's own test connector."""

from control import write_down
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("row-level").getOrCreate()
truth: dict[str, list[list[int]]] = {}
MERGE = """
merge into {table} t using (select * from values (1, 7), (4, 0), (9, 9) as v(pk, salary)) s on t.pk = s.pk
when matched and s.salary = 0 then delete
when matched then update set salary = s.salary
when not matched then insert (pk, salary, dep) values (s.pk, s.salary, 'a')
when not matched by source and t.pk = 2 then delete
"""
NOTHING = """
merge into {table} t using (select * from values (77, 7) as v(pk, salary)) s on t.pk = s.pk
when matched and s.salary = 0 then delete
when matched then update set salary = s.salary
"""
STATEMENTS = (
    MERGE,
    "update {table} set salary = salary + 1 where pk = 1",
    "delete from {table} where pk in (select 3)",
    NOTHING,
    "truncate table {table}",
)
spark.sql("create namespace mem.ns")
# A table of the first kind replaces groups of rows; one of the second kind writes only the changes.
for name, changes in (("groups", "false"), ("changes", "true")):
    table = f"mem.ns.{name}"
    properties = f"partitioned by (dep) tblproperties ('supports-deltas' = '{changes}')"
    spark.sql(f"create table {table} (pk int not null, salary int, dep string) {properties}")
    spark.sql(f"insert into {table} values (1, 100, 'a'), (2, 200, 'b'), (3, 300, 'a'), (4, 400, 'a')")
    for statement in STATEMENTS:
        spark.sql(statement.format(table=table))
        if statement == STATEMENTS[2]:
            truth[name] = [[row.pk, row.salary] for row in spark.table(table).orderBy("pk").collect()]
write_down(truth)
spark.stop()
