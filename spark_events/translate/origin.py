"""What a job or a stage works for, as its local properties tell."""

from __future__ import annotations

from collections.abc import Mapping

from spark_events.event import AttributeValue
from spark_events.translate.queries import Queries

__all__ = ["Origin"]

_DESCRIPTION_LIMIT = 120


class Origin:
    """The query and batch, or the description, behind a job or a stage.

    Args:
        properties: the local properties that the shim carries, redacted.
        queries: to name the query.
    """

    __slots__ = ("_batch", "_properties", "_run")

    def __init__(self, properties: Mapping[str, str], queries: Queries) -> None:
        self._properties = properties
        self._run = queries.of_query(properties.get("sql.streaming.queryId"))
        batch = properties.get("streaming.sql.batchId", "")
        self._batch = int(batch) if batch.isdecimal() and len(batch) < 19 else None

    @property
    def is_streaming(self) -> bool:
        """Whether it belongs to a micro-batch."""
        return "sql.streaming.queryId" in self._properties

    def note_batch(self) -> None:
        """Tells the query which batch it is at, and its policy of several watermarks."""
        if self._run is not None and self._batch is not None:
            self._run.batch_begins(self._batch)
            policy = self._properties.get("spark.sql.streaming.multipleWatermarkPolicy")
            if policy is not None:
                self._run.watermark_policy = policy.lower()

    @property
    def clause(self) -> str:
        """For sentences: what it works for, in brackets."""
        if self._batch is not None:
            title = self._run.title if self._run is not None else self._properties["sql.streaming.queryId"][:8]
            return f" (query '{title}', batch {self._batch})"
        description = self._properties.get("spark.job.description") or self._properties.get("callSite.short")
        return f" ({' '.join(description.split())[:_DESCRIPTION_LIMIT]})" if description else ""

    @property
    def attributes(self) -> dict[str, AttributeValue | None]:
        """What an event about it carries."""
        query_id = self._properties.get("sql.streaming.queryId")
        query: dict[str, AttributeValue | None] = {}
        if self._run is not None:
            query = self._run.scope_variables
        elif query_id is not None:
            query = {"spark.streaming.query.id": query_id}
        return {
            "spark.job.description": self._properties.get("spark.job.description"),
            "spark.job.group": self._properties.get("spark.jobGroup.id"),
            "spark.job.call_site": self._properties.get("callSite.short"),
            "spark.sql.execution.id": self._properties.get("spark.sql.execution.id"),
            **query,
            "spark.streaming.batch.id": self._batch,
        }
