"""Writes of SQL executions in the event log, converted as in the shim (``WriteRecords.java``)."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict
from typing import TypeVar

from spark_events.records.event_log.logged_failures import beginning
from spark_events.records.event_log.redaction import Redaction
from spark_events.records.event_log.shapes import (
    Accumulable,
    AccumulatorUpdatesLine,
    AdaptiveUpdateLine,
    SqlExecutionEndLine,
    SqlExecutionStartLine,
)
from spark_events.records.event_log.write_commands import WriteCommand, planned, write_commands
from spark_events.records.types import DataWritten, Insertion

ADAPTIVE_UPDATE = b"org.apache.spark.sql.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate"
ACCUMULATOR_UPDATES = b"org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates"
_MOST_RUNNING = 4_096
#: Maximum number of nested executions of one execution in a record.
_MOST_PARTS = 16
#: The description that Spark sets for the executions of a micro-batch: ids of the query and the run, and the batch.
_MICRO_BATCH = re.compile(
    r"id = ([0-9a-f-]{36})(?:<br/>)?\s+runId = ([0-9a-f-]{36})(?:<br/>)?\s+batch = (\d+)?", re.ASCII
)
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
    commands: list[WriteCommand]
    batch: _Batch | None

    @property
    def is_done(self) -> bool:
        return any(command.is_done for command in self.commands)

    @property
    def has_metrics(self) -> bool:
        return any(command.values for command in self.commands)


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
        commands = write_commands(line.spark_plan_info, line.physical_plan_description)
        _put(self._running, identity, _Write(root, line.time, commands, self._batches.get(root)))

    def planned(self, line: AdaptiveUpdateLine) -> None:
        """Note that adaptive execution planned the write again, so that its metrics have other accumulators."""
        write = self._running.get(line.execution_id)
        if write is not None and write.commands:
            planned(write.commands, line.spark_plan_info)

    def updated(self, line: AccumulatorUpdatesLine) -> None:
        """Note values of an execution's metrics."""
        write = self._running.get(line.execution_id)
        for command in () if write is None else write.commands:
            command.updated(line.accum_updates)

    def stage_completed(self, accumulables: list[Accumulable]) -> None:
        """Note the rows that the tasks of a stage have counted for running writes."""
        for write in self._running.values():
            for command in write.commands:
                if command.counts:
                    command.counted(accumulables)

    def ended(self, line: SqlExecutionEndLine) -> DataWritten | None:
        """Return the record of a write that the end of an execution completes; otherwise None."""
        identity = line.execution_id
        self._batches.pop(identity, None)
        write = self._running.pop(identity, None)
        if write is None:
            return None
        is_write = not line.error_message and bool(write.commands)
        if write.batch is not None:
            # The nested execution that writes has its own record.
            is_repeated = is_write and write.commands[0].writes_inside and write.batch.last_write > identity
            if not is_write or is_repeated or not write.is_done:
                return None
            write.batch.last_write = max(write.batch.last_write, identity)
            return self._record(line, write, self._nodes_in_batch(identity, write), write)
        parts = self._nested.get(write.root, {})
        if is_write and len(parts) < _MOST_PARTS:
            parts[identity] = write
            _put(self._nested, write.root, parts)
        if identity != write.root:
            return None
        self._nested.pop(identity, None)
        ordered = dict(sorted(parts.items()))
        finished = [part for part in ordered.values() if part.is_done]
        # The first execution with metrics; otherwise the first that has written.
        done = next((part for part in finished if part.has_metrics), finished[0] if finished else None)
        if line.error_message or done is None:
            return None
        return self._record(line, write, {number: part.commands[0].text for number, part in ordered.items()}, done)

    def _nodes_in_batch(self, identity: int, write: _Write) -> dict[int, str]:
        """Return the write's node, after the command that creates the table, inside which Spark runs the write.

        Threads of a batch may write at a time, so either the path or the order of the executions must show the command.
        """
        writing = {
            number: outer.commands[0]
            for number, outer in self._running.items()
            if outer.batch is write.batch and outer.commands
        }
        found = {
            number: outer.creation for number, outer in writing.items() if outer.creates_path_of(write.commands[0])
        }
        if list(writing) == [identity - 1] and writing[identity - 1].creates_without_path:
            found = {identity - 1: writing[identity - 1].creation}
        return {**(found if len(found) == 1 else {}), identity: write.commands[0].text}

    def _record(self, line: SqlExecutionEndLine, write: _Write, nodes: dict[int, str], done: _Write) -> DataWritten:
        query_id, run_id, batch = (None, None, None) if write.batch is None else write.batch.described.groups()
        several = done.commands if len(done.commands) > 1 else []
        return DataWritten(
            execution_id=line.execution_id,
            started=write.started,
            time=line.time,
            nodes={number: self._redacted(node) for number, node in nodes.items()},
            metrics={} if several else done.commands[0].values,
            insertions=[Insertion(node=self._redacted(one.text), metrics=one.values) for one in several if one.is_done],
            query_id=query_id,
            run_id=run_id,
            batch_id=None if batch is None else int(batch),
        )

    def _redacted(self, node: str) -> str:
        return self.redaction.text("plan", beginning(node))


def _put(known: OrderedDict[int, _Value], key: int, value: _Value) -> None:
    known[key] = value
    if len(known) > _MOST_RUNNING:
        known.popitem(last=False)
