"""Events that each kind of record may cause, so that a waiting driver waits for these only.

Events caused by time (an idle source, held commits) are not listed, because no record exists to wait for.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_events.event import Severity

__all__ = ["CAUSES", "Effect"]


class Effect(NamedTuple):
    """A scope and name of events (None: any), and their maximum severity."""

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

#: By kind of record in the pipe; a test compares the table with the translation.
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
