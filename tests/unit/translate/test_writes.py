"""Tests of the events of successful writes."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import START, application_start, decoded, query_started

from spark_events import Event
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

TABLE = "`spark_catalog`.`default`.`orders`"
CREATES = "Execute CreateDataSourceTableAsSelectCommand"
INSERTS = "Execute InsertIntoHadoopFsRelationCommand /a, Parquet"
SESSION, OPERATION = "839c8b37-e5f1-4496-83ce-6ca71c9ee9bb", "017d1ebc-5fb8-4545-b00e-2d6ac82a7004"
IN_QUERY = f"spark-session-{OPERATION}"


def written(nodes: dict[str, str], *records: dict[str, Any], **fields: Any) -> list[Event]:
    write = {"kind": "data_written", "execution_id": 7, "time": START, "started": START, "nodes": nodes, "metrics": {}}
    write |= fields
    translator = Translator(TranslateConfig(streams_written=True))
    found = [e for one in (application_start(), *records, write) for e in translator.translate(decoded(one))]
    return [event for event in found if event.name == "DataWrittenEvent"]


@pytest.mark.parametrize(
    ("nodes", "mode"),
    [
        ({"7": CREATES, "8": f"{INSERTS}, Overwrite, [id]"}, "create"),
        ({"7": CREATES, "8": f"{INSERTS}, Append, {TABLE}"}, "append"),
        ({"7": f"{CREATES} {TABLE}, Overwrite", "8": f"{INSERTS}, Overwrite, [id]"}, "overwrite"),
        ({"7": "DeleteFromTable ice.db.t, [p = 2]"}, "merge"),
        ({"7": "Execute DeltaDynamicPartitionOverwriteCommand RelationV2[id#4L] a.b.c"}, "overwrite"),
        ({"7": "AtomicCreateTableAsSelect a.Catalog@1, b.c, x", "8": "AppendData x"}, "create"),
    ],
)
def test_a_command_that_creates_a_table_may_append(nodes: dict[str, str], mode: str) -> None:
    """``saveAsTable`` in the mode ``append`` is the same command, whether the table exists or not."""
    (event,) = written(nodes)
    assert event.attributes["spark.write.mode"] == mode


@pytest.mark.parametrize(
    ("node", "target"),
    [
        ("ReplaceData mem.ns.t x.In$$anon$1@443c71ba", "mem.ns.t"),
        ("AppendData x.Y$$Lambda@1, IcebergWrite(table=local.db.t, format=PARQUET)", "local.db.t"),
        ("AppendDataExecV1 RelationV2[id#4L] a.b.c", "a.b.c"),
    ],
)
def test_a_write_of_a_connector_names_its_table(node: str, target: str) -> None:
    """Since Spark 4.3, the name of the node ends with the table."""
    (event,) = written({"7": node})
    assert event.attributes["spark.write.target"] == target


@pytest.mark.parametrize(
    ("metrics", "changes", "amount"),
    [
        ({"number of target rows updated": 1_204}, (0, 1_204, 0, 0), "data (1,204 updated)"),
        # Delta Lake reports zeros itself.
        ({"number of rows deleted.": 2, "number of rows copied.": 0}, (None, None, 2, 0), "data (2 deleted)"),
        ({"number of output rows": 3}, (None,) * 4, "3 rows"),
    ],
)
def test_the_rows_that_a_merge_changed_are_attributes(
    metrics: dict[str, int], changes: tuple[int | None, ...], amount: str
) -> None:
    """Spark omits the counts of a merge that are 0."""
    (event,) = written({"7": "ReplaceData mem.ns.t x"}, metrics=metrics)
    names = ("inserted", "updated", "deleted", "copied")
    assert tuple(event.attributes.get(f"spark.write.rows_{name}") for name in names) == changes
    assert f" wrote {amount} to mem.ns.t" in event.body


def test_a_write_in_the_session_of_a_query_belongs_to_its_batch() -> None:
    """Spark Connect runs ``foreachBatch`` in a session of the query, and its executions do not name the batch."""
    batch = {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "3", "spark.job.tags": IN_QUERY}
    tags = f"SparkConnect_OperationTag_User_ada_Session_{SESSION}_Operation_{OPERATION},{IN_QUERY}"
    start = {"kind": "sql_execution_start", "execution_id": 7, "time": START, "tags": tags}
    records = [query_started("r1", "q1", name="clicks"), {"kind": "batch_started", "properties": batch}, start]
    (event,) = written({"7": f"{INSERTS}, Append, {TABLE}"}, *records)
    assert (event.attributes["spark.streaming.query.name"], event.attributes["spark.batch.id"]) == ("clicks", 3)
    assert event.body.endswith("(append), for batch 3")


def test_each_insertion_of_a_statement_is_one_event() -> None:
    rows = {"number of output rows": 3}
    insertions = [
        {"node": f"{INSERTS}, Append, {TABLE}", "metrics": rows},
        {"node": f"{INSERTS}, Overwrite, `a`.`b`.`c`", "metrics": {}},
    ]
    events = written({"7": INSERTS}, insertions=insertions)
    about = [event.attributes for event in events]
    assert [(one["spark.write.target"], one["spark.write.mode"], one.get("spark.write.rows")) for one in about] == [
        ("spark_catalog.default.orders", "append", 3),
        ("a.b.c", "overwrite", None),
    ]
    assert {one["spark.sql.execution.id"] for one in about} == {"7"}
    assert len({event.event_id for event in events}) == 2


@pytest.mark.parametrize("execution", ["7", "8"], ids=["outermost", "nested"])
def test_a_write_has_what_only_its_jobs_tell(execution: str) -> None:
    properties = {"spark.sql.execution.id": execution, "spark.jobGroup.id": "loads", "spark.openlineage.context": "v2"}
    start = {"kind": "sql_execution_start", "time": START, "root_id": 7}
    starts = [start | {"execution_id": 7}, start | {"execution_id": 8}]
    (event,) = written(
        {"7": CREATES}, *starts, {"kind": "job_start", "job_id": 1, "time": START, "properties": properties}
    )
    assert (event.attributes["spark.job.group"], event.attributes["openlineage.context"]) == ("loads", "v2")
