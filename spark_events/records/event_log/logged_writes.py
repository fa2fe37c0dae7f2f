"""Writes of SQL executions in the event log, converted as in the shim (``WriteRecords.java``)."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict
from typing import TypeVar

from spark_events.records.event_log.logged_failures import beginning
from spark_events.records.event_log.logged_plans import arguments_of
from spark_events.records.event_log.redaction import Redaction
from spark_events.records.event_log.shapes import (
    AccumulatorUpdatesLine,
    AdaptiveUpdateLine,
    PlanMetric,
    PlanNode,
    SqlExecutionEndLine,
    SqlExecutionStartLine,
)
from spark_events.records.types import DataWritten

ADAPTIVE_UPDATE = b"org.apache.spark.sql.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate"
ACCUMULATOR_UPDATES = b"org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates"
_MOST_RUNNING = 4_096
#: Maximum number of nodes above the write, such as that of adaptive execution.
_DEEPEST = 8
#: Maximum number of nested executions of one execution in a record.
_MOST_PARTS = 16
#: The description that Spark sets for the executions of a micro-batch: ids of the query and the run, and the batch.
_MICRO_BATCH = re.compile(
    r"id = ([0-9a-f-]{36})(?:<br/>)?\s+runId = ([0-9a-f-]{36})(?:<br/>)?\s+batch = (\d+)?", re.ASCII
)
_COMMAND = "Execute "
#: Commands of connectors of the older interface, which report no metrics of their own.
_CONNECTOR = re.compile(r"Execute (?:Save|Insert)IntoDataSourceCommand", re.ASCII)
_IGNORE = ", Ignore"
_V2 = re.compile(
    r"AppendData|Overwrite(?:ByExpression|PartitionsDynamic)|ReplaceData|WriteDelta"
    r"|(?:Atomic)?(?:Create|Replace)\w*AsSelect",
    re.ASCII,
)
_NO_WRITE = "NoopWrite"
_Value = TypeVar("_Value")


@dataclasses.dataclass(slots=True)
class _Batch:
    described: re.Match[str]
    #: The newest execution with a record.
    last_write: int = -1


@dataclasses.dataclass(slots=True)
class _Write:
    root: int
    started: int
    node: PlanNode | None
    batch: _Batch | None
    #: The arguments of a connector's command; empty for other nodes.
    arguments: str = ""
    metrics: list[PlanMetric] = dataclasses.field(default_factory=list)
    values: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def is_connector(self) -> bool:
        return self.node is not None and _CONNECTOR.match(self.node.node_name) is not None

    @property
    def is_done(self) -> bool:
        is_v2 = self.node is not None and _V2.match(self.node.node_name) is not None
        is_known = bool(self.arguments) and not self.arguments.endswith(_IGNORE)
        return is_v2 or is_known or bool(self.values)

    @property
    def text(self) -> str:
        return "" if self.node is None else f"{self.node.simple_string} {self.arguments}".strip()


class WriteLines:
    """Converter for the lines of SQL executions that write.

    Attributes:
        redaction: redaction of plans.
    """

    def __init__(self, redaction: Redaction) -> None:
        self.redaction = redaction
        self._running: OrderedDict[int, _Write] = OrderedDict()
        # Nested executions that have succeeded, by the outermost execution and by id, the order of their starts.
        self._nested: OrderedDict[int, dict[int, _Write]] = OrderedDict()
        self._batches: OrderedDict[int, _Batch] = OrderedDict()

    def started(self, line: SqlExecutionStartLine) -> None:
        """Note the start of an execution."""
        identity = line.execution_id
        root = identity if line.root_execution_id is None else line.root_execution_id
        if identity == root and (described := _MICRO_BATCH.search(line.description)):
            _put(self._batches, identity, _Batch(described))
        node = _write_of(line.spark_plan_info)
        write = _Write(root, line.time, node, self._batches.get(root), metrics=node.metrics if node else [])
        if node is not None and write.is_connector:
            write.arguments = arguments_of(node.node_name, line.physical_plan_description)
        _put(self._running, identity, write)

    def planned(self, line: AdaptiveUpdateLine) -> None:
        """Note that adaptive execution planned the write again, so that its metrics have other accumulators."""
        write = self._running.get(line.execution_id)
        node = _write_of(line.spark_plan_info)
        if write is not None and write.node is not None and node is not None:
            write.metrics = node.metrics

    def updated(self, line: AccumulatorUpdatesLine) -> None:
        """Note values of an execution's metrics."""
        write = self._running.get(line.execution_id)
        if write is not None and write.node is not None:
            names = {metric.accumulator_id: metric.name for metric in write.metrics}
            write.values |= {names[number]: value for number, value in line.accum_updates if number in names}

    def ended(self, line: SqlExecutionEndLine) -> DataWritten | None:
        """Return the record of a write that the end of an execution completes; otherwise None."""
        identity = line.execution_id
        self._batches.pop(identity, None)
        write = self._running.pop(identity, None)
        if write is None:
            return None
        if write.batch is not None:
            is_done = not line.error_message and write.node is not None and write.is_done
            # A connector such as Delta Lake writes in a nested execution, which has its own record.
            is_done = is_done and not (write.is_connector and write.batch.last_write > identity)
            if is_done:
                write.batch.last_write = max(write.batch.last_write, identity)
            return self._record(line, write, [(identity, write)], write.values) if is_done else None
        parts = self._nested.get(write.root, {})
        if not line.error_message and write.node is not None and len(parts) < _MOST_PARTS:
            parts[identity] = write
            _put(self._nested, write.root, parts)
        if identity != write.root:
            return None
        self._nested.pop(identity, None)
        ordered = sorted(parts.items())
        finished = [part for _, part in ordered if part.is_done]
        # The first execution with metrics; otherwise the first that has written.
        done = next((part for part in finished if part.values), finished[0] if finished else None)
        if line.error_message or done is None:
            return None
        return self._record(line, write, ordered, done.values)

    def _record(
        self, line: SqlExecutionEndLine, write: _Write, parts: list[tuple[int, _Write]], metrics: dict[str, int]
    ) -> DataWritten:
        nodes = {number: part.text for number, part in parts}
        query_id, run_id, batch = (None, None, None) if write.batch is None else write.batch.described.groups()
        return DataWritten(
            execution_id=line.execution_id,
            started=write.started,
            time=line.time,
            nodes={number: self.redaction.text("plan", beginning(node)) for number, node in nodes.items()},
            metrics=metrics,
            query_id=query_id,
            run_id=run_id,
            batch_id=None if batch is None else int(batch),
        )


def _write_of(plan: PlanNode | None) -> PlanNode | None:
    """Return the node that writes; None if the plan does not write."""
    node = plan
    for _ in range(_DEEPEST):
        if node is None:
            return None
        if node.node_name.startswith(_COMMAND) or _V2.match(node.node_name):
            return None if _NO_WRITE in node.simple_string else node
        node = node.children[0] if len(node.children) == 1 else None
    return None


def _put(known: OrderedDict[int, _Value], key: int, value: _Value) -> None:
    known[key] = value
    if len(known) > _MOST_RUNNING:
        known.popitem(last=False)
