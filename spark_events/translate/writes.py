"""Successful batch writes of SQL executions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from spark_events.event import AttributeValue, Severity
from spark_events.records.plan_tables import tables
from spark_events.records.types import DataWritten
from spark_events.translate.draft import Draft, counted, lasting, present
from spark_events.translate.executions import Executions

__all__ = ["Writes"]

#: Attributes by the names that Spark gives to the metrics of a write.
_METRICS = {
    "number of output rows": "spark.write.rows",
    "number of written files": "spark.write.files",
    "written output": "spark.write.bytes",
    "number of dynamic part": "spark.write.partitions",
}
#: Modes by the word among the arguments of a command, or in the name of a node.
_MODES = (
    (re.compile(r", Append\b|^AppendData"), "append"),
    (re.compile(r", Overwrite\b|^Overwrite"), "overwrite"),
    (re.compile(r", ErrorIfExists\b|^(?:Execute (?:Optimized)?Create\w+|(?:Atomic)?CreateTable)AsSelect"), "create"),
    (re.compile(r", Ignore\b"), "ignore"),
    (re.compile(r"^(?:Atomic)?(?:Create)?(?:Or)?ReplaceTableAsSelect"), "replace"),
    (re.compile(r"^(?:ReplaceData|WriteDelta)"), "merge"),
)
_NAME = re.compile(r"Execute \w+|\w+")


class Writes:
    """The writes that succeeded.

    Args:
        executions: the attributes of the executions.
        enabled: whether writes are reported.
    """

    def __init__(self, executions: Executions, enabled: bool) -> None:
        self._executions = executions
        self._enabled = enabled

    def written(self, record: DataWritten) -> Iterator[Draft]:
        """Report a write, unless it is part of a micro-batch, whose commit is reported."""
        known = self._executions.attributes(record.execution_id)
        if not self._enabled or "spark.streaming.query.id" in known:
            return
        target = self._target(record)
        modes = (mode for node in record.nodes.values() for pattern, mode in _MODES if pattern.search(node))
        mode = next(modes, None)
        numbers = {_METRICS[name]: value for name, value in record.metrics.items() if name in _METRICS}
        others = {name: value for name, value in record.metrics.items() if name not in _METRICS}
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
        body = f"SQL execution {record.execution_id} wrote {_amount(numbers)} to {target or 'an unknown target'}"
        body += f" in {lasting(millis)}{f' ({mode})' if mode else ''}"
        key = ("sql", record.execution_id)
        yield Draft("DataWrittenEvent", "spark.sql.execution", key, body, Severity.INFO, record.time, present(details))

    def _target(self, record: DataWritten) -> str | None:
        """Return the table or path that the outermost execution with a target names; otherwise that of a node."""
        for number in record.nodes:
            if (writes := self._executions.attributes(number).get("spark.sql.writes")) is not None:
                named: list[str] = msgspec.json.decode(str(writes))
                return named[0]
        return next(filter(None, map(_written_by, record.nodes.values())), None)


def _written_by(node: str) -> str | None:
    name = _NAME.match(node)
    if name is None:
        return None
    found = tables([f"(1) {name[0]}", f"Arguments: {node[name.end() :].strip()}"])[1]
    return found[0] if found else None


def _amount(numbers: dict[str, int]) -> str:
    rows, files = numbers.get("spark.write.rows"), numbers.get("spark.write.files")
    parts = ["data" if rows is None else counted(rows, "row")]
    if files is not None:
        parts.append(f"in {counted(files, 'file')}")
    return " ".join(parts)
