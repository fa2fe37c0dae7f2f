"""Handlers of the lines of statements of the Thrift server and of Spark Connect clients."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from spark_events.records.event_log import shapes
from spark_events.records.event_log.clock import LogClock
from spark_events.records.event_log.handlers import Handler, LogRecord, decoding
from spark_events.records.event_log.logged_statements import StatementLines
from spark_events.records.types import PipelineCommandCancelled, PipelineCommandEnded

_THRIFT = b"org.apache.spark.sql.hive.thriftserver.ui.SparkListenerThriftServerOperation"
_CONNECT = b"org.apache.spark.sql.connect.service.SparkListenerConnectOperation"


class StatementHandlers:
    """Handlers that add the log's clock to the records of statements.

    Args:
        statements: converts the lines.
        clock: the log's clock.

    Attributes:
        handlers: by the name of an event in the log.
    """

    def __init__(self, statements: StatementLines, clock: LogClock) -> None:
        self._statements = statements
        self._clock = clock
        self.handlers: dict[bytes, Handler] = {
            _THRIFT + b"Start": decoding(shapes.StatementStartLine, self._started),
            _THRIFT + b"Timeout": decoding(shapes.StatementTimeoutLine, self._timed_out),
            _THRIFT + b"Error": decoding(shapes.StatementErrorLine, self._failed),
            _THRIFT + b"Closed": decoding(shapes.StatementClosedLine, self._closed),
            _CONNECT + b"Started": decoding(shapes.OperationStartedLine, self._operation_started),
            _CONNECT + b"Finished": decoding(shapes.OperationEndedLine, self._operation_finished),
            _CONNECT + b"Canceled": decoding(shapes.OperationEndedLine, self._operation_cancelled),
            _CONNECT + b"Failed": decoding(shapes.OperationFailedLine, self._operation_failed),
            _CONNECT + b"Closed": decoding(shapes.OperationClosedLine, self._operation_closed),
        }

    def _timed_out(self, line: shapes.StatementTimeoutLine) -> Sequence[LogRecord]:
        return (msgspec.structs.replace(self._statements.timed_out(line), at=self._clock.at(line.finish_time)),)

    def _started(self, line: shapes.StatementStartLine) -> Sequence[LogRecord]:
        return (msgspec.structs.replace(self._statements.thrift_started(line), at=self._clock.at(line.start_time)),)

    def _failed(self, line: shapes.StatementErrorLine) -> Sequence[LogRecord]:
        failed = self._statements.failed(line.id, line.finish_time, line.error_msg, line.error_trace)
        return (msgspec.structs.replace(failed, at=self._clock.at(line.finish_time)),)

    def _closed(self, line: shapes.StatementClosedLine) -> Sequence[LogRecord]:
        self._statements.closed(line.id)
        return ()

    def _operation_started(self, line: shapes.OperationStartedLine) -> Sequence[LogRecord]:
        started = self._statements.connect_started(line)
        return () if started is None else (msgspec.structs.replace(started, at=self._clock.at(line.event_time)),)

    def _operation_finished(self, line: shapes.OperationEndedLine) -> Sequence[LogRecord]:
        return self._operation_ended(line, PipelineCommandEnded)

    def _operation_cancelled(self, line: shapes.OperationEndedLine) -> Sequence[LogRecord]:
        return self._operation_ended(line, PipelineCommandCancelled)

    def _operation_ended(
        self, line: shapes.OperationEndedLine, kind: type[PipelineCommandEnded | PipelineCommandCancelled]
    ) -> Sequence[LogRecord]:
        ended = self._statements.connect_ended(line, kind)
        return () if ended is None else (msgspec.structs.replace(ended, at=self._clock.at(line.event_time)),)

    def _operation_failed(self, line: shapes.OperationFailedLine) -> Sequence[LogRecord]:
        failed = self._statements.failed(line.operation_id, line.event_time, line.error_message)
        return (msgspec.structs.replace(failed, at=self._clock.at(line.event_time)),)

    def _operation_closed(self, line: shapes.OperationClosedLine) -> Sequence[LogRecord]:
        self._statements.closed(line.operation_id)
        return ()
