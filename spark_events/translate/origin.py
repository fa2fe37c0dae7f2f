"""What a job or a stage works for, as its local properties tell."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from spark_events.event import AttributeValue
from spark_events.translate.draft import present
from spark_events.translate.queries import Queries

__all__ = ["Origin"]

_DESCRIPTION_LIMIT = 120
#: Local properties that become attributes, and as which.
_CARRIED = (
    ("spark.job.description", "spark.job.description"),
    ("spark.jobGroup.id", "spark.job.group"),
    ("callSite.short", "spark.job.call_site"),
    ("spark.sql.execution.id", "spark.sql.execution.id"),
)


@functools.lru_cache(maxsize=256)
def _bracketed(description: str) -> str:
    """One line of it; the jobs of an application mostly have few descriptions."""
    return f" ({' '.join(description.split())[:_DESCRIPTION_LIMIT]})" if description else ""


class Origin:
    """The query and batch, or the description, behind a job or a stage.

    Args:
        properties: the local properties that the shim carries, redacted.
        queries: to name the query.
    """

    __slots__ = ("_attributes", "_batch", "_clause", "_properties", "_run")

    def __init__(self, properties: Mapping[str, str], queries: Queries) -> None:
        self._properties = properties
        self._run = queries.of_query(properties.get("sql.streaming.queryId"))
        batch = properties.get("streaming.sql.batchId", "")
        self._batch = int(batch) if batch.isdecimal() and len(batch) < 19 else None
        # Made when they are asked for first, then kept: a start, its end and a failure share them.
        self._clause: str | None = None
        self._attributes: dict[str, AttributeValue] | None = None

    @property
    def is_streaming(self) -> bool:
        """Whether it belongs to a micro-batch."""
        return "sql.streaming.queryId" in self._properties

    def was_stopped(self, reason: str) -> bool:
        """Whether a job was cancelled because its query was told to stop: Spark names the run, the job's group."""
        return self.is_streaming and (self._run is None or self._run.run_id in reason)

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
        if self._clause is None:
            self._clause = self._make_clause()
        return self._clause

    def _make_clause(self) -> str:
        if self._batch is not None:
            title = self._run.title if self._run is not None else self._properties["sql.streaming.queryId"][:8]
            return f" (query '{title}', batch {self._batch})"
        return _bracketed(self._properties.get("spark.job.description") or self._properties.get("callSite.short") or "")

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        """What an event about it carries."""
        if self._attributes is None:
            properties = self._properties
            self._attributes = {name: properties[key] for key, name in _CARRIED if key in properties}
            if self._run is not None:
                self._attributes.update(present(self._run.scope_variables))
            elif self.is_streaming:
                self._attributes["spark.streaming.query.id"] = properties["sql.streaming.queryId"]
            if self._batch is not None:
                self._attributes["spark.streaming.batch.id"] = self._batch
        return self._attributes
