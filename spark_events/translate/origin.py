"""Origin of a job or a stage (query, batch, description), read from its local properties."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from spark_events.event import AttributeValue
from spark_events.translate.draft import present
from spark_events.translate.executions import Executions
from spark_events.translate.queries import Queries, Run

__all__ = ["Origin", "bracketed", "in_brackets", "user_call_site"]

_DESCRIPTION_LIMIT = 120
#: Local properties that become attributes, and the names of these attributes.
_CARRIED = (
    ("spark.job.description", "spark.job.description"),
    ("spark.jobGroup.id", "spark.job.group"),
    ("callSite.short", "spark.job.call_site"),
    ("spark.sql.execution.id", "spark.sql.execution.id"),
)


#: Call site that Spark records for DataFrame calls from Python. Py4J calls Spark through the JDK's reflection, so the
#: call site names no user code.
_REFLECTION = re.compile(r" at (?:NativeMethodAccessorImpl|DirectMethodHandleAccessor)\.java:-?\d+$")
#: Call site of the stages that adaptive execution submits in a thread of Spark.
_SPARKS_THREAD = re.compile(r"^\$anonfun\$withThreadLocalCaptured\$\d+ at (?:CompletableFuture|FutureTask)\.java:\d+$")


@functools.lru_cache(maxsize=256)
def user_call_site(call_site: str) -> str:
    """Return the part of a call site that a user knows.

    For example, ``csv at NativeMethodAccessorImpl.java:0`` becomes ``csv``. The call site of a thread of Spark becomes
    an empty string.
    """
    return _SPARKS_THREAD.sub("", _REFLECTION.sub("", call_site))


def in_brackets(stage_name: str) -> str:
    """Return a stage's name in square brackets; empty if Spark named the stage after its own thread."""
    name = user_call_site(stage_name)
    return f" [{name}]" if name else ""


@functools.lru_cache(maxsize=256)
def bracketed(description: str) -> str:
    """Return the description on one line, in brackets.

    The result is cached, because an application has few different descriptions.
    """
    line = " ".join(user_call_site(description).split())[:_DESCRIPTION_LIMIT]
    return f" ({line})" if line else ""


class Origin:
    """Origin of a job or a stage: its query and batch, or its description.

    Args:
        properties: the local properties that the shim sends; secrets are redacted.
        queries: to find the query.
        executions: to find the sources and targets of the SQL execution; None omits them.

    Attributes:
        is_streaming: whether the job or stage belongs to a micro-batch.
    """

    __slots__ = ("_attributes", "_batch", "_clause", "_executions", "_properties", "_run", "is_streaming")

    def __init__(self, properties: Mapping[str, str], queries: Queries, executions: Executions | None = None) -> None:
        self._properties = properties
        self._executions = executions
        self.is_streaming = "sql.streaming.queryId" in properties
        self._run: Run | None = None
        self._batch: int | None = None
        if self.is_streaming:
            self._run = queries.of_query(properties["sql.streaming.queryId"])
            batch = properties.get("streaming.sql.batchId", "")
            self._batch = int(batch) if batch.isdecimal() and len(batch) < 19 else None
        # Compute the attributes once; the events for a job's start, completion and failure share them.
        self._clause: str | None = None
        self._attributes: dict[str, AttributeValue] | None = None

    def was_stopped(self, reason: str) -> bool:
        """Return whether the query's `stop()` cancelled the job.

        In this case, Spark's message contains the id of the run.
        """
        return self.is_streaming and (self._run is None or self._run.run_id in reason)

    @property
    def execution_id(self) -> int | None:
        """Id of the SQL execution; None outside SQL."""
        execution = self._properties.get("spark.sql.execution.id", "")
        return int(execution) if execution.isdecimal() and len(execution) < 19 else None

    def note_batch(self) -> None:
        """Store the query's current batch, and the query's policy for several watermarks."""
        if self._run is not None and self._batch is not None:
            self._run.batch_begins(self._batch)
            policy = self._properties.get("spark.sql.streaming.multipleWatermarkPolicy")
            if policy is not None:
                self._run.watermark_policy = policy.lower()

    @property
    def clause(self) -> str:
        """The origin in brackets, to append to a name in an event's body."""
        if self._clause is None:
            self._clause = self._make_clause()
        return self._clause

    def _make_clause(self) -> str:
        if self._batch is not None:
            title = self._run.title if self._run is not None else self._properties["sql.streaming.queryId"][:8]
            return f" (query '{title}', batch {self._batch})"
        properties = self._properties
        given = bracketed(properties.get("spark.job.description") or properties.get("callSite.short") or "")
        execution = properties.get("spark.sql.execution.id")
        if given or execution is None or self._executions is None:
            return given
        return bracketed(self._executions.description(execution))

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        """The attributes of this job's or stage's events."""
        if self._attributes is None:
            properties = self._properties
            self._attributes = {name: properties[key] for key, name in _CARRIED if key in properties}
            execution = properties.get("spark.sql.execution.id")
            if execution is not None and self._executions is not None:
                self._attributes |= self._executions.attributes(execution)
            if self._run is not None:
                self._attributes.update(present(self._run.scope_variables))
            elif self.is_streaming:
                self._attributes["spark.streaming.query.id"] = properties["sql.streaming.queryId"]
            if self._batch is not None:
                self._attributes["spark.batch.id"] = self._batch
        return self._attributes
