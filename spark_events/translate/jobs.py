"""Spark jobs: origin, completion, and cause of failure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from spark_events.event import AttributeValue, Severity
from spark_events.records.types import BatchStarted, JobEnd, JobStart
from spark_events.translate.bounded import put
from spark_events.translate.clients import client_of
from spark_events.translate.culprits import Culprits
from spark_events.translate.draft import Draft
from spark_events.translate.entities import failure
from spark_events.translate.executions import Executions
from spark_events.translate.executors import Executors
from spark_events.translate.failures import Diagnostics
from spark_events.translate.job_tags import job_tags
from spark_events.translate.origin import Origin, note_batch, origin_of
from spark_events.translate.queries import Queries
from spark_events.translate.standing_failures import StandingFailure, StandingFailures, work_of

__all__ = ["Jobs"]

# Reading a member of an enumeration from its class is slow before Python 3.12.
_DEBUG = Severity.DEBUG
#: Number of finished jobs to remember, so that a repeated record of a job's completion emits no second event.
_REMEMBERED = 4_096
#: Maximum number of running jobs, reached only if most records of completed jobs were lost.
_RUNNING = 16_384


class Jobs:
    """The jobs of the application, by job id.

    Args:
        queries: to find the query that a job belongs to.
        diagnostics: analyses exceptions.
        executors: the removed executors.
        streaming: whether jobs of micro-batches are reported even if they do not fail.
        standing: the failures that stand.
        executions: supplies sources and targets of SQL executions.
        culprits: what failed in the SQL execution or group of a job.
        successes_matter: whether the success of a job may close an incident.
    """

    def __init__(
        self,
        queries: Queries,
        diagnostics: Diagnostics,
        executors: Executors,
        streaming: bool,
        standing: StandingFailures,
        executions: Executions,
        successes_matter: bool,
        culprits: Culprits,
    ) -> None:
        self._standing = standing
        self._executions = executions
        self._successes_matter = successes_matter
        self._culprits = culprits
        self.illegal = 0
        self.without_start = 0
        self._application_is_over = False
        self._queries = queries
        self._diagnostics = diagnostics
        self._executors = executors
        self._streaming = streaming
        self._running: OrderedDict[int, tuple[Origin, list[int]]] = OrderedDict()
        self._over: OrderedDict[int, None] = OrderedDict()

    def batch_started(self, record: BatchStarted) -> None:
        """Store the batch that a query processes; emit no event."""
        query = record.properties.get("sql.streaming.queryId")
        tags = job_tags(record.properties.get("spark.job.tags", ""))
        run = self._queries.of_query(query)
        note_batch(record.properties, run)
        if run is not None and client_of(tags.attributes):
            run.tags = run.tags or record.properties["spark.job.tags"]
        if query is not None and tags.session:
            self._queries.owns_session(query, tags.session)

    def started(self, record: JobStart) -> Iterable[Draft]:
        """Report the start of a job."""
        job_id = record.job_id
        if job_id in self._running or job_id in self._over:
            self.illegal += 1
            return ()
        origin = origin_of(record.properties, self._queries, self._executions)
        put(self._running, job_id, (origin, record.stages), _RUNNING)
        self._standing.started(job_id, origin.execution_id)
        if origin.execution_id is not None:
            self._executions.job_started(origin.execution_id, origin.attributes)
        if origin.is_streaming:
            note_batch(record.properties, origin.run)
            if not self._streaming:
                return ()
        body = f"{_name(job_id, origin)} started"
        started = _change(job_id, None, "RUNNING", record.time, body, _DEBUG, origin)
        started.is_routine = True
        return (started,)

    def ended(self, record: JobEnd) -> Iterable[Draft]:
        """Report that a job ended, unless another event reports the job's completion.

        A job is not reported if `stop()` of its query cancelled it, or if it finished without a recorded start.
        """
        job_id = record.job_id
        if job_id in self._over:
            # Spark cancels the running jobs after the application has ended; `application_ended` has already reported
            # them.
            self.illegal += not self._application_is_over
            return ()
        known = self._running.pop(job_id, None)
        origin = Origin() if known is None else known[0]
        put(self._over, job_id, None, _REMEMBERED)
        old = None if known is None else "RUNNING"
        if record.failure is None:
            return self._succeeded(record, old, origin)
        name = _name(job_id, origin)
        self._diagnostics.peaks = record.peaks or self._diagnostics.peaks
        diagnosis = self._executors.explain_job(self._diagnostics.of(record.failure))
        message = str(diagnosis.attributes["exception.message"])
        if diagnosis.cancelled:
            if not self._streaming and _was_stopped(origin, message):
                return ()
            body = f"{name} was cancelled: {diagnosis.summary}"
            cancelled = _change(job_id, old, "CANCELLED", record.time, body, Severity.INFO, origin)
            cancelled.attributes["spark.status.reason"] = message
            cancelled.culprit = self._culprits.of(job_id, origin.attributes)
            return (cancelled,)
        # The record of the job's start may be lost.
        self._standing.started(job_id, origin.execution_id)
        standing = StandingFailure(
            f"job {job_id}", f"{name} failed", diagnosis, record.time, work_of(origin.attributes)
        )
        self._standing.note(standing)
        if origin.run is not None:
            origin.run.failed_job = standing
        if origin.execution_id is not None:
            self._culprits.execution_failed(origin.execution_id, ("job", job_id))
        self._culprits.statement_failed(origin.attributes, ("job", job_id))
        culprit = self._culprits.of(job_id, origin.attributes)
        body = f"{name} went from {old or 'an unknown status'} to FAILED: {diagnosis.summary}"
        change = _change(job_id, old, "FAILED", record.time, body, Severity.INFO, origin)
        change.attributes["error.type"] = diagnosis.error_type
        change.culprit = culprit
        details = {
            "spark.job.id": job_id,
            "failure.will_retry": False,
            **origin.attributes,
            **diagnosis.attributes,
        }
        body = f"{name} failed: {diagnosis.summary}"
        severity = Severity.WARN if culprit is None else Severity.INFO
        failed = failure("job", (job_id,), body, severity, record.time, details)
        failed.culprit = culprit
        return change, failed

    def _succeeded(self, record: JobEnd, old: str | None, origin: Origin) -> Iterable[Draft]:
        # The shim holds back the successful jobs of micro-batches; the commit of their batch is the success.
        if self._standing.last is not None and not origin.is_streaming:
            self._standing.succeeded(work_of(origin.attributes), record.job_id, origin.execution_id)
        if old is None and not self._streaming:
            # A job without a recorded start may belong to a micro-batch. Jobs of micro-batches are not reported, so
            # only count it.
            self.without_start += 1
        elif self._streaming or not origin.is_streaming:
            body = f"{_name(record.job_id, origin)} finished"
            finished = _change(record.job_id, old, "FINISHED", record.time, body, _DEBUG, origin)
            finished.is_routine = not self._successes_matter
            return (finished,)
        return ()

    def of_stage(self, stage_id: int) -> int | None:
        """Return the running job that a stage belongs to; None if unknown."""
        return min((job_id for job_id, (_, stages) in self._running.items() if stage_id in stages), default=None)

    def stage_failed(self, stage_id: int) -> int | None:
        """Note that a stage failed for good, so that its job fails; return the job, or None if it is unknown."""
        job_id = self.of_stage(stage_id)
        execution_id = None if job_id is None else self._running[job_id][0].execution_id
        if job_id is not None and execution_id is not None:
            self._culprits.execution_failed(execution_id, ("job", job_id))
        if job_id is not None:
            self._culprits.statement_failed(self._running[job_id][0].attributes, ("job", job_id))
        return job_id

    def failed_in(self, execution_id: int) -> int | None:
        """Return a failed job of the SQL execution; None if none has failed. Ignore cancelled jobs."""
        key = self._culprits.in_execution(execution_id)
        return int(key[1]) if key is not None and key[0] == "job" else None

    def of_group(self, group: str) -> Origin | None:
        """Return the origin of the newest running job of a job group; None if no job of the group is running."""
        origins = (origin for origin, _ in reversed(self._running.values()))
        return next((one for one in origins if one.attributes.get("spark.job.group") == group), None)

    def running_titles(self) -> list[str]:
        """Return the names of the running jobs, except jobs of micro-batches."""
        return [_name(job_id, origin) for job_id, (origin, _) in self._running.items() if not origin.is_streaming]

    def application_ended(self, at: int) -> Iterator[Draft]:
        """Report the running jobs as cancelled, because Spark cancels them when it stops its scheduler.

        Jobs of micro-batches are not reported; the application's last event names their queries.

        Args:
            at: when the application ended; milliseconds since the epoch.
        """
        self._application_is_over = True
        for job_id, (origin, _) in self._running.items():
            put(self._over, job_id, None, _REMEMBERED)
            if not origin.is_streaming:
                body = f"{_name(job_id, origin)} was cancelled: its application ended while the job was running"
                yield _change(job_id, "RUNNING", "CANCELLED", at, body, Severity.INFO, origin)
        self._running.clear()


def _was_stopped(origin: Origin, reason: str) -> bool:
    """Return whether the query's `stop()` cancelled the job; Spark's message then contains the id of the run."""
    return origin.is_streaming and (origin.run is None or origin.run.run_id in reason)


def _name(job_id: int, origin: Origin) -> str:
    return f"job {job_id}{origin.clause}"


def _change(job_id: int, old: str | None, new: str, at: int, body: str, severity: Severity, origin: Origin) -> Draft:
    # This function runs for every job, so it copies the attributes only once, unlike `status_change`.
    attributes: dict[str, AttributeValue] = {"spark.entity": "job", "spark.job.id": job_id}
    if old is not None:
        attributes["spark.status.old"] = old
    attributes["spark.status.new"] = new
    attributes.update(origin.attributes)
    key = ("job", job_id, new)
    return Draft("JobStatusChangeEvent", "spark.job", key, body, severity, at, attributes)
