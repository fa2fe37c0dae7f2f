"""Tests of the extraction of tables and paths from plan descriptions."""

from __future__ import annotations

import pytest

from spark_events.records.types import SqlExecutionStart

FILES = "Location: InMemoryFileIndex [file:/data/a, file:/data/b]"
INSERT = "(2) Execute InsertIntoHadoopFsRelationCommand"


@pytest.mark.parametrize(
    ("plan", "reads", "writes"),
    [
        (["(1) Scan parquet spark_catalog.default.t", FILES], ["spark_catalog.default.t"], []),
        (["(1) Scan parquet ", FILES], ["file:/data/a", "file:/data/b"], []),
        (["(1) Scan csv", "Location: InMemoryFileIndex(1 paths)[hdfs://n/a]"], ["hdfs://n/a"], []),
        (
            ["(1) Scan csv", "Location: InMemoryFileIndex [file:/data/a, ... 3 entries]"],
            ["file:/data/a"],
            [],
        ),
        (["(1) Scan In-memory table t", "(2) Scan In-memory table default.u [id#1]"], ["t", "default.u"], []),
        (["(1) BatchScan local.db.t[filters=]", "(2) BatchScan local.db.t"], ["local.db.t"], []),
        (["(1) Scan JDBCRelation(public.t) [numPartitions=1]"], ["JDBCRelation(public.t)"], []),
        (["(1) Scan ExistingRDD", "(2) Scan OneRowRelation", "(3) Range", FILES], [], []),
        (
            [INSERT, "Arguments: file:/data/out, false, Parquet, [path=file:/data/x], Append, [id]"],
            [],
            ["file:/data/x"],
        ),
        ([INSERT, "Arguments: file:/data/out, false, Parquet, Append, [id]"], [], ["file:/data/out"]),
        (
            [INSERT, "Arguments: file:/w/t, false, Append, `spark_catalog`.`default`.`t`"],
            [],
            ["spark_catalog.default.t"],
        ),
        (
            ["(2) AppendData", "Arguments: x.Y$$Lambda@1, IcebergWrite(table=local.db.t, format=PARQUET)"],
            [],
            ["local.db.t"],
        ),
        (["(2) Execute SaveIntoDataSourceCommand", "Arguments: x.J@1, [dbtable=public.t, url=u]"], [], ["public.t"]),
        (["(2) Execute DropTableCommand", "Arguments: true, false"], [], []),
        ([FILES, "Arguments: /a"], [], []),
    ],
)
def test_tables_of_a_plan(plan: list[str], reads: list[str], writes: list[str]) -> None:
    """Tables precede paths, and each occurs once. Plan nodes without a table yield nothing."""
    record = SqlExecutionStart(execution_id=1, time=2, plan=plan)
    assert (record.reads, record.writes) == (reads, writes)
