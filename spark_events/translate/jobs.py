"""Spark jobs: what a job belongs to, and why it failed."""

from __future__ import annotations

from collections.abc import Iterator

from spark_events.bridge.records import JobEnd, JobStart
from spark_events.event import AttributeValue, Severity
from spark_events.translate.draft import Draft, present
from spark_events.translate.failures import diagnose
from spark_events.translate.queries import Queries

__all__ = ["Jobs"]


class Jobs:
    """The jobs that run, by their number.

    Args:
        queries: to name the query that a job works for.
    """

    def __init__(self, queries: Queries) -> None:
        self.last_failed: int | None = None
        self._queries = queries
        self._running: dict[int, JobStart] = {}

    def started(self, record: JobStart) -> Iterator[Draft]:
        """A job runs; only what it belongs to is remembered."""
        self._running[record.job_id] = record
        query = self._queries.find(record.properties.get("sql.streaming.queryId", ""))
        batch = record.properties.get("streaming.sql.batchId", "")
        if query is not None and batch.isdecimal():
            query.last_batch_with_jobs = int(batch)
        yield from ()

    def ended(self, record: JobEnd) -> Iterator[Draft]:
        """A job is over; one that failed is reported, unless its query had been told to stop."""
        start = self._running.pop(record.job_id, None)
        properties = start.properties if start is not None else {}
        if record.failure is None:
            self.last_failed = None
            return
        diagnosis = diagnose(record.failure)
        query_id = properties.get("sql.streaming.queryId")
        if diagnosis.cancelled and query_id is not None:
            return
        self.last_failed = None if diagnosis.cancelled else record.job_id
        what = f"Job {record.job_id}"
        if batch := properties.get("streaming.sql.batchId"):
            query = self._queries.find(query_id or "")
            what += f" of query '{query.title if query else query_id}', batch {batch},"
        elif description := properties.get("spark.job.description") or properties.get("callSite.short"):
            what += f" ({' '.join(description.split())[:120]})"
        verb = "was cancelled" if diagnosis.cancelled else "failed"
        yield Draft(
            name="JobFailureEvent",
            class_scope="spark.job",
            key=("job", record.job_id),
            body=f"{what} {verb}: {diagnosis.summary}",
            severity=Severity.WARN if diagnosis.cancelled else Severity.ERROR,
            observed_ts_millis=record.time,
            attributes=present(
                {
                    "spark.entity": "job",
                    "spark.job.id": record.job_id,
                    "spark.job.description": properties.get("spark.job.description"),
                    "spark.job.group": properties.get("spark.jobGroup.id"),
                    "spark.sql.execution.id": properties.get("spark.sql.execution.id"),
                    "spark.retry": False,
                    **self._query_variables(query_id, properties),
                    **diagnosis.attributes,
                }
            ),
        )

    def _query_variables(self, query_id: str | None, properties: dict[str, str]) -> dict[str, AttributeValue | None]:
        if query_id is None:
            return {}
        query = self._queries.find(query_id)
        batch = properties.get("streaming.sql.batchId", "")
        known = query.scope_variables if query is not None else {"spark.streaming.query.id": query_id}
        return {**known, "spark.streaming.batch.id": int(batch) if batch.isdecimal() else None}
