"""Tests of the extraction of tables and paths from the nodes of plans."""

from __future__ import annotations

import pytest

from spark_events.records.plan_tables import PlannedNode
from spark_events.records.types import SqlExecutionStart

FILES = "InMemoryFileIndex(2 paths)[file:/data/a, file:/data/b]"
INSERT = "Execute InsertIntoHadoopFsRelationCommand"


def scan(name: str, location: str = "") -> PlannedNode:
    return PlannedNode(name, location)


def write(name: str, arguments: str) -> PlannedNode:
    return PlannedNode(name, arguments=arguments)


@pytest.mark.parametrize(
    ("plan", "reads", "writes"),
    [
        ([scan("Scan parquet spark_catalog.default.t", FILES)], ["spark_catalog.default.t"], []),
        ([scan("Scan parquet ", FILES)], ["file:/data/a", "file:/data/b"], []),
        ([scan("Scan csv ", "InMemoryFileIndex [hdfs://n/a]")], ["hdfs://n/a"], []),
        ([scan("Scan csv ", "InMemoryFileIndex [file:/data/a, ... 3 entries]")], ["file:/data/a"], []),
        ([scan("Scan csv ", "InMemoryFileIndex(9 paths)[file:/data/a, file:/da")], ["file:/data/a", "file:/da"], []),
        ([scan("Scan In-memory table t"), scan("Scan In-memory table default.u [id#1]")], ["t", "default.u"], []),
        ([scan("BatchScan local.db.t[filters=]"), scan("BatchScan local.db.t")], ["local.db.t"], []),
        ([scan("Scan JDBCRelation(public.t) [numPartitions=1]")], ["JDBCRelation(public.t)"], []),
        ([scan("Scan ExistingRDD"), scan("Scan OneRowRelation")], [], []),
        (
            [write(INSERT, "file:/data/out, false, Parquet, [path=file:/data/x], Append, [id]")],
            [],
            ["file:/data/x"],
        ),
        ([write(INSERT, "file:/data/out, false, Parquet, Append, [id]")], [], ["file:/data/out"]),
        ([write(INSERT, "file:/a,b c, false, CSV, [path=/a,b c, header=true], Append, [id]")], [], ["/a,b c"]),
        ([write(INSERT, "file:/a,b c, false, Parquet, Append, [id]")], [], ["file:/a,b c"]),
        ([scan("Scan csv ", "InMemoryFileIndex [file:/a,b c, file:/d]")], ["file:/a,b c", "file:/d"], []),
        ([write("AtomicCreateTableAsSelect", "a.b.DeltaCatalog@7d68, shop.t, Range (0, 4)")], [], ["shop.t"]),
        (
            [write(INSERT, "file:/w/t, false, Append, `spark_catalog`.`default`.`t`")],
            [],
            ["spark_catalog.default.t"],
        ),
        ([write("AppendData", "x.Y$$Lambda@1, IcebergWrite(table=local.db.t, format=PARQUET)")], [], ["local.db.t"]),
        ([write("AppendData mem.ns.t", "org.apache.spark.In$$anon$1@443c71ba")], [], ["mem.ns.t"]),
        ([write("OverwriteByExpression mem.`my ns`.t", "x.Y@1")], [], ["mem.my ns.t"]),
        ([write("Execute SaveIntoDataSourceCommand", "x.J@1, [dbtable=public.t, url=u]")], [], ["public.t"]),
        (
            [write("AppendDataExecV1", "DeltaTableV2(o.a.s.SparkSession@1f,file:/w/t,Some(CatalogTable(")],
            [],
            ["file:/w/t"],
        ),
        (
            [
                write(
                    "AppendDataExecV1",
                    "DeltaTableV2(o.a.s.SparkSession@1f,file:/w/t,Some(CatalogTable(\nCatalog: spark_catalog\n"
                    "Database: default\nTable: t\nLocation: file:/w/t)),Some(default.t),None,Map()), Project",
                )
            ],
            [],
            ["spark_catalog.default.t"],
        ),
        (
            [
                write(
                    "Execute DeltaDynamicPartitionOverwriteCommand",
                    "RelationV2[id#4L, p#4L] spark_catalog.default.t spark_catalog.default.t, DeltaTableV2(a,file:/w/t",
                )
            ],
            [],
            ["spark_catalog.default.t"],
        ),
        ([write("DeleteFromTable", "ice.db.t, [p = 2], x.Y$$Lambda@1")], [], ["ice.db.t"]),
        ([write("Execute DropTableCommand", "true, false")], [], []),
    ],
)
def test_tables_of_a_plan(plan: list[PlannedNode], reads: list[str], writes: list[str]) -> None:
    """Tables precede paths, and each occurs once. Plan nodes without a table yield nothing."""
    record = SqlExecutionStart(execution_id=1, time=2, plan=plan)
    assert (record.reads, record.writes) == (reads, writes)
