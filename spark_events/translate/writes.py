"""Successful batch writes of SQL executions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from spark_events.event import AttributeValue, Severity
from spark_events.event.text import lasting
from spark_events.records.plan_tables import NAMED_WRITE, PlannedNode, tables
from spark_events.records.types import DataWritten
from spark_events.translate.clients import with_client
from spark_events.translate.draft import Draft, counted, present
from spark_events.translate.executions import Executions
from spark_events.translate.queries import Queries

__all__ = ["Writes"]

#: Attributes by the names that Spark gives to the metrics of a write.
_METRICS = {
    "number of output rows": "spark.write.rows",
    "number of written files": "spark.write.files",
    "written output": "spark.write.bytes",
    "number of dynamic part": "spark.write.partitions",
    # Iceberg
    "number of added records": "spark.write.rows",
    "number of added data files": "spark.write.files",
    "total size of added files (bytes)": "spark.write.bytes",
    # Delta Lake
    "number of files added to target": "spark.write.files",
    "number of target bytes added": "spark.write.bytes",
    "number of files added.": "spark.write.files",
    "number of bytes added": "spark.write.bytes",
    # Rows of a merge, an update or a deletion: connectors of DataSource V2 since Spark 4.1, and Delta Lake
    "number of target rows inserted": "spark.write.rows_inserted",
    "number of inserted rows": "spark.write.rows_inserted",
    "number of target rows updated": "spark.write.rows_updated",
    "number of updated rows": "spark.write.rows_updated",
    "number of rows updated.": "spark.write.rows_updated",
    "number of target rows deleted": "spark.write.rows_deleted",
    "number of deleted rows": "spark.write.rows_deleted",
    "number of rows deleted.": "spark.write.rows_deleted",
    "number of target rows copied unmodified because they did not match any action": "spark.write.rows_copied",
    "number of copied rows": "spark.write.rows_copied",
    "number of target rows rewritten unmodified": "spark.write.rows_copied",
    "number of rows copied": "spark.write.rows_copied",
    "number of rows copied.": "spark.write.rows_copied",
}
_CHANGES = ("inserted", "updated", "deleted", "copied")
#: Metrics of the node ``MergeRows`` of a plan. Spark omits those that are 0.
_MERGED = "number of target rows "
#: Modes by the word among the arguments of a command, or in the name of a node.
_MODES = (
    (re.compile(r", Append\b|^AppendData"), "append"),
    (re.compile(r", Overwrite\b|^Overwrite|^Execute DeltaDynamicPartitionOverwrite"), "overwrite"),
    (re.compile(r", ErrorIfExists\b|^(?:Execute (?:Optimized)?Create\w+|(?:Atomic)?CreateTable)AsSelect"), "create"),
    (re.compile(r", Ignore\b"), "ignore"),
    (re.compile(r"^(?:Atomic)?(?:Create)?(?:Or)?ReplaceTableAsSelect"), "replace"),
    (re.compile(r"^(?:ReplaceData|WriteDelta|DeleteFromTable|Execute (?:MergeInto|Delete|Update)Command)"), "merge"),
)
#: Insertion into an existing table, which Spark 4 runs inside a command that otherwise creates the table.
_INSERTS = re.compile(r"^Execute Insert.*, Append\b", re.DOTALL)
_NAME = re.compile(r"Execute \w+|\w+")


class Writes:
    """The writes that succeeded.

    Args:
        executions: the attributes of the executions.
        queries: to find the query of a micro-batch.
        enabled: whether writes outside micro-batches are reported.
        streams: whether writes of micro-batches are reported.
    """

    def __init__(self, executions: Executions, queries: Queries, enabled: bool, streams: bool) -> None:
        self._executions = executions
        self._queries = queries
        self._enabled = enabled
        self._streams = streams

    def written(self, record: DataWritten) -> Iterator[Draft]:
        """Report a write, or each insertion of a statement with several.

        A write of a micro-batch, whose commit is reported, is reported only if the settings ask for it.
        """
        known = self._executions.attributes(record.execution_id)
        known = {**known, **self._batch(record, known.get("spark.streaming.query.id"))}
        if not (self._streams if "spark.streaming.query.id" in known else self._enabled):
            return
        key = ("sql", record.execution_id)
        for number, one in enumerate(record.insertions):
            # All insertions of a statement have the attributes of its execution.
            target, mode = _written_by(one.node), _mode([one.node])
            yield self._draft(record, (*key, number), known, target, mode, one.metrics)
        if not record.insertions:
            nodes = list(record.nodes.values())
            yield self._draft(record, key, known, self._target(record), _mode(nodes), record.metrics)

    def _draft(
        self,
        record: DataWritten,
        key: tuple[str | int, ...],
        known: Mapping[str, AttributeValue],
        target: str | None,
        mode: str | None,
        metrics: Mapping[str, int],
    ) -> Draft:
        numbers = {_METRICS[name]: value for name, value in metrics.items() if name in _METRICS}
        if any(name.startswith(_MERGED) for name in metrics):
            numbers = {f"spark.write.rows_{change}": 0 for change in _CHANGES} | numbers
        others = {name: value for name, value in metrics.items() if name not in _METRICS}
        millis = max(0, record.time - record.started)
        details: dict[str, AttributeValue | None] = {
            **known,
            "spark.sql.execution.id": str(record.execution_id),
            "spark.write.target": target,
            "spark.write.mode": mode,
            **numbers,
            "spark.write.duration_ms": millis,
            "spark.write.metrics": msgspec.json.encode(others).decode() if others else None,
        }
        name = with_client(f"SQL execution {record.execution_id}", known)
        body = f"{name} wrote {_amount(numbers)} to {target or 'an unknown target'}"
        body += f" in {lasting(millis)}{f' ({mode})' if mode else ''}"
        if "spark.batch.id" in known:
            body += f", for batch {known['spark.batch.id']}"
        return Draft("DataWrittenEvent", "spark.sql.execution", key, body, Severity.INFO, record.time, present(details))

    def _batch(self, record: DataWritten, query: object) -> dict[str, AttributeValue]:
        """Return the query and the number of the micro-batch; empty outside micro-batches.

        With Spark Connect, only the session of the execution belongs to the query.
        """
        if record.query_id is None:
            served = None if query is None else self._queries.of_query(str(query))
            return present({"spark.batch.id": None if served is None else served.batches.under_way})
        run = self._queries.of_query(record.query_id)
        ids = {"spark.streaming.query.id": record.query_id, "spark.streaming.query.run_id": record.run_id}
        scope = run.scope_variables if run is not None and run.run_id == record.run_id else ids
        return present({**scope, "spark.batch.id": record.batch_id})

    def _target(self, record: DataWritten) -> str | None:
        """Return the table or path that the outermost execution with a target names; otherwise that of a node.

        A nested execution may name the same table with its catalog.
        """
        found = (self._executions.attributes(number).get("spark.sql.writes") for number in record.nodes)
        named = [msgspec.json.decode(str(writes), type=list[str])[0] for writes in found if writes is not None]
        if named:
            return next((name for name in named if name.endswith(f".{named[0]}")), named[0])
        return next(filter(None, map(_written_by, record.nodes.values())), None)


def _mode(nodes: Sequence[str]) -> str | None:
    modes = (mode for node in nodes for pattern, mode in _MODES if pattern.search(node))
    return "append" if any(map(_INSERTS.search, nodes)) else next(modes, None)


def _written_by(node: str) -> str | None:
    name = NAMED_WRITE.match(node) or _NAME.match(node)
    if name is None:
        return None
    found = tables([PlannedNode(name[0], arguments=node[name.end() :].strip())])[1]
    return found[0] if found else None


def _amount(numbers: dict[str, int]) -> str:
    rows, files = numbers.get("spark.write.rows"), numbers.get("spark.write.files")
    parts = ["data" if rows is None else counted(rows, "row")]
    if files is not None:
        parts.append(f"in {counted(files, 'file')}")
    changes = [(word, numbers.get(f"spark.write.rows_{word}")) for word in _CHANGES]
    changed = ", ".join(f"{number:,} {word}" for word, number in changes if number)
    return " ".join(parts) + (f" ({changed})" if changed else "")
