"""Handlers of the lines of streaming queries."""

from __future__ import annotations

from collections.abc import Sequence

from spark_events.records.event_log import shapes
from spark_events.records.event_log.clock import LogClock
from spark_events.records.event_log.handlers import Handler, LogRecord, decoding
from spark_events.records.event_log.logged_failures import cut
from spark_events.records.event_log.logged_progress import reported
from spark_events.records.query_progress import iso_millis
from spark_events.records.types import QueryIdle, QueryProgress, QueryStarted, QueryTerminated

__all__ = ["query_handlers"]

_STREAMING = b"org.apache.spark.sql.streaming.StreamingQueryListener$"


def query_handlers(clock: LogClock) -> dict[bytes, Handler]:
    """Return the handlers of these lines, by the name of the event.

    Args:
        clock: the log's clock.
    """

    def started(line: shapes.QueryStartedLine) -> Sequence[LogRecord]:
        at = clock.at(iso_millis(line.timestamp, 0))
        tags = ",".join(line.job_tags)
        started = QueryStarted(
            at=at, id=line.id, run_id=line.run_id, name=line.name, timestamp=line.timestamp, tags=tags
        )
        return (started,)

    def progress(line: shapes.QueryProgressLine) -> Sequence[LogRecord]:
        progress = line.progress
        end = iso_millis(progress.timestamp, 0) + progress.duration_ms.get("triggerExecution", 0)
        return (QueryProgress(at=clock.at(end), progress=reported(progress)),)

    def idle(line: shapes.QueryIdleLine) -> Sequence[LogRecord]:
        at = clock.at(iso_millis(line.timestamp, 0))
        return (QueryIdle(at=at, id=line.id, run_id=line.run_id, timestamp=line.timestamp),)

    def terminated(line: shapes.QueryTerminatedLine) -> Sequence[LogRecord]:
        # Spark's event contains no time, so use the earliest possible time, which is the time of the preceding line.
        terminated = QueryTerminated(
            at=clock.now,
            id=line.id,
            run_id=line.run_id,
            exception=None if line.exception is None else cut(line.exception),
            error_class=line.error_class,
        )
        return (terminated,)

    return {
        _STREAMING + b"QueryStartedEvent": decoding(shapes.QueryStartedLine, started),
        _STREAMING + b"QueryProgressEvent": decoding(shapes.QueryProgressLine, progress),
        _STREAMING + b"QueryIdleEvent": decoding(shapes.QueryIdleLine, idle),
        _STREAMING + b"QueryTerminatedEvent": decoding(shapes.QueryTerminatedLine, terminated),
    }
