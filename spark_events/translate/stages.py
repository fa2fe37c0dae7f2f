"""Stage attempts: status changes derived from task counts, and causes of failure."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping

from spark_events.event import AttributeValue, Severity
from spark_events.records.types import StageCompleted, StageSubmitted, StageTasks
from spark_events.translate.bounded import put
from spark_events.translate.draft import Draft, present
from spark_events.translate.entities import failure
from spark_events.translate.executions import Executions
from spark_events.translate.executors import FETCH_FAILED, Executors
from spark_events.translate.failures import Diagnostics
from spark_events.translate.jobs import Jobs
from spark_events.translate.origin import Origin, in_brackets, origin_of
from spark_events.translate.queries import Queries
from spark_events.translate.root_causes import ABORTED
from spark_events.translate.summaries.stage_summaries import StageSummaries

__all__ = ["Stages"]

_REMEMBERED = 4_096
#: Maximum number of running attempts, reached only if most records of completed stages were lost.
_RUNNING = 16_384
# Spark retries a whole stage if its input is lost, or if the stage has a barrier.
_BARRIER = "Stage failed because barrier task"
#: Spark does not retry the last stage of a job, even with a barrier, because the driver has already received some of
#: its results.
_BARRIER_AGAIN = f"{_BARRIER} ShuffleMapTask("
_BARRIER_IS_LAST = "failed barrier ResultStage"
# Failure reasons of stages that Spark cancels because their job has ended; the job's event reports the cause.
_COLLATERAL = re.compile(
    r"(?:\S+Exception: )?(?:\[SPARK_JOB_CANCELLED\] )?"
    r"(?:Job \d+ (?:was )?(?:cancelled|is finished)|Stage (?:\d+ )?(?:was )?(?:cancelled|finished)"
    r"|.* so this stage is not needed anymore)"
)
_CULPRIT = re.compile(r"Task \d+ in stage (\d+)\.\d+ failed")
_SENTENCES = {
    "ALL_RUNNING_OR_FINISHED": "all {tasks} tasks of {name} are running or have finished",
    "NOT_ALL_RUNNING_OR_FINISHED": "no longer all {tasks} tasks of {name} are running or have finished",
    "ALL_FINISHED": "all {tasks} tasks of {name} have finished",
}
_SENTENCES_OF_ONE = {
    "ALL_RUNNING_OR_FINISHED": "the one task of {name} is running",
    "NOT_ALL_RUNNING_OR_FINISHED": "the one task of {name} is no longer running",
    "ALL_FINISHED": "the one task of {name} has finished",
}


class _StageAttempt:
    def __init__(self, name: str, origin: Origin, submitted: int = 0, is_alone: bool = False) -> None:
        self.name = name
        self.origin = origin
        self.submitted = submitted
        #: Whether no other attempt has run at the same time; False if unknown.
        self.is_alone = is_alone
        self.status: str | None = None
        self._last = 0
        self._edge_at = 0

    def takes(self, record: StageTasks) -> int | None:
        """Return the time of a status change; None if the change was already reported.

        The time is never earlier than the time of the preceding change, for two reasons. Spark's threads may report in
        another order than they read the clock. Spark also reports the removal of an executor only after it has
        restarted the executor's tasks.
        """
        # A driver numbers its records, so a repeated record is detected. Records from an event log have no numbers, but
        # a log is read only once.
        if 0 < record.seq <= self._last:
            return None
        self._last = record.seq
        if record.status == self.status:
            return None
        self.status = record.status
        self._edge_at = max(record.time, self._edge_at)
        return self._edge_at

    @property
    def clause(self) -> str:
        """Origin of the stage, for a body that contains the stage's name."""
        return self.origin.beside(self.name)


