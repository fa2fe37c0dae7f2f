"""Status changes and failures of the application, queries, SQL executions, jobs and stages."""

from __future__ import annotations

from collections.abc import Mapping

from spark_events.event import AttributeValue, Severity
from spark_events.translate.draft import Draft, present

__all__ = ["failure", "status_change"]

#: Class scope of the events of each entity.
_SCOPES = {
    "application": "spark.application",
    "query": "spark.streaming.query",
    "sql": "spark.sql.execution",
    "job": "spark.job",
    "stage": "spark.stage",
}


def status_change(
    entity: str,
    key: tuple[str | int, ...],
    change: tuple[str | None, str],
    body: str,
    severity: Severity,
    at: int,
    details: Mapping[str, AttributeValue | None],
) -> Draft:
    """Return the event of an entity whose status has changed.

    Args:
        entity: ``application``, ``query`` or ``job``.
        key: identifies the change among all changes of this kind of entity.
        change: the old status, None if unknown, and the new status.
        body: one sentence.
        severity: severity of the change.
        at: time of the change, in milliseconds since the epoch.
        details: more attributes; those whose value is None are omitted.
    """
    old, new = change
    attributes = {"spark.entity": entity, "spark.status.old": old, "spark.status.new": new, **details}
    return Draft("JobStatusChangeEvent", _SCOPES[entity], (entity, *key), body, severity, at, present(attributes))


def failure(
    entity: str,
    key: tuple[str | int, ...],
    body: str,
    severity: Severity,
    at: int,
    details: Mapping[str, AttributeValue | None],
) -> Draft:
    """Return the event of an entity that has failed; see :func:`status_change` for the arguments."""
    attributes = {"spark.entity": entity, **details}
    return Draft("JobFailureEvent", _SCOPES[entity], (entity, *key), body, severity, at, present(attributes))
