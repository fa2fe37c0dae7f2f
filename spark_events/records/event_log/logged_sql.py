"""SQL executions in the event log, converted as in the shim (``SqlRecords.java``)."""

from __future__ import annotations

import re
from collections import OrderedDict

import msgspec

from spark_events.records.event_log.logged_failures import beginning, cut
from spark_events.records.event_log.logged_plans import planned_nodes
from spark_events.records.event_log.logged_writes import WriteLines
from spark_events.records.event_log.redaction import Redaction
from spark_events.records.event_log.shapes import SqlExecutionEndLine, SqlExecutionStartLine
from spark_events.records.types import BatchStarted, SqlExecutionEnd, SqlExecutionStart

_KIND = b"org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"
SQL_START = _KIND + b"Start"
SQL_END = _KIND + b"End"
#: Key that follows the description. If the reader has cut a line, the fields before this key are complete.
_DETAILS = b',"details":"'
_MOST_RUNNING = 4_096
#: Strings in the description that Spark assigns to the executions of a micro-batch.
_RUN = "\nrunId = "
_MICRO_BATCH = re.compile(r"(?:^|\n)id = ([0-9a-f-]{36})\nrunId = [0-9a-f-]{36}\nbatch = (\d+)", re.ASCII)
#: Tag of one execution, which is different for each micro-batch.
_OF_EXECUTION = re.compile(r",?spark-session-[0-9a-f-]{36}-execution-root-id-\d+", re.ASCII)
_MOST_QUERIES = 2_000
_BATCH = "\nbatch = "


class SqlLines:
    """Converter for the lines of SQL executions.

    It converts starts outside micro-batches, failures, and the first success of each job group after a
    failure.

    Attributes:
        redaction: redaction of descriptions and plans.
        writes: converter of the executions that write.
    """

    def __init__(self, redaction: Redaction) -> None:
        self.redaction = redaction
        self.writes = WriteLines(redaction)
        self._running: OrderedDict[int, tuple[int, str, str]] = OrderedDict()
        # The tags of each query.
        self._tags: OrderedDict[str, str] = OrderedDict()
        # By job group, "" for none: the newest execution at the time of the last failure, if no success followed.
        self._failed: OrderedDict[str, int] = OrderedDict()
        self._newest = -1
        self._decode_start = msgspec.json.Decoder(SqlExecutionStartLine).decode

    def start(self, line: bytes) -> SqlExecutionStart | BatchStarted | None:
        """Return the record of an execution's start; for one in a micro-batch, that of the query's tags, or None.

        The reader cuts very long lines, so the record may lack the plan and the time. The result is also None if the
        cut removed a part of the description.
        """
        if b'"details"' not in line and line[-1:] == b"}":
            return None
        started = self._decoded(line)
        self.writes.started(started)
        root = started.execution_id if started.root_execution_id is None else started.root_execution_id
        outermost = self._running.get(root)
        description = started.description if outermost is None else outermost[1]
        group = beginning(started.job_group_id or "") if outermost is None else outermost[2]
        self._running[started.execution_id] = root, description, group
        self._newest = max(self._newest, started.execution_id)
        if len(self._running) > _MOST_RUNNING:
            self._running.popitem(last=False)
        tags = ",".join(started.job_tags)
        if _RUN in description and _BATCH in description:
            return self._batch_started(description, tags)
        return SqlExecutionStart(
            execution_id=started.execution_id,
            root_id=root,
            time=started.time,
            description=self._description(description),
            plan=planned_nodes(started.spark_plan_info, started.physical_plan_description, self.redaction),
            tags=self.redaction.job_property("spark.job.tags", beginning(tags)),
            group=None if started.job_group_id is None else beginning(started.job_group_id),
        )

    def _batch_started(self, description: str, tags: str) -> BatchStarted | None:
        batch, of_query = _MICRO_BATCH.search(description), _OF_EXECUTION.sub("", tags)
        if batch is None or not of_query or self._tags.get(batch[1]) == of_query:
            return None
        self._tags[batch[1]] = of_query
        if len(self._tags) > _MOST_QUERIES:
            self._tags.popitem(last=False)
        return BatchStarted(
            properties={
                "sql.streaming.queryId": batch[1],
                "streaming.sql.batchId": batch[2],
                "spark.job.tags": self.redaction.job_property("spark.job.tags", of_query),
            }
        )

    def _decoded(self, line: bytes) -> SqlExecutionStartLine:
        try:
            return self._decode_start(line)
        except msgspec.DecodeError:
            details = line.find(_DETAILS)
            if details < 0:
                raise
            return self._decode_start(line[:details] + b"}")

    def end(self, line: SqlExecutionEndLine, at: int) -> SqlExecutionEnd | None:
        """Return the record of an execution's completion; None for a success without an earlier failure."""
        known = self._running.pop(line.execution_id, None)
        group = "" if known is None else known[2]
        if line.error_message:
            self._failed[group] = self._newest
            if len(self._failed) > _MOST_RUNNING:
                self._failed.popitem(last=False)
        elif not self._follows(line.execution_id, {group, ""}):
            return None
        return SqlExecutionEnd(
            at=at,
            execution_id=line.execution_id,
            root_id=line.execution_id if known is None else known[0],
            time=line.time,
            description=None if known is None else self._description(known[1]),
            error=cut(line.error_message) if line.error_message else None,
        )

    def _follows(self, execution_id: int, groups: set[str]) -> bool:
        """Return whether an execution is the first success after a failure in one of the groups."""
        followed = [group for group in groups if execution_id > self._failed.get(group, execution_id)]
        for group in followed:
            del self._failed[group]
        return bool(followed)

    def _description(self, description: str) -> str:
        return self.redaction.text("spark.job.description", beginning(description))
