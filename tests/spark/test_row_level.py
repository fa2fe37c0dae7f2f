"""Tests that the rows that a merge, an update or a deletion changes are counted, with Spark's test connector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from missing import missing
from spark.harness import PATIENT, PLAIN_EVENT_LOG, Lab, Run, file_reporter, jars_for, replay, spark_version, two_lines

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(spark_version() < (4, 1), reason="Spark counts these rows since Spark 4.1"),
]

_JARS = jars_for("row-level")
_CHANGES = ("inserted", "updated", "deleted", "copied")


@pytest.fixture(scope="module")
def run(lab: Lab) -> Run:
    if not _JARS.is_dir():
        missing(f"there is no test connector of Spark in {_JARS}; make row-level fetches it")
    defaults = {
        **two_lines(),
        **PATIENT,
        **file_reporter(Path("{folder}/events.jsonl")),
        **PLAIN_EVENT_LOG,
        "spark.jars": ",".join(map(str, _JARS.glob("*.jar"))),
        "spark.sql.catalog.mem": "org.apache.spark.sql.connector.catalog.InMemoryRowLevelOperationTableCatalog",
    }
    done = lab.run("row_level.py", defaults=defaults)
    assert done.process.returncode == 0, done.tail()
    return done


def _target(event: dict[str, Any]) -> str | None:
    target: str | None = event["attributes"].get("spark.write.target")
    return target


def _changes(event: dict[str, Any]) -> list[int | None]:
    return [event["attributes"].get(f"spark.write.rows_{change}") for change in _CHANGES]


@pytest.mark.parametrize("table", ["groups", "changes"])
def test_the_rows_that_a_statement_changed_are_attributes(run: Run, table: str) -> None:
    """A truncation is no event, because it makes no rows available."""
    assert run.truth()[table] == [[1, 8], [9, 9]]
    found = [event for event in run.named("DataWrittenEvent") if _target(event) == f"mem.ns.{table}"]
    # The plan of a table that writes only changes has no copied rows.
    copied = table == "groups"
    assert [_changes(event) for event in found] == [
        [None, None, None, None],
        [1, 1, 2, 1 if copied else 0],
        [None, 1, None, 2 if copied else None],
        # Spark does not tell its listeners how many rows were deleted with their group.
        [None, None, None if copied else 1, 2 if copied else None],
        [None, None, None, None],
    ]
    assert "(1 inserted, 1 updated, 2 deleted" in found[1]["body"]
    assert [event["attributes"]["spark.sql.writes"] for event in found] == [f'["mem.ns.{table}"]'] * 5


def test_a_replay_has_the_same_numbers(run: Run) -> None:
    log = next(path for path in run.folder.glob("local-*") if not path.name.startswith("."))
    again = run.folder / "again.jsonl"
    done = replay(run, log, settings={f"spark.{key}": value for key, value in file_reporter(again).items()})
    assert done.returncode == 0, done.stderr
    live, replayed = (
        [(e["event_id"], e["body"], e["attributes"]) for e in events if e["name"] == "DataWrittenEvent"]
        for events in (run.events(), run.events(again))
    )
    assert len(live) == 10
    assert live == replayed
