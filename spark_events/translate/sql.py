"""SQL executions that fail in the driver without a failed job.

Examples are analysis errors, an output path that already exists, a broadcast timeout, and a driver that runs out of
memory in ``collect()``.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator

from spark_events.bridge.records import SqlExecutionEnd, SqlExecutionStart
from spark_events.event import Severity
from spark_events.translate.bounded import put
from spark_events.translate.draft import Draft
from spark_events.translate.entities import failure
from spark_events.translate.failures import Diagnosis, Diagnostics
from spark_events.translate.jobs import Jobs
from spark_events.translate.last_failure import LastFailure
from spark_events.translate.root_causes import ABORTED

__all__ = ["SqlExecutions"]

_REMEMBERED = 1_024
_DESCRIPTION_LIMIT = 120
#: Maximum time in milliseconds that a failure waits for the ends of its jobs; the record of an end may be lost.
_PATIENCE = 60_000
#: Description that Spark sets on the executions of a micro-batch.
_MICRO_BATCH = re.compile(r"runId = [0-9a-f-]{36}(?:<br/>|\s)+batch = ")
_OUT_OF_MEMORY = "java.lang.OutOfMemoryError"


class SqlExecutions:
    """The SQL executions that failed.

    Args:
        jobs: to find out which executions failed because of a job.
        diagnostics: analyses exceptions.
        last_failure: the failure that may explain why the application ended.

    Attributes:
        held: the failures that wait for the ends of their jobs, by execution id.
    """

    def __init__(self, jobs: Jobs, diagnostics: Diagnostics, last_failure: LastFailure) -> None:
        self._jobs = jobs
        self._diagnostics = diagnostics
        self._last_failure = last_failure
        self._failed: OrderedDict[int, None] = OrderedDict()
        self.held: dict[int, tuple[SqlExecutionEnd, Diagnosis]] = {}

    def started(self, record: SqlExecutionStart) -> None:
        """Note the start of an execution; emit no event."""
        self._last_failure.started(execution=record.execution_id)

    @property
    def held_record(self) -> int | None:
        """Number of the oldest record with a held failure."""
        return min((record.seq for record, _ in self.held.values()), default=0) or None

    @property
    def next_deadline(self) -> int | None:
        """Time at which a held failure is reported at the latest, in milliseconds since the epoch."""
        return min((record.time + _PATIENCE for record, _ in self.held.values()), default=None)

    def ended(self, record: SqlExecutionEnd) -> Iterator[Draft]:
        """Handle the completion of an execution: a failure, or the first success after a failure.

        One failure produces one event. Therefore, a failed execution is not reported in three cases: its job failed
        (the job's event reports the failure), an execution nested in it failed, or it belongs to a micro-batch (the
        query's event reports the failure).
        """
        if record.error is None:
            self._last_failure.succeeded(execution=record.execution_id)
            return
        root = record.execution_id if record.root_id is None else record.root_id
        if root in self._failed:
            return
        put(self._failed, root, None, _REMEMBERED)
        if _MICRO_BATCH.search(record.description or ""):
            return
        diagnosis = self._diagnostics.of_text(record.error)
        if diagnosis.cancelled or record.error.startswith(ABORTED):
            # This message shows that a job failed; the job's own event reports the failure.
            return
        self.held[record.execution_id] = record, diagnosis
        yield from self.flush(record.time)

    def flush(self, now: int | None = None) -> Iterator[Draft]:
        """Report the held executions that no longer wait for a job, except those with a failed job.

        Two Spark threads post the completion of a job and the completion of its execution, so the order varies.

        Args:
            now: milliseconds since the epoch; None: no more jobs will end.
        """
        for execution_id, (record, diagnosis) in list(self.held.items()):
            if now is not None and now < record.time + _PATIENCE and self._jobs.runs_in(execution_id):
                continue
            del self.held[execution_id]
            if not self._jobs.has_failed_in(execution_id):
                yield self._draft(record, self._last_failure.named_alike(diagnosis))

    def _draft(self, record: SqlExecutionEnd, diagnosis: Diagnosis) -> Draft:
        title = f"SQL execution {record.execution_id}"
        about = " ".join((record.description or "").split())[:_DESCRIPTION_LIMIT]
        name = f"{title}{f' ({about})' if about else ''}"
        self._last_failure.started(execution=record.execution_id)
        self._last_failure.note(title, diagnosis, f"{name} failed")
        details = {
            "spark.sql.execution.id": str(record.execution_id),
            "spark.job.description": record.description or None,
            "failure.will_retry": False,
            **diagnosis.attributes,
        }
        body = f"{name} failed in the driver: {diagnosis.summary}"
        severity = Severity.ERROR if diagnosis.error_type == _OUT_OF_MEMORY else Severity.WARN
        return failure("sql", (record.execution_id,), body, severity, record.time, details)
