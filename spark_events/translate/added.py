"""Events that a user's program adds, with the attributes of the application and the query."""

from __future__ import annotations

from collections.abc import Iterator

from spark_events.event import EventBuilder
from spark_events.records.types import Added
from spark_events.translate.draft import Draft, present
from spark_events.translate.queries import Queries

__all__ = ["added"]

#: Names of the events that :func:`spark_events.enrich_batch` adds, in the way of a user's program.
_ENRICHMENT = ("EnrichmentEvent", "EnrichmentProgressEvent")
_QUERY = "spark.streaming.query.id"


def added(record: Added, queries: Queries) -> Iterator[Draft]:
    """Return the event that the program added; add the query's name if the event has a query id.

    Raises:
        InvalidEventError: when the record does not describe a valid event.
    """
    given = record.event
    run = queries.of_query(str(given.attributes.get(_QUERY, "")))
    of_query = {} if run is None else present(run.scope_variables)
    # The program's attributes override the query's attributes, because a late event may belong to an earlier run.
    builder = EventBuilder(given.class_scope, given.name).set_attributes({**of_query, **given.attributes})
    event = builder.set_severity(given.severity).set_body(given.body or given.name).build()
    yield Draft(
        name=event.name,
        class_scope=event.class_scope,
        key=("added", given.id),
        body=event.body,
        severity=event.severity,
        observed_ts_millis=given.time or record.at,
        attributes=dict(event.attributes),
        names_application=event.name in _ENRICHMENT,
    )
