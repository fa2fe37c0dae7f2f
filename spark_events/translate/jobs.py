"""Spark jobs: origin, completion, and cause of failure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from spark_events.bridge.records import BatchStarted, JobEnd, JobStart
from spark_events.event import AttributeValue, Severity
from spark_events.translate.bounded import put
from spark_events.translate.draft import Draft, capitalized
from spark_events.translate.entities import failure
from spark_events.translate.executions import Executions
from spark_events.translate.executors import Executors
from spark_events.translate.failures import Diagnostics
from spark_events.translate.last_failure import LastFailure
from spark_events.translate.origin import Origin, note_batch, origin_of
from spark_events.translate.queries import Queries

__all__ = ["Jobs"]

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
        last_failure: the failure that may explain why the application ended.
        executions: supplies sources and targets of SQL executions.
    """

    def __init__(
        self,
        queries: Queries,
        diagnostics: Diagnostics,
        executors: Executors,
        streaming: bool,
        last_failure: LastFailure,
        executions: Executions,
    ) -> None:
        self._last_failure = last_failure
        self._executions = executions
        self._failed_executions: OrderedDict[int, None] = OrderedDict()
        self.illegal = 0
        self.without_start = 0
        self._application_is_over = False
        self.last_failed: int | None = None
        self._queries = queries
        self._diagnostics = diagnostics
        self._executors = executors
        self._streaming = streaming
        self._running: OrderedDict[int, Origin] = OrderedDict()
        self._over: OrderedDict[int, None] = OrderedDict()

    def batch_started(self, record: BatchStarted) -> None:
        """Store the batch that a query processes; emit no event."""
        note_batch(record.properties, self._queries.of_query(record.properties.get("sql.streaming.queryId")))

    def started(self, record: JobStart) -> Iterable[Draft]:
        """Report the start of a job."""
        job_id = record.job_id
        if job_id in self._running or job_id in self._over:
            self.illegal += 1
            return ()
        origin = origin_of(record.properties, self._queries, self._executions)
        put(self._running, job_id, origin, _RUNNING)
        self._last_failure.started(job_id, origin.execution_id)
        if origin.is_streaming:
            note_batch(record.properties, origin.run)
            if not self._streaming:
                return ()
        body = f"{capitalized(_name(job_id, origin))} started"
        return (_change(job_id, None, "RUNNING", record.time, body, Severity.DEBUG, origin),)

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
        origin = known or Origin()
        put(self._over, job_id, None, _REMEMBERED)
        old = None if known is None else "RUNNING"
        if record.failure is None:
            last = self._last_failure
            if (last.title or self.last_failed is not None) and last.succeeded(job_id, origin.execution_id):
                self.last_failed = None
            if known is None and not self._streaming:
                # A job without a recorded start may belong to a micro-batch. Jobs of micro-batches are not reported, so
                # only count it.
                self.without_start += 1
            elif self._streaming or not origin.is_streaming:
                body = f"{capitalized(_name(job_id, origin))} finished"
                return (_change(job_id, old, "FINISHED", record.time, body, Severity.DEBUG, origin),)
            return ()
        name = _name(job_id, origin)
        diagnosis = self._executors.explain_job(self._diagnostics.of(record.failure))
        message = str(diagnosis.attributes["exception.message"])
        if diagnosis.cancelled and not self._streaming and _was_stopped(origin, message):
            return ()
        self.last_failed = None if diagnosis.cancelled else job_id
        how = "was cancelled" if diagnosis.cancelled else "failed"
        # The record of the job's start may be lost.
        self._last_failure.started(job_id, origin.execution_id)
        self._last_failure.note(f"job {job_id}", diagnosis, f"{name} {how}")
        if not diagnosis.cancelled and origin.execution_id is not None:
            put(self._failed_executions, origin.execution_id, None, _REMEMBERED)
        new, severity = ("CANCELLED", Severity.WARN) if diagnosis.cancelled else ("FAILED", Severity.ERROR)
        body = f"{capitalized(name)} went from {old or 'an unknown status'} to {new}: {diagnosis.summary}"
        change = _change(job_id, old, new, record.time, body, severity, origin)
        change.attributes["error.type"] = diagnosis.error_type
        details = {
            "spark.job.id": job_id,
            "failure.will_retry": False,
            **origin.attributes,
            **diagnosis.attributes,
        }
        body = f"{capitalized(name)} {how}: {diagnosis.summary}"
        return change, failure("job", (job_id,), body, severity, record.time, details)

    def has_failed_in(self, execution_id: int) -> bool:
        """Return whether a job of the SQL execution failed; ignore cancelled jobs."""
        return execution_id in self._failed_executions

    def runs_in(self, execution_id: int) -> bool:
        """Return whether a job of the SQL execution is running."""
        return any(origin.execution_id == execution_id for origin in self._running.values())

    def running_titles(self) -> list[str]:
        """Return the names of the running jobs, except jobs of micro-batches."""
        return [_name(job_id, origin) for job_id, origin in self._running.items() if not origin.is_streaming]

    def application_ended(self, at: int) -> Iterator[Draft]:
        """Report the running jobs as cancelled, because Spark cancels them when it stops its scheduler.

        Jobs of micro-batches are not reported; the application's last event names their queries.

        Args:
            at: when the application ended; milliseconds since the epoch.
        """
        self._application_is_over = True
        for job_id, origin in self._running.items():
            put(self._over, job_id, None, _REMEMBERED)
            if not origin.is_streaming:
                name = capitalized(_name(job_id, origin))
                body = f"{name} was cancelled: its application ended while the job was running"
                yield _change(job_id, "RUNNING", "CANCELLED", at, body, Severity.WARN, origin)
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
    return Draft("JobStatusChangeEvent", "spark.job", key, body, severity, at, attributes, is_routine=new == "FINISHED")
