"""SQL executions that failed.

Examples of failures in the driver, without a failed job, are analysis errors, an output path that already exists, a
broadcast timeout, and a driver that runs out of memory in ``collect()``.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator

from spark_events.event import Severity
from spark_events.records.types import SqlExecutionEnd, SqlExecutionStart
from spark_events.translate.bounded import put
from spark_events.translate.call_sites import described
from spark_events.translate.clients import with_client
from spark_events.translate.culprits import Culprits
from spark_events.translate.draft import Draft
from spark_events.translate.entities import failure
from spark_events.translate.executions import Executions
from spark_events.translate.failures import Diagnosis, Diagnostics
from spark_events.translate.jobs import Jobs
from spark_events.translate.pipelines import FLOW
from spark_events.translate.root_causes import ABORTED
from spark_events.translate.standing_failures import StandingFailure, StandingFailures, work_of

__all__ = ["SqlExecutions", "was_interrupted"]

_REMEMBERED = 1_024
#: Attributes of an execution that are those of its jobs, too.
_OF_JOBS = (
    "spark.connect.",
    "spark.job.",
    "spark.thriftserver.",
    "spark.sql.statement",
    "spark.pipeline.",
    "openlineage.",
)
#: Error of an execution whose thread was interrupted, which is how Spark and programs cancel a statement.
_INTERRUPTED = re.compile(r"java\.(?:lang\.InterruptedException|nio\.channels\.ClosedByInterruptException)\b")
#: Description that Spark sets on the executions of a micro-batch.
_MICRO_BATCH = re.compile(r"runId = [0-9a-f-]{36}(?:<br/>|\s)+batch = ")


def was_interrupted(diagnosis: Diagnosis) -> bool:
    """Return whether the thread of a statement was interrupted, so that the statement was cancelled."""
    return _INTERRUPTED.match(diagnosis.root_cause) is not None


class SqlExecutions:
    """The SQL executions that failed.

    Args:
        jobs: to find out which executions failed because of a job.
        executions: the attributes of the executions.
        diagnostics: analyses exceptions.
        standing: the failures that stand.
        culprits: receives the failed executions.
    """

    def __init__(
        self,
        jobs: Jobs,
        executions: Executions,
        diagnostics: Diagnostics,
        standing: StandingFailures,
        culprits: Culprits,
    ) -> None:
        self._executions = executions
        self._jobs = jobs
        self._culprits = culprits
        self._diagnostics = diagnostics
        self._standing = standing
        self._failed: OrderedDict[int, None] = OrderedDict()

    def started(self, record: SqlExecutionStart) -> None:
        """Note the start of an execution; emit no event."""
        self._standing.started(execution=record.execution_id)

    def ended(self, record: SqlExecutionEnd) -> Iterator[Draft]:
        """Handle the completion of an execution: a failure, or the first success of a job group after a failure.

        A failed execution is not reported in three cases: an execution nested in it failed, it belongs to a micro-batch
        (the query's event reports the failure), or it was cancelled or interrupted.
        """
        if record.error is None:
            if self._standing.last is not None:
                known = self._executions.attributes(record.execution_id)
                self._standing.succeeded(work_of(known), execution=record.execution_id)
            return
        root = record.execution_id if record.root_id is None else record.root_id
        if root in self._failed:
            return
        put(self._failed, root, None, _REMEMBERED)
        if _MICRO_BATCH.search(record.description or ""):
            return
        diagnosis = self._diagnostics.of_text(record.error)
        if diagnosis.cancelled or _INTERRUPTED.match(record.error) or was_interrupted(diagnosis):
            return
        # Spark reports the failed stage before the execution, but the end of its job may follow the execution's.
        job_id = self._jobs.failed_in(record.execution_id)
        is_of_job = job_id is not None or record.error.startswith(ABORTED)
        known = self._executions.attributes(record.execution_id)
        for attributes in (known, self._executions.operation(record.execution_id)):
            self._culprits.statement_failed(attributes, ("sql", record.execution_id))
        if "spark.streaming.query.id" in known:
            # It runs in the foreachBatch of a Spark Connect client.
            return
        if not is_of_job:
            self._culprits.execution_failed(record.execution_id, ("sql", record.execution_id))
        yield self._draft(record, self._standing.named_alike(diagnosis), job_id, is_of_job)

    def _draft(self, record: SqlExecutionEnd, diagnosis: Diagnosis, job_id: int | None, is_of_job: bool) -> Draft:
        title, known = f"SQL execution {record.execution_id}", self._executions.attributes(record.execution_id)
        of_flow = self._executions.description(record.execution_id) if FLOW in known else None
        about = described(of_flow or record.description or "")
        name = with_client(f"{title}{f' ({about})' if about else ''}", known)
        if not is_of_job:
            self._standing.started(execution=record.execution_id)
            self._standing.note(StandingFailure(title, f"{name} failed", diagnosis, record.time, work_of(known)))
        details = {
            **{name: value for name, value in known.items() if name.startswith(_OF_JOBS)},
            "spark.sql.execution.id": str(record.execution_id),
            "spark.job.id": job_id,
            "spark.job.description": of_flow or record.description or None,
            "failure.will_retry": False,
            **diagnosis.attributes,
        }
        where = f"because its job {job_id} failed" if job_id is not None else "because a job failed"
        body = f"{name} failed {where if is_of_job else 'in the driver'}: {diagnosis.summary}"
        severity = Severity.INFO if is_of_job else Severity.WARN
        return failure("sql", (record.execution_id,), body, severity, record.time, details)
