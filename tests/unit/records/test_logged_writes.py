"""Tests of the writes of SQL executions in an event log."""

from __future__ import annotations

import pytest

from spark_events.records.event_log.logged_writes import WriteLines
from spark_events.records.event_log.redaction import Redaction
from spark_events.records.event_log.shapes import (
    AccumulatorUpdatesLine,
    PlanMetric,
    PlanNode,
    SqlExecutionEndLine,
    SqlExecutionStartLine,
)
from spark_events.records.types import DataWritten

SAVE = "Execute SaveIntoDataSourceCommand"
FILES = "Execute InsertIntoHadoopFsRelationCommand"
RELATION = "org.apache.spark.sql.execution.datasources.jdbc.JdbcRelationProvider@1, [dbtable=t1]"
BATCH = "id = 11111111-1111-1111-1111-111111111111\nrunId = 22222222-2222-2222-2222-222222222222\nbatch = 3"


def printed(arguments: str) -> str:
    """Return a plan as Spark prints it; only this text contains the arguments of the command."""
    return f"== Physical Plan ==\n{SAVE} (1)\n\n(2) SaveIntoDataSourceCommand\nArguments: {arguments}\n\n(3) Range\n"


class Log:
    def __init__(self) -> None:
        self.lines = WriteLines(Redaction({}))

    def started(self, number: int, name: str, root: int | None = None, plan: str = "", description: str = "") -> None:
        metrics = [PlanMetric("number of output rows", 7)] if name == FILES else []
        node = PlanNode(node_name=name, simple_string=name, metrics=metrics)
        self.lines.started(SqlExecutionStartLine(number, root, description, plan, spark_plan_info=node))

    def ended(self, number: int, error: str = "") -> DataWritten | None:
        return self.lines.ended(SqlExecutionEndLine(number, 9, error))


@pytest.mark.parametrize(
    ("mode", "error", "is_written"),
    [
        ("ErrorIfExists", "", True),
        ("Append", "", True),
        ("Append", "connection refused", False),
        ("Ignore", "", False),
    ],
)
def test_a_connector_without_metrics_has_written_if_it_succeeds(mode: str, error: str, is_written: bool) -> None:
    """With the mode ``ignore``, nobody knows whether the table existed."""
    log = Log()
    log.started(1, SAVE, plan=printed(f"{RELATION}, {mode}"))
    written = log.ended(1, error)
    assert (written is not None) == is_written
    if written is not None:
        assert written.nodes == {1: f"{SAVE} {RELATION}, {mode}"}


def test_a_command_whose_arguments_are_unknown_is_no_evidence() -> None:
    log = Log()
    log.started(1, SAVE)
    assert log.ended(1) is None


@pytest.mark.parametrize(("description", "writes"), [("", [(1, 5)]), (BATCH, [(2, 5)])])
def test_the_numbers_are_those_of_the_execution_that_counts(description: str, writes: list[tuple[int, int]]) -> None:
    """A connector that writes in a nested execution causes one record, also in a micro-batch."""
    log = Log()
    if description:
        log.started(0, "Range", description=description)
    root = 0 if description else 1
    log.started(1, SAVE, root, printed(f"{RELATION}, Append"))
    log.started(2, FILES, root)
    log.lines.updated(AccumulatorUpdatesLine(2, [(7, 5)]))
    found = [record for record in (log.ended(2), log.ended(1)) if record is not None]
    assert [(one.execution_id, one.metrics["number of output rows"]) for one in found] == writes
