"""Conversion of lines of Spark's event log to the records that the shim sends for a running application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from spark_events.records.event_log import shapes
from spark_events.records.event_log.clock import LogClock
from spark_events.records.event_log.exclusions import exclusion_handlers
from spark_events.records.event_log.handlers import Handler, LogRecord, decoding
from spark_events.records.event_log.logged_failures import Failures, beginning, cut
from spark_events.records.event_log.logged_sql import SQL_END, SQL_START, SqlLines
from spark_events.records.event_log.logged_statements import StatementLines
from spark_events.records.event_log.logged_writes import ACCUMULATOR_UPDATES, ADAPTIVE_UPDATE
from spark_events.records.event_log.memory_peaks import DRIVER
from spark_events.records.event_log.query_handlers import query_handlers
from spark_events.records.event_log.redaction import Redaction
from spark_events.records.event_log.running_work import RunningWork
from spark_events.records.event_log.statement_handlers import StatementHandlers
from spark_events.records.event_log.tasks import Outcome, TaskCounts
from spark_events.records.event_log.totals import Totals
from spark_events.records.types import (
    LINKS,
    MOST_FAILURES,
    ApplicationEnd,
    ApplicationStart,
    BatchStarted,
    ExecutorAdded,
    ExecutorRemoved,
    JobEnd,
    JobStart,
    StageCompleted,
    StageSubmitted,
    StageTasks,
)

_CORE = b"SparkListener"
#: Reasons of killed task attempts; the shim has the same list (``StageRecords.java``).
_KILLED = ("TaskKilled", "TaskCommitDenied")
#: Longest value of a setting in the record, in characters; the same as in the shim (``ApplicationRecords.java``).
_LONGEST_SETTING = 1_000


class LogRecords:
    """Converter of the lines of one application to records.

    Args:
        summary_interval: minimum time between two totals of the application, in seconds; 0: only the final totals.

    Attributes:
        handlers: by the name of an event in the log, the function that returns the records of a line, usually none or
            one. A handler may raise any error for an invalid line.
    """

    def __init__(self, summary_interval: float = 0.0) -> None:
        self._clock = LogClock()
        # Fields of ApplicationStart that earlier lines contain.
        self._application: dict[str, Any] = {"spark_version": ""}
        self._most_failures = MOST_FAILURES
        self._tasks = TaskCounts()
        self._work = RunningWork(self._tasks)
        self._totals = Totals(round(summary_interval * 1_000), self._tasks)
        self._failures = Failures()
        self._redaction = Redaction({})
        self._sql = SqlLines(self._redaction)
        self._statements = StatementLines(self._redaction)
        self.handlers = self._all_handlers()

    def _all_handlers(self) -> dict[bytes, Handler]:
        return {
            _CORE + b"LogStart": decoding(shapes.LogStartLine, self._log_start),
            _CORE + b"EnvironmentUpdate": decoding(shapes.EnvironmentLine, self._environment),
            _CORE + b"ApplicationStart": decoding(shapes.ApplicationStartLine, self._application_start),
            _CORE + b"ApplicationEnd": decoding(shapes.ApplicationEndLine, self._application_end),
            _CORE + b"JobStart": decoding(shapes.JobStartLine, self._job_start),
            _CORE + b"JobEnd": decoding(shapes.JobEndLine, self._job_end),
            _CORE + b"StageSubmitted": decoding(shapes.StageSubmittedLine, self._stage_submitted),
            _CORE + b"StageCompleted": decoding(shapes.StageCompletedLine, self._stage_completed),
            _CORE + b"TaskStart": decoding(shapes.TaskStartLine, self._task_start),
            _CORE + b"TaskEnd": decoding(shapes.TaskEndLine, self._task_end),
            _CORE + b"ExecutorAdded": decoding(shapes.ExecutorAddedLine, self._executor_added),
            _CORE + b"ExecutorRemoved": decoding(shapes.ExecutorRemovedLine, self._executor_removed),
            _CORE + b"StageExecutorMetrics": decoding(shapes.StageExecutorMetricsLine, self._stage_peaks),
            **exclusion_handlers(self._clock.at),
            SQL_START: self._sql_start,
            ADAPTIVE_UPDATE: decoding(shapes.AdaptiveUpdateLine, self._sql.writes.planned),
            ACCUMULATOR_UPDATES: decoding(shapes.AccumulatorUpdatesLine, self._sql.writes.updated),
            SQL_END: decoding(shapes.SqlExecutionEndLine, self._sql_end),
            **StatementHandlers(self._statements, self._clock).handlers,
            **query_handlers(self._clock),
        }

    def _log_start(self, line: shapes.LogStartLine) -> Sequence[LogRecord]:
        self._application["spark_version"] = line.spark_version
        return ()

    def _environment(self, line: shapes.EnvironmentLine) -> Sequence[LogRecord]:
        properties = line.spark_properties
        self._redaction = Redaction(properties)
        self._sql.redaction = self._sql.writes.redaction = self._statements.redaction = self._redaction
        self._most_failures = int(properties.get("spark.stage.maxConsecutiveAttempts", MOST_FAILURES))
        self._totals.cpus = int(properties.get("spark.task.cpus", 1))
        self._application |= {
            "host": properties.get("spark.driver.host", ""),
            "command": cut(line.system_properties.command),
            "py_files": [path for path in properties.get("spark.submit.pyFiles", "").split(",") if path],
            "links": {name: properties[key] for name, key in LINKS.items() if properties.get(key)},
            "namespaces": sorted({key.split(".")[1] for key in properties if key.count(".") > 1}),
            "settings": {
                key: self._redaction.job_property(key, value)
                for key, value in properties.items()
                if key.startswith("spark.") and not key.startswith("spark.events.") and len(value) <= _LONGEST_SETTING
            },
        }
        return ()

    def _application_start(self, line: shapes.ApplicationStartLine) -> Sequence[LogRecord]:
        self._totals.started(line.timestamp)
        start = ApplicationStart(
            at=self._clock.at(line.timestamp),
            app_id=line.app_id,
            app_name=self._redaction.application_name(line.app_name),
            attempt_id=line.app_attempt_id,
            user=line.user,
            time=line.timestamp,
            **self._application,
        )
        return (start,)

    def _application_end(self, line: shapes.ApplicationEndLine) -> Sequence[LogRecord]:
        # The outcome is unknown: in a live run, the shim determines it from the driver's threads, which are not in the
        # log.
        at = self._clock.at(line.timestamp)
        end = ApplicationEnd(at=at, time=line.timestamp, ending="UNKNOWN", exit_code=line.exit_code)
        totals = self._totals.of_application(at, line.timestamp, final=True)
        return (*self._work.waited(at, line.timestamp), totals, end)

    def _job_start(self, line: shapes.JobStartLine) -> Sequence[LogRecord]:
        at, time = self._clock.times(line.submission_time)
        properties = self._properties(line.properties)
        return (JobStart(at=at, job_id=line.job_id, time=time, properties=properties, stages=line.stage_ids),)

    def _job_end(self, line: shapes.JobEndLine) -> Sequence[LogRecord]:
        at, time = self._clock.times(line.completion_time)
        result = line.job_result
        failure = None if result.result == "JobSucceeded" else self._failures.of_job(result.exception)
        message = result.exception.message or ""
        self._totals.job_ended(None if failure is None else message)
        peaks = None if failure is None else self._totals.memory.of(message)
        ended = JobEnd(at=at, job_id=line.job_id, time=time, failure=failure, peaks=peaks)
        return (ended, *self._totals.due(at, time))

    def _stage_submitted(self, line: shapes.StageSubmittedLine) -> Sequence[LogRecord]:
        stage = line.stage_info
        at, time = self._clock.times(stage.submission_time)
        self._totals.stage_submitted(stage.stage_id, stage.stage_attempt_id)
        record = StageSubmitted(
            at=at,
            stage_id=stage.stage_id,
            attempt=stage.stage_attempt_id,
            name=beginning(stage.stage_name),
            tasks=stage.number_of_tasks,
            time=time,
            properties=self._properties(line.properties),
        )
        self._tasks.submitted(record)
        return (record,)

    def _stage_completed(self, line: shapes.StageCompletedLine) -> Sequence[LogRecord]:
        stage = line.stage_info
        at, time = self._clock.times(stage.completion_time)
        reason = stage.failure_reason
        key = (stage.stage_id, stage.stage_attempt_id)
        attempt = None if reason is None else self._tasks.attempts.get(key)
        waited = [wait for wait in self._work.waited(at, time) if wait.stage.stage_id == stage.stage_id]
        lost, failed = self._tasks.completed(stage.stage_id, stage.stage_attempt_id, time)
        self._sql.writes.stage_completed(stage.accumulables)
        totals = self._totals.stage_completed(key, stage.submission_time or 0, time, reason)
        completed = StageCompleted(
            at=at,
            stage_id=stage.stage_id,
            attempt=stage.stage_attempt_id,
            name=beginning(stage.stage_name),
            tasks=stage.number_of_tasks,
            time=time,
            failed=failed,
            failure_reason=None if reason is None else cut(reason),
            task_failure=None if reason is None else self._failures.trace_of_task(key, reason),
            lost_executor=None if attempt is None else attempt.fetched_from.executor_id or None,
            lost_host=None if attempt is None else attempt.fetched_from.host or None,
            most_failures=self._most_failures,
            totals=totals,
            peaks=None if reason is None else self._totals.memory.of(reason),
        )
        return (*waited, *self._stage_tasks(lost), completed, *self._totals.due(at, time))

    def _task_start(self, line: shapes.TaskStartLine) -> Sequence[LogRecord]:
        task = line.task_info
        at = self._clock.now
        waited = self._work.started(task.task_id, task.executor_id, line.stage_id, at, task.launch_time)
        if task.speculative:
            self._totals.copy_started((line.stage_id, line.stage_attempt_id))
        edges = self._tasks.task_started(line.stage_id, line.stage_attempt_id, task.index, task.launch_time)
        return (*waited, *self._stage_tasks(edges)) if edges or waited else ()

    def _task_end(self, line: shapes.TaskEndLine) -> Sequence[LogRecord]:
        task, reason = line.task_info, line.task_end_reason
        if task is None:
            return ()
        key = (line.stage_id, line.stage_attempt_id)
        if reason.class_name:
            self._failures.note(task.task_id, key, reason)
            self._totals.memory.failed(task.executor_id, reason.description or "")
        elif reason.block_manager_address is not None and key in self._tasks.attempts:
            self._tasks.attempts[key].fetched_from = reason.block_manager_address
        if reason.reason == "Resubmitted":
            edges = self._tasks.output_lost(line.stage_id, line.stage_attempt_id, task.index, task.executor_id)
        else:
            outcome = _outcome(task, reason)
            self._totals.task_ended(key, task, outcome, line.task_metrics)
            if line.task_executor_metrics is not None:
                self._totals.memory.add(task.executor_id, line.task_executor_metrics)
            self._work.ended(task.task_id, task.finish_time, lost=reason.reason == "ExecutorLostFailure")
            edges = self._tasks.task_ended(
                *(line.stage_id, line.stage_attempt_id, task.index, outcome, task.launch_time, task.finish_time)
            )
        return self._stage_tasks(edges) if edges else ()

    def _stage_tasks(self, edges: Sequence[StageTasks]) -> list[StageTasks]:
        return [msgspec.structs.replace(edge, at=self._clock.at(edge.time)) for edge in edges]

    def _executor_added(self, line: shapes.ExecutorAddedLine) -> Sequence[LogRecord]:
        info = line.executor_info
        record = ExecutorAdded(
            at=self._clock.at(line.timestamp),
            executor_id=line.executor_id,
            time=line.timestamp,
            host=info.host,
            cores=info.total_cores,
        )
        self._work.executor_added(record)
        self._totals.cores(self._work.cores, line.timestamp)
        return () if record.executor_id == DRIVER else (record,)

    def _executor_removed(self, line: shapes.ExecutorRemovedLine) -> Sequence[LogRecord]:
        removed = ExecutorRemoved(
            at=self._clock.at(line.timestamp),
            executor_id=line.executor_id,
            time=line.timestamp,
            reason=None if line.removed_reason is None else cut(line.removed_reason),
        )
        edges = self._stage_tasks(self._tasks.executor_removed(line.executor_id, line.timestamp))
        removed = self._work.executor_removed(removed)
        self._totals.cores(self._work.cores, line.timestamp)
        return (*edges, removed)

    def _stage_peaks(self, line: shapes.StageExecutorMetricsLine) -> Sequence[LogRecord]:
        self._totals.memory.add(line.executor_id, line.executor_metrics)
        return ()

    def _sql_start(self, line: bytes) -> Sequence[LogRecord]:
        record = self._sql.start(line)
        if record is None:
            return ()
        # The reader cuts long lines; a line that was cut contains no time.
        if isinstance(record, BatchStarted):
            return (msgspec.structs.replace(record, at=self._clock.now),)
        at, time = self._clock.times(record.time or None)
        return (msgspec.structs.replace(record, at=at, time=time),)

    def _sql_end(self, line: shapes.SqlExecutionEndLine) -> Sequence[LogRecord]:
        at = self._clock.at(line.time)
        written, record = self._sql.writes.ended(line), self._sql.end(line, at)
        found = () if written is None else (msgspec.structs.replace(written, at=at),)
        return found if record is None else (*found, record)

    def _properties(self, properties: shapes.OriginProperties | None) -> dict[str, str]:
        found: dict[str, str] = {} if properties is None else msgspec.to_builtins(properties)
        return {key: self._redaction.job_property(key, beginning(value)) for key, value in found.items()}


def _outcome(task: shapes.EndedTask, reason: shapes.TaskEndReason) -> Outcome:
    if task.finish_time != 0 and not task.failed and not task.killed:
        return Outcome.SUCCEEDED
    return Outcome.KILLED if reason.reason in _KILLED else Outcome.FAILED
