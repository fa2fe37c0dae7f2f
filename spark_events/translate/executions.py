"""Descriptions, sources and targets of SQL executions. Events of jobs and stages contain them as attributes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from spark_events.event import AttributeValue
from spark_events.records.types import SqlExecutionStart, StatementStarted
from spark_events.translate.bounded import put
from spark_events.translate.draft import present
from spark_events.translate.job_tags import job_tags
from spark_events.translate.pipelines import FLOW, Pipelines, flow_of
from spark_events.translate.queries import Queries

__all__ = ["Executions", "statement_attributes"]

_REMEMBERED = 1_024
_LIMIT = 4_096
_OPERATION = "spark.connect.operation_id"
#: Attributes of jobs that the start of their execution lacks: the context on all versions, the group before Spark 4.0.
_OF_JOBS = ("spark.job.group", "openlineage.context")


class Executions:
    """The attributes of the latest SQL executions, by execution id.

    Args:
        queries: to find the query that an execution belongs to.
        pipelines: to find the flow of a pipeline that an execution runs.
    """

    def __init__(self, queries: Queries, pipelines: Pipelines) -> None:
        self._queries = queries
        self._pipelines = pipelines
        self._statements: OrderedDict[str, dict[str, AttributeValue]] = OrderedDict()
        self._known: OrderedDict[str, dict[str, AttributeValue]] = OrderedDict()
        self._roots: OrderedDict[str, str] = OrderedDict()
        self._operations: OrderedDict[str, AttributeValue] = OrderedDict()

    def started(self, record: SqlExecutionStart) -> None:
        """Remember an execution; emit no event."""
        tags = job_tags(record.tags)
        if (operation := tags.attributes.get(_OPERATION)) is not None:
            put(self._operations, str(record.execution_id), operation, _REMEMBERED)
        details: dict[str, AttributeValue | None] = {
            "spark.sql.description": (record.description or "")[:_LIMIT] or None,
            "spark.sql.reads": _listed(record.reads),
            "spark.sql.writes": _listed(record.writes),
            "spark.job.group": record.group,
            **(self._described(record.description) if record.group is None else self.statement(record.group)),
            **tags.attributes,
        }
        if flow := self._pipelines.of_execution(record.tags, record.writes) or flow_of(self.attributes(record.root_id)):
            details |= {**flow, "spark.sql.description": f"flow {flow[FLOW]}"}
            # Only a nested execution names the table that a flow writes.
            self.attributes(record.root_id).update(flow)
        if (query := self._queries.of_session(tags.session)) is not None:
            run = self._queries.of_query(query)
            details |= {"spark.streaming.query.id": query} if run is None else run.scope_variables
        put(self._known, str(record.execution_id), present(details), _REMEMBERED)
        if record.root_id not in (None, record.execution_id):
            put(self._roots, str(record.execution_id), str(record.root_id), _REMEMBERED)

    def job_started(self, execution_id: object, attributes: Mapping[str, AttributeValue]) -> None:
        """Add what only a job knows about its execution, and about the execution in which that one is nested."""
        found = {name: attributes[name] for name in _OF_JOBS if name in attributes}
        for number in (execution_id, self._roots.get(str(execution_id))) if found else ():
            known = self.attributes(number)
            known.update({name: value for name, value in found.items() if name not in known})

    def statement_started(self, record: StatementStarted) -> None:
        """Remember a statement of the Thrift server."""
        put(self._statements, record.statement_id, present(statement_attributes(record)), _REMEMBERED)

    def statement(self, group: object) -> dict[str, AttributeValue]:
        """Return the attributes of the statement whose jobs have a job group; empty for other groups."""
        return self._statements.get(str(group), {})

    def _described(self, description: str | None) -> dict[str, AttributeValue]:
        """Return the attributes of the statement with this text; empty if several sessions ran it.

        Before Spark 4.1, an execution lacks its job group, but its description is the text of its statement.
        """
        text = (description or "")[:_LIMIT]
        found = [one for one in self._statements.values() if one.get("spark.sql.statement") == text]
        sessions = {one.get("spark.thriftserver.session_id") for one in found}
        return found[-1] if len(sessions) == 1 else {}

    def attributes(self, execution_id: object) -> dict[str, AttributeValue]:
        """Return the attributes of an execution; empty if its start was not recorded or is no longer stored."""
        return self._known.get(str(execution_id), {})

    def operation(self, execution_id: object) -> dict[str, AttributeValue]:
        """Return the id of the execution's own operation of a Spark Connect client, as an attribute; empty if unknown.

        In ``foreachBatch``, the attributes of the execution name the operation that has started the query.
        """
        found = self._operations.get(str(execution_id))
        return {} if found is None else {_OPERATION: found}

    def description(self, execution_id: object) -> str:
        """Return the description of an execution, for example its call site; empty if it is unknown."""
        return str(self.attributes(execution_id).get("spark.sql.description", ""))


def statement_attributes(record: StatementStarted) -> dict[str, AttributeValue | None]:
    """Return the attributes of a statement of the Thrift server; its id is the job group of its jobs."""
    return {
        "spark.job.group": record.statement_id,
        "spark.thriftserver.user": record.user or None,
        "spark.thriftserver.session_id": record.session_id or None,
        "spark.sql.statement": record.statement[:_LIMIT] or None,
    }


def _listed(names: list[str]) -> str | None:
    return msgspec.json.encode(names).decode() if names else None