class Stages:
    """The stage attempts of the application.

    Args:
        queries: to find the query that a stage belongs to.
        jobs: to find the job that a stage belongs to.
        diagnostics: analyses failure reasons.
        executors: the removed executors.
        streaming: whether stages of micro-batches are reported even if they do not fail.
        summaries: summarizes the tasks of an attempt.
        executions: describes the SQL execution that a stage belongs to.
    """

    def __init__(
        self,
        queries: Queries,
        jobs: Jobs,
        diagnostics: Diagnostics,
        executors: Executors,
        streaming: bool,
        summaries: StageSummaries,
        executions: Executions,
    ) -> None:
        self.illegal = 0
        self._queries = queries
        self._jobs = jobs
        self._diagnostics = diagnostics
        self._executors = executors
        self._streaming = streaming
        self._summaries = summaries
        self._executions = executions
        self._running: OrderedDict[tuple[int, int], _StageAttempt] = OrderedDict()
        self._over: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._failures: OrderedDict[int, int] = OrderedDict()

    def attributes(self, stage_id: int, attempt: int) -> Mapping[str, AttributeValue]:
        """Return the attributes of a running attempt's origin; empty if the attempt is unknown."""
        running = self._running.get((stage_id, attempt))
        return {} if running is None else running.origin.attributes

    def submitted(self, record: StageSubmitted) -> None:
        """Remember a new stage attempt; emit no event."""
        key = (record.stage_id, record.attempt)
        if key in self._running or key in self._over:
            self.illegal += 1
            return
        for other in self._running.values():
            other.is_alone = False
        origin = origin_of(record.properties, self._queries, self._executions)
        attempt = _StageAttempt(record.name, origin, record.time, not self._running)
        put(self._running, key, attempt, _RUNNING)

    def tasks(self, record: StageTasks) -> Iterator[Draft]:
        """Report a change of status that the shim derived from the tasks it counted."""
        attempt = self._running.get((record.stage_id, record.attempt))
        old = None if attempt is None else attempt.status
        at = None if attempt is None else attempt.takes(record)
        if attempt is None or at is None:
            self.illegal += 1
            return
        if attempt.origin.is_streaming and not self._streaming:
            return
        name = _name(record.stage_id, record.attempt, attempt.name)
        sentence = (_SENTENCES if record.tasks != 1 else _SENTENCES_OF_ONE)[record.status].format(
            tasks=record.tasks, name=name
        )
        yield Draft(
            name="AllSubtasksStatusChangeEvent",
            class_scope="spark.stage",
            key=(
                *("stage", record.stage_id, record.attempt, record.status, at),
                *(record.running, record.finished, record.failed),
            ),
            body=f"{sentence}{attempt.clause}",
            severity=Severity.DEBUG,
            observed_ts_millis=at,
            attributes=present(
                {
                    "spark.stage.id": record.stage_id,
                    "spark.stage.attempt": record.attempt,
                    "spark.stage.name": attempt.name,
                    "spark.status.old": old,
                    "spark.status.new": record.status,
                    "spark.stage.tasks_total": record.tasks,
                    "spark.stage.tasks_running": record.running,
                    "spark.stage.tasks_finished": record.finished,
                    "spark.stage.tasks_failed_attempts": record.failed,
                    **attempt.origin.attributes,
                }
            ),
        )

    def completed(self, record: StageCompleted) -> Iterator[Draft]:
        """Report a stage attempt's failure, if it failed, and its summary."""
        key = (record.stage_id, record.attempt)
        if key in self._over:
            # Spark reports such a stage twice: first the failure, then that the stage cannot be retried.
            self.illegal += _BARRIER_IS_LAST not in (record.failure_reason or "")
            return
        put(self._over, key, None, _REMEMBERED)
        attempt = self._running.pop(key, None) or _StageAttempt(record.name, Origin())
        yield from self._failure(record, attempt)
        if attempt.origin.is_streaming and not self._streaming:
            return
        title = _name(record.stage_id, record.attempt, attempt.name)
        summary = self._summaries.of(record, title, attempt.clause, attempt.origin, attempt.is_alone)
        if summary is not None:
            yield summary

    def _failure(self, record: StageCompleted, attempt: _StageAttempt) -> Iterator[Draft]:
        reason = record.failure_reason
        if reason is None:
            self._failures.pop(record.stage_id, None)
            return
        if _is_collateral(record, reason):
            return
        self._diagnostics.peaks = record.peaks or self._diagnostics.peaks
        diagnosis = self._diagnostics.of_text(record.task_failure or reason)
        diagnosis = self._executors.explain_stage(record, attempt.submitted, diagnosis)
        will_retry = self._will_retry(record, reason)
        job_id = self._jobs.of_stage(record.stage_id) if will_retry else self._jobs.stage_failed(record.stage_id)
        name = _name(record.stage_id, record.attempt, attempt.name)
        body = f"{name} failed{attempt.clause}"
        body += f"{' and will be retried by Spark' if will_retry else ''}: {diagnosis.summary}"
        details = {
            "spark.stage.id": record.stage_id,
            "spark.stage.attempt": record.attempt,
            "spark.stage.name": attempt.name,
            "spark.job.id": job_id,
            "failure.will_retry": will_retry,
            "spark.stage.tasks_total": record.tasks,
            "spark.stage.tasks_failed_attempts": record.failed,
            **attempt.origin.attributes,
            **diagnosis.attributes,
        }
        # The job of the stage reports the failure, unless Spark retries the stage.
        severity = Severity.WARN if will_retry else Severity.INFO
        yield failure("stage", (record.stage_id, record.attempt), body, severity, record.time, details)

    def _will_retry(self, record: StageCompleted, reason: str) -> bool:
        """Return whether Spark will retry the stage.

        Spark does not report its decision. It retries only for these reasons, and only a limited number of times in a
        row.
        """
        if not FETCH_FAILED.match(reason) and not reason.startswith(_BARRIER_AGAIN):
            return False
        failures = self._failures.pop(record.stage_id, 0) + 1
        put(self._failures, record.stage_id, failures, _REMEMBERED)
        return failures < record.most_failures


def _is_collateral(record: StageCompleted, reason: str) -> bool:
    """Return whether Spark ended the attempt because another stage or task failed."""
    if reason.startswith(ABORTED):
        culprit = _CULPRIT.match(reason, len(ABORTED))
        return culprit is not None and int(culprit[1]) != record.stage_id
    if _COLLATERAL.match(reason):
        return True
    # If a task fails the job, Spark 4 also fails the job's other running stages, with the message of that task.
    return not (record.task_failure is not None or FETCH_FAILED.match(reason) or reason.startswith(_BARRIER))


def _name(stage_id: int, attempt: int, name: str) -> str:
    again = f", attempt {attempt}" if attempt else ""
    return f"stage {stage_id}{again}{in_brackets(name)}"
