"""Stage attempts: when all their tasks run or have finished, and why an attempt failed."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator

from spark_events.bridge.records import ExecutorRemoved, StageCompleted, StageSubmitted, StageTasks
from spark_events.event import AttributeValue, Severity
from spark_events.translate.draft import Draft, present
from spark_events.translate.failures import Diagnostics
from spark_events.translate.origin import Origin
from spark_events.translate.queries import Queries
from spark_events.translate.status import STAGE, Status

__all__ = ["Stages"]

_SCOPE = "spark.stage"
_REMEMBERED = 4_096
_EXECUTOR = re.compile(r"ExecutorLostFailure \(executor (\S+) exited|[Ee]xecutor (?:ID )?(\S+) (?:is )?lost")
# What Spark does to stages of a job that is over; the job itself tells why.
_COLLATERAL = re.compile(r"cancelled|SparkContext was shut down|Stage finished", re.IGNORECASE)
_SENTENCES = {
    "ALL_RUNNING_OR_FINISHED": "all {tasks} tasks of {name} are running or have finished",
    "NOT_ALL_RUNNING_OR_FINISHED": "no longer all {tasks} tasks of {name} are running or have finished",
    "ALL_FINISHED": "all {tasks} tasks of {name} have finished",
}


class _Attempt:
    def __init__(self, name: str, origin: Origin) -> None:
        self.name = name
        self.origin = origin
        self.status = Status(STAGE)
        self.over = False

    @property
    def clause(self) -> str:
        """What it works for, unless its name says that already."""
        return "" if self.name in self.origin.clause else self.origin.clause


class Stages:
    """The stage attempts of the application.

    Args:
        queries: to name the query that a stage works for.
        diagnostics: reads failure reasons.
        streaming: whether stages of micro-batches are reported though they do not fail.
    """

    def __init__(self, queries: Queries, diagnostics: Diagnostics, streaming: bool) -> None:
        self.illegal = 0
        self._queries = queries
        self._diagnostics = diagnostics
        self._streaming = streaming
        self._attempts: OrderedDict[tuple[int, int], _Attempt] = OrderedDict()
        self._lost_executors: OrderedDict[str, str] = OrderedDict()

    def submitted(self, record: StageSubmitted) -> Iterator[Draft]:
        """A stage attempt begins; its tasks will tell."""
        key = (record.stage_id, record.attempt)
        if key in self._attempts:
            self.illegal += 1
        else:
            self._attempts[key] = _Attempt(record.name, Origin(record.properties, self._queries))
            if len(self._attempts) > _REMEMBERED:
                self._attempts.popitem(last=False)
        yield from ()

    def tasks(self, record: StageTasks) -> Iterator[Draft]:
        """An edge that the shim has counted."""
        attempt = self._attempts.get((record.stage_id, record.attempt))
        if attempt is None or attempt.over or record.status not in STAGE or attempt.status.value == record.status:
            self.illegal += 1
            return
        old = attempt.status.value
        attempt.status.become(record.status)
        if attempt.origin.is_streaming and not self._streaming:
            return
        name = _name(record.stage_id, record.attempt, attempt.name)
        sentence = _SENTENCES[record.status].format(tasks=record.tasks, name=name)
        yield Draft(
            name="AllSubtasksStatusChangeEvent",
            class_scope=_SCOPE,
            key=("stage", record.stage_id, record.attempt, record.status, record.time),
            body=f"{sentence[0].upper()}{sentence[1:]}{attempt.clause}",
            severity=Severity.INFO,
            observed_ts_millis=record.time,
            attributes=present(
                {
                    "spark.stage.id": record.stage_id,
                    "spark.stage.attempt": record.attempt,
                    "spark.stage.name": attempt.name,
                    "status.old": old,
                    "status.new": record.status,
                    "tasks.total": record.tasks,
                    "tasks.running": record.running,
                    "tasks.finished": record.finished,
                    "tasks.failed_attempts": record.failed,
                    **attempt.origin.attributes,
                }
            ),
        )

    def executor_removed(self, record: ExecutorRemoved) -> Iterator[Draft]:
        """An executor is gone: no event by itself, but the cause of what fails next."""
        self._lost_executors[record.executor_id] = record.reason or "no reason given"
        if len(self._lost_executors) > _REMEMBERED:
            self._lost_executors.popitem(last=False)
        yield from ()

    def completed(self, record: StageCompleted) -> Iterator[Draft]:
        """A stage attempt is over; one that failed is reported."""
        key = (record.stage_id, record.attempt)
        attempt = self._attempts.get(key)
        if attempt is None:
            attempt = self._attempts[key] = _Attempt(record.name, Origin({}, self._queries))
        if attempt.over:
            self.illegal += 1
            return
        attempt.over = True
        reason = record.failure_reason
        if reason is None or _COLLATERAL.search(reason.partition("\n")[0]):
            return
        diagnosis = self._diagnostics.of_text(reason)
        # Spark tries a stage again when its input is gone; when the job is aborted, it says so.
        will_retry = not reason.startswith(("Job aborted", "org.apache.spark.SparkException: Job aborted"))
        if will_retry and not re.search(r"FetchFailed|ExecutorLost|barrier", reason):
            will_retry = False
        name = _name(record.stage_id, record.attempt, attempt.name)
        yield Draft(
            name="JobFailureEvent",
            class_scope=_SCOPE,
            key=("stage", record.stage_id, record.attempt),
            body=(
                f"{name[0].upper()}{name[1:]} failed{attempt.clause}"
                f"{', Spark tries it again' if will_retry else ''}: {diagnosis.summary}"
            ),
            severity=Severity.WARN if will_retry else Severity.ERROR,
            observed_ts_millis=record.time,
            attributes=present(
                {
                    "spark.entity": "stage",
                    "spark.stage.id": record.stage_id,
                    "spark.stage.attempt": record.attempt,
                    "spark.stage.name": attempt.name,
                    "failure.will_retry": will_retry,
                    "tasks.total": record.tasks,
                    "tasks.failed_attempts": record.failed,
                    **attempt.origin.attributes,
                    **diagnosis.attributes,
                    **self._executor(reason),
                }
            ),
        )

    def _executor(self, reason: str) -> dict[str, AttributeValue | None]:
        match = _EXECUTOR.search(reason)
        if match is None:
            return {}
        executor = match[1] or match[2]
        return {"failure.executor.id": executor, "failure.executor.reason": self._lost_executors.get(executor)}


def _name(stage_id: int, attempt: int, name: str) -> str:
    again = f", attempt {attempt}" if attempt else ""
    return f"stage {stage_id}{again} [{name}]"
