"""Origin of a job or a stage (query, batch, description), read from its local properties."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from spark_events.event import AttributeValue
from spark_events.translate.call_sites import described, user_call_site
from spark_events.translate.clients import with_client
from spark_events.translate.draft import present
from spark_events.translate.executions import Executions
from spark_events.translate.job_tags import job_tags
from spark_events.translate.pipelines import FLOW
from spark_events.translate.queries import Queries, Run

__all__ = ["Origin", "bracketed", "in_brackets", "note_batch", "origin_of"]

#: Local properties that become attributes, and the names of these attributes.
_CARRIED = (
    ("spark.job.description", "spark.job.description"),
    ("spark.jobGroup.id", "spark.job.group"),
    ("callSite.short", "spark.job.call_site"),
    ("spark.sql.execution.id", "spark.sql.execution.id"),
    ("spark.openlineage.context", "openlineage.context"),
)


def in_brackets(stage_name: str) -> str:
    """Return a stage's name in square brackets; empty if Spark named the stage after its own thread."""
    name = user_call_site(stage_name)
    return f" [{name}]" if name else ""


@functools.lru_cache(maxsize=256)
def bracketed(description: str) -> str:
    """Return the description on one line, in brackets."""
    line = described(description)
    return f" ({line})" if line else ""


# gc=False: origins are never part of a reference cycle.
class Origin(msgspec.Struct, frozen=True, gc=False):
    """Origin of a job or a stage: its query and batch, or its description.

    Attributes:
        is_streaming: whether the job or stage belongs to a micro-batch.
        run: the run of the query; None outside micro-batches, or if the query is unknown.
        execution_id: id of the SQL execution; None outside SQL.
        clause: the origin in brackets, to append to a name in an event's body.
        attributes: the attributes of the job's or stage's events; do not change this dictionary.
    """

    is_streaming: bool = False
    run: Run | None = None
    execution_id: int | None = None
    clause: str = ""
    attributes: dict[str, AttributeValue] = {}

    def beside(self, stage_name: str) -> str:
        """Return the clause for a body with the stage's name, without the description if that contains the name."""
        name = user_call_site(stage_name)
        return with_client(name, self.attributes).removeprefix(name) if name and name in self.clause else self.clause


def origin_of(properties: Mapping[str, str], queries: Queries, executions: Executions) -> Origin:
    """Return the origin of a job or a stage.

    Args:
        properties: the local properties that the shim sends; secrets are redacted.
        queries: to find the query.
        executions: to find the statement, and the description, sources and targets of the SQL execution.
    """
    get = properties.get
    attributes: dict[str, AttributeValue] = {}
    # A comprehension would call a function for each job before Python 3.12.
    for key, name in _CARRIED:
        if key in properties:
            attributes[name] = properties[key]
    execution, query = get("spark.sql.execution.id"), get("sql.streaming.queryId")
    clause = bracketed(get("spark.job.description") or get("callSite.short") or "")
    if tags := get("spark.job.tags"):
        found = job_tags(tags)
        attributes |= found.attributes
        query = query or queries.of_session(found.session)
    if "spark.jobGroup.id" in properties:
        attributes |= executions.statement(properties["spark.jobGroup.id"])
    if execution is not None and (known := executions.attributes(execution)):
        attributes |= known
        if FLOW in attributes:
            # Spark describes all work of a pipeline by the text of the command that runs it.
            attributes["spark.job.description"] = attributes["spark.sql.description"]
            attributes.pop("spark.job.call_site", None)
            clause = f" (flow '{attributes[FLOW]}')"
        clause = clause or bracketed(executions.description(execution))
    run = None if query is None else queries.of_query(query)
    if query is not None:
        attributes |= {"spark.streaming.query.id": query} if run is None else present(run.scope_variables)
        batch = _number(get("streaming.sql.batchId"))
        if batch is None and run is not None:
            batch = run.batches.under_way
        clause = f" (query '{query[:8] if run is None else run.title}'{'' if batch is None else f', batch {batch}'})"
        if batch is not None:
            attributes["spark.batch.id"] = batch
    clause = with_client(clause, attributes)
    execution_id = None if execution is None else _number(execution)
    return Origin(query is not None, run, execution_id, clause, attributes)


def note_batch(properties: Mapping[str, str], run: Run | None) -> None:
    """Store the query's current batch, and the query's policy for several watermarks."""
    batch = _number(properties.get("streaming.sql.batchId"))
    if run is not None and batch is not None:
        run.batches.begin(batch)
        policy = properties.get("spark.sql.streaming.multipleWatermarkPolicy")
        if policy is not None:
            run.watermark_policy = policy.lower()


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 19 else None
