"""Which records may make which events: what a driver need not wait for, it is not made to wait for.

Only what a record itself tells counts. An event that time makes (a source that went idle, commits that were
held back) has no record that anybody could wait for.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_events.event import Severity

__all__ = ["CAUSES", "Effect"]


class Effect(NamedTuple):
    """A kind of event (None: of whatever scope or name), and the most severe that it can be."""

    scope: str | None
    name: str | None
    severity: Severity


_APPLICATION = "spark.application"
_QUERY = "spark.streaming.query"
_JOB = "spark.job"
_STAGE = "spark.stage"
_STATUS = "JobStatusChangeEvent"
_FAILURE = "JobFailureEvent"
_COMMIT = Effect(_QUERY, "BatchCommitEvent", Severity.WARN)
_WATERMARK = Effect("spark.streaming.watermark", "WatermarkStatusChangeEvent", Severity.WARN)
_SUBTASKS = Effect(_STAGE, "AllSubtasksStatusChangeEvent", Severity.INFO)
_STAGE_FAILURE = Effect(_STAGE, _FAILURE, Severity.ERROR)
_SQL_FAILURE = Effect("spark.sql.execution", _FAILURE, Severity.ERROR)

#: By the kind of the record, as it stands in the pipe; a test compares it with what the translation does.
CAUSES: dict[str, tuple[Effect, ...]] = {
    "application_start": (Effect(_APPLICATION, _STATUS, Severity.INFO),),
    "application_end": (
        Effect(_APPLICATION, _STATUS, Severity.ERROR),
        Effect(_APPLICATION, _FAILURE, Severity.ERROR),
        Effect(_JOB, _STATUS, Severity.WARN),
        _SQL_FAILURE,
        _COMMIT,
    ),
    "query_started": (Effect(_QUERY, _STATUS, Severity.INFO), _COMMIT, _WATERMARK),
    "query_progress": (_COMMIT, _WATERMARK),
    "query_idle": (_COMMIT, _WATERMARK),
    "query_terminated": (
        Effect(_QUERY, _STATUS, Severity.ERROR),
        Effect(_QUERY, _FAILURE, Severity.ERROR),
        _COMMIT,
        _WATERMARK,
    ),
    "job_start": (Effect(_JOB, _STATUS, Severity.INFO),),
    "job_end": (Effect(_JOB, _STATUS, Severity.ERROR), Effect(_JOB, _FAILURE, Severity.ERROR), _SQL_FAILURE),
    "sql_execution_end": (_SQL_FAILURE,),
    "stage_tasks": (_SUBTASKS,),
    "stage_completed": (_STAGE_FAILURE,),
    "added": (Effect(None, None, Severity.FATAL),),
    "dropped": (Effect("spark_events.dispatch", "EventsDroppedEvent", Severity.WARN),),
}
