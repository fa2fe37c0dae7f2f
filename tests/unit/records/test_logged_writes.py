"""Tests of the writes of SQL executions in an event log."""

from __future__ import annotations

import pytest

from spark_events.records.event_log.logged_writes import WriteLines
from spark_events.records.event_log.redaction import Redaction
from spark_events.records.event_log.shapes import (
    Accumulable,
    AccumulatorUpdatesLine,
    AdaptiveUpdateLine,
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
        metrics = [PlanMetric("number of output rows", 7)] if name.startswith(FILES) else []
        node = PlanNode(node_name=name, simple_string=name, metrics=metrics)
        self.lines.started(SqlExecutionStartLine(number, root, description, plan, spark_plan_info=node))

    def started_several(self, number: int, *names: str, again: bool = False) -> None:
        """Start a statement with one insertion for each name; ``again``: only plan it again."""
        offset = 100 if again else 10
        nodes = [
            PlanNode(
                node_name=name,
                simple_string=f"{name} {index}",
                metrics=[PlanMetric("number of output rows", offset + index)] if name == FILES else [],
            )
            for index, name in enumerate(names)
        ]
        union = PlanNode(node_name="Union", children=[PlanNode(node_name="InputAdapter", children=[n]) for n in nodes])
        plan = PlanNode(node_name="AdaptiveSparkPlan", children=[union])
        if again:
            self.lines.planned(AdaptiveUpdateLine(number, spark_plan_info=plan))
        else:
            self.lines.started(SqlExecutionStartLine(number, None, "", "", spark_plan_info=plan))

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


@pytest.mark.parametrize("name", ["ReplaceData t", FILES])
def test_rows_that_tasks_count_are_those_of_the_merge_below_the_write(name: str) -> None:
    """The merge may be planned again. Other metrics of tasks, and those of a write to files, are not the write's."""
    log = Log()
    for number, again in ((10, False), (20, True)):
        names = ("number of target rows deleted", "spill size")
        metrics = [PlanMetric(metric, number + index) for index, metric in enumerate(names)]
        merge = PlanNode(node_name="MergeRows", metrics=metrics)
        plan = PlanNode(node_name=name, simple_string=name, children=[PlanNode(node_name="Sort", children=[merge])])
        if again:
            log.lines.planned(AdaptiveUpdateLine(1, spark_plan_info=plan))
        else:
            log.lines.started(SqlExecutionStartLine(1, None, "", "", spark_plan_info=plan))
    log.lines.stage_completed([Accumulable(10, "9"), Accumulable(20, "2"), Accumulable(21, "5"), Accumulable(22, [])])
    written = log.ended(1)
    assert (None if written is None else written.metrics) == (
        None if name == FILES else {"number of target rows deleted": 2}
    )


@pytest.mark.parametrize("again", [False, True])
def test_each_insertion_of_a_statement_has_its_own_numbers(again: bool) -> None:
    """A child of the union that does not write, or has not written, is no insertion."""
    log = Log()
    log.started_several(1, FILES, "Range", FILES, FILES, "AppendData")
    if again:
        log.started_several(1, FILES, "Range", FILES, FILES, "AppendData", again=True)
    offset = 100 if again else 10
    log.lines.updated(AccumulatorUpdatesLine(1, [(offset, 5), (offset + 2, 7)]))
    written = log.ended(1)
    assert written is not None
    assert [(one.node, sum(one.metrics.values())) for one in written.insertions] == [
        (f"{FILES} 0", 5),
        (f"{FILES} 2", 7),
        ("AppendData 4", 0),
    ]
    assert written.metrics == {}


def test_a_union_of_reads_is_no_write() -> None:
    log = Log()
    log.started_several(1, "Range", "Range")
    assert log.ended(1) is None


CREATE = "Execute CreateDataSourceTableAsSelectCommand"
CREATED = (
    f"== Physical Plan ==\n{CREATE} (1)\n\n(2) CreateDataSourceTableAsSelectCommand\nArguments: `a`.`b`, Append, [id]\n"
)


def test_a_write_in_a_batch_has_the_table_that_the_execution_around_it_creates() -> None:
    """Threads of a batch write at a time: the path of a write tells which command creates its table."""
    log = Log()
    log.started(0, "Range", description=BATCH)
    log.started(1, CREATE, 0, CREATED)
    log.started(2, CREATE, 0, CREATED.replace("`b`", "`c`"))
    found = {}
    for execution, path in ((3, "/tmp/c"), (4, "/tmp/b"), (5, "/tmp/d")):
        log.started(execution, f"{FILES} file:{path}, false, Parquet", 0)
        log.lines.updated(AccumulatorUpdatesLine(execution, [(7, 5)]))
        written = log.ended(execution)
        assert written is not None
        found[path] = [node for number, node in written.nodes.items() if number != execution]
    assert found == {"/tmp/c": [f"{CREATE} `a`.`c`"], "/tmp/b": [f"{CREATE} `a`.`b`"], "/tmp/d": []}
    assert [log.ended(execution) for execution in (1, 2, 0)] == [None] * 3


@pytest.mark.parametrize("other", [False, True])
def test_a_table_of_the_newer_interface_is_named_only_if_nothing_else_writes(other: bool) -> None:
    """The plan of such a command has no path, so only the order of the executions shows what it runs."""
    create = "AtomicCreateTableAsSelect db.c"
    log = Log()
    log.started(0, "Range", description=BATCH)
    log.started(1, create, 0)
    log.started(2, FILES, 0)
    if other:
        log.started(3, FILES, 0)
    log.lines.updated(AccumulatorUpdatesLine(2, [(7, 5)]))
    written = log.ended(2)
    assert written is not None
    assert [node for number, node in written.nodes.items() if number != 2] == ([] if other else [create])


def test_a_connector_that_creates_a_table_in_a_batch_has_one_record() -> None:
    log = Log()
    log.started(0, "Range", description=BATCH)
    log.started(1, "AtomicCreateTableAsSelect", 0)
    log.started(2, "AppendData", 0)
    records = [log.ended(2), log.ended(1)]
    assert [None if one is None else list(one.nodes) for one in records] == [[1, 2], None]
