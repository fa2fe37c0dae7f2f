"""Events that each kind of record may cause.

With this table, a driver waits only for reporters that may receive such events. The table omits time-driven events (an
idle source, merged commits), because no record causes them and the driver does not wait for them.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_events.event import Severity

__all__ = ["POSSIBLE_EVENTS", "Effect"]


class Effect(NamedTuple):
    """Scope and name of events (None matches any), and their maximum severity."""

    scope: str | None
    name: str | None
    severity: Severity


_APPLICATION = "spark.application"
_QUERY = "spark.streaming.query"
_JOB = "spark.job"
_STAGE = "spark.stage"
_STATUS = "JobStatusChangeEvent"
_FAILURE = "JobFailureEvent"
_DEADLINE = "DeadlineStatusChangeEvent"
_EXECUTOR = "ExecutorStatusChangeEvent"
_COMMIT = Effect(_QUERY, "BatchCommitEvent", Severity.WARN)
_WRITTEN = Effect(_QUERY, "CommitWrittenEvent", Severity.INFO)
_WATERMARK = Effect("spark.streaming.watermark", "WatermarkStatusChangeEvent", Severity.WARN)
_SUBTASKS = Effect(_STAGE, "AllSubtasksStatusChangeEvent", Severity.INFO)
_STAGE_SUMMARY = Effect(_STAGE, "StageSummaryEvent", Severity.WARN)
_STAGE_FAILURE = Effect(_STAGE, _FAILURE, Severity.WARN)


def _on_time(*scopes: str) -> tuple[Effect, ...]:
    """Return the recovery events of deadlines that a record may cause."""
    return tuple(Effect(scope, _DEADLINE, Severity.INFO) for scope in scopes)


#: Events that each kind of record may cause; a test compares this table with the translation.
POSSIBLE_EVENTS: dict[str, tuple[Effect, ...]] = {
    "inspection": tuple(Effect(scope, _DEADLINE, Severity.ERROR) for scope in (_APPLICATION, _QUERY, _JOB, _STAGE)),
    "executor_added": (Effect("spark.executor", _EXECUTOR, Severity.DEBUG),),
    "executor_removed": (Effect("spark.executor", _EXECUTOR, Severity.WARN),),
    "exclusion": (Effect("spark.executor", _EXECUTOR, Severity.WARN),),
    "unschedulable": (Effect("spark.executor", _EXECUTOR, Severity.WARN),),
    "application_start": (Effect(_APPLICATION, _STATUS, Severity.INFO),),
    "application_end": (
        Effect(_APPLICATION, _STATUS, Severity.WARN),
        Effect(_APPLICATION, _FAILURE, Severity.ERROR),
        Effect(_JOB, _STATUS, Severity.INFO),
        _COMMIT,
        *_on_time(_APPLICATION, _QUERY, _JOB, _STAGE),
        Effect("spark.executor", _EXECUTOR, Severity.WARN),
    ),
    "query_started": (Effect(_QUERY, _STATUS, Severity.INFO), _COMMIT, _WATERMARK, *_on_time(_QUERY)),
    "query_progress": (_COMMIT, _WRITTEN, _WATERMARK, *_on_time(_QUERY)),
    "query_idle": (_COMMIT, _WRITTEN, _WATERMARK, *_on_time(_QUERY)),
    "query_terminated": (
        Effect(_QUERY, _STATUS, Severity.INFO),
        Effect(_QUERY, _FAILURE, Severity.ERROR),
        _COMMIT,
        _WRITTEN,
        _WATERMARK,
        *_on_time(_QUERY),
    ),
    "job_start": (Effect(_JOB, _STATUS, Severity.INFO),),
    "job_end": (
        Effect(_JOB, _STATUS, Severity.INFO),
        # ERROR only if failed jobs of the group are alarms.
        Effect(_JOB, _FAILURE, Severity.ERROR),
        *_on_time(_JOB),
    ),
    "sql_execution_end": (Effect("spark.sql.execution", _FAILURE, Severity.WARN),),
    "data_written": (Effect("spark.sql.execution", "DataWrittenEvent", Severity.INFO),),
    "statement_timed_out": (Effect("spark.sql.execution", _FAILURE, Severity.WARN),),
    "statement_failed": (Effect("spark.sql.execution", _FAILURE, Severity.WARN),),
    "stage_tasks": (_SUBTASKS,),
    "stage_completed": (_STAGE_FAILURE, _STAGE_SUMMARY),
    "application_totals": (Effect(_APPLICATION, "ApplicationSummaryEvent", Severity.INFO),),
    "added": (Effect(None, None, Severity.FATAL),),
    "dropped": (Effect("spark_events.dispatch", "EventsDroppedEvent", Severity.WARN),),
}
