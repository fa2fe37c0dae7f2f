"""SQL executions in the event log, converted as in the shim (``SqlRecords.java``)."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from spark_events.bridge.event_log.failures import cut
from spark_events.bridge.event_log.shapes import SqlExecutionEndLine, SqlExecutionStartLine
from spark_events.bridge.records import SqlExecutionEnd

_KIND = b"org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"
SQL_START = _KIND + b"Start"
SQL_END = _KIND + b"End"
#: Key that follows all needed fields and precedes the plans, which may be of any size.
_DETAILS = b',"details":"'
_MOST_RUNNING = 4_096


class SqlLines:
    """Converter for failed SQL executions, and for the first success after a failure."""

    def __init__(self) -> None:
        self._running: OrderedDict[int, tuple[int, str]] = OrderedDict()
        self._failed_last = False
        self._decode_start = msgspec.json.Decoder(SqlExecutionStartLine).decode

    def start(self, line: bytes) -> Sequence[SqlExecutionEnd]:
        """Store the outermost execution that contains a new execution, and its description; return no record.

        The reader cuts very long lines. If the description was cut off, the execution is not stored.
        """
        if b'"details"' not in line and line[-1:] == b"}":
            return ()
        started = self._decoded(line)
        root = started.execution_id if started.root_execution_id is None else started.root_execution_id
        outermost = self._running.get(root)
        description = started.description if outermost is None else outermost[1]
        self._running[started.execution_id] = root, description
        if len(self._running) > _MOST_RUNNING:
            self._running.popitem(last=False)
        return ()

    def _decoded(self, line: bytes) -> SqlExecutionStartLine:
        details = line.find(_DETAILS)
        if details >= 0:
            with contextlib.suppress(msgspec.DecodeError):
                return self._decode_start(line[:details] + b"}")
        return self._decode_start(line)

    def end(self, line: SqlExecutionEndLine, at: int) -> SqlExecutionEnd | None:
        """Return the record of an execution's end; None for a success without an earlier failure."""
        known = self._running.pop(line.execution_id, None)
        if not line.error_message and not self._failed_last:
            return None
        self._failed_last = bool(line.error_message)
        return SqlExecutionEnd(
            at=at,
            execution_id=line.execution_id,
            root_id=line.execution_id if known is None else known[0],
            time=line.time,
            description=None if known is None else cut(known[1]),
            error=cut(line.error_message) if line.error_message else None,
        )
