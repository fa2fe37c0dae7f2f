"""Tests of writes to Delta Lake and Iceberg with the real connectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from missing import missing
from spark.harness import IN_MEMORY, PATIENT, Lab, Run, file_reporter, jars_for, spark_version, two_lines

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(spark_version() >= (4, 1), reason="no release of Delta Lake and Iceberg is for this Spark"),
]

_JARS = jars_for("table-formats")
#: Spark 3.5 does not report the metrics of a commit of the newer interface, which is Iceberg's.
_HAS_METRICS = spark_version() >= (4,)


@pytest.fixture(scope="module")
def run(lab: Lab) -> Run:
    if not _JARS.is_dir():
        missing(f"there are no Delta Lake and Iceberg for this Spark in {_JARS}; make table-formats fetches them")
    extensions = (
        "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    )
    defaults = {
        **two_lines(),
        **PATIENT,
        **IN_MEMORY,
        **file_reporter(Path("{folder}/events.jsonl")),
        "spark.jars": ",".join(map(str, sorted(_JARS.glob("*.jar")))),
        "spark.sql.extensions": extensions,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": "{folder}/ice",
        "spark.sql.warehouse.dir": "{folder}/warehouse",
        "spark.events.data-written.streams.enabled": "true",
        # By default, Delta Lake computes the state of each table in 50 tasks.
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    done = lab.run("table_formats.py", defaults=defaults)
    assert done.process.returncode == 0, done.tail()
    return done


def _about(run: Run, table: str) -> list[dict[str, Any]]:
    found = [event["attributes"] for event in run.named("DataWrittenEvent")]
    return [one for one in found if table in one.get("spark.write.target", "")]


@pytest.mark.parametrize(
    ("table", "modes"),
    # Iceberg appends the rows of a merge that only inserts.
    [
        ("spark_catalog.default.deltas", ["append", "merge", "merge", "overwrite", "merge"]),
        ("ice.db.icebergs", ["append", "append", "merge", "overwrite", "merge"]),
    ],
)
def test_each_change_of_a_table_is_one_event(run: Run, table: str, modes: list[str]) -> None:
    """An append, a merge, a deletion and an overwriting of partitions are one event each, with the table as target."""
    found = [event["attributes"] for event in run.named("DataWrittenEvent")]
    about = [one["spark.write.mode"] for one in found if one.get("spark.write.target") == table]
    assert about == modes, run.named("DataWrittenEvent")


def test_each_insertion_of_a_statement_is_one_event(run: Run) -> None:
    found = [(one.get("spark.write.rows"), one["spark.write.mode"]) for one in _about(run, "ice.db.copies")]
    rows = (3, 6) if _HAS_METRICS else (None, None)
    assert found == [(rows[0], "append"), (rows[1], "append")]


@pytest.mark.parametrize("table", ["db.batched", "delta_batched"])
def test_a_table_that_a_batch_creates_is_one_event_with_its_name(table: str, run: Run) -> None:
    """The plan that creates a table lacks the name of the catalog."""
    batches = [(one["spark.batch.id"], one.get("spark.write.mode")) for one in _about(run, table)]
    assert batches == [(0, "create"), (1, "append")]


def test_the_connectors_metrics_are_reported(run: Run) -> None:
    """The metrics of a commit, which the connectors store in the plan, are attributes of the event."""
    _, merged, deleted, *_ = _about(run, "deltas")
    assert (merged["spark.write.files"], deleted["spark.write.files"]) == (1, 1)
    assert (merged["spark.write.rows_inserted"], merged["spark.write.rows_deleted"]) == (1, 0)
    assert deleted["spark.write.rows_deleted"] == 2
    appended, *_ = _about(run, "icebergs")
    if _HAS_METRICS:
        assert appended["spark.write.rows"] == 10
        assert (
            json.loads(appended["spark.write.metrics"])["total number of data files"] == appended["spark.write.files"]
        )
    else:
        assert not {"spark.write.rows", "spark.write.files", "spark.write.metrics"} & set(appended)
