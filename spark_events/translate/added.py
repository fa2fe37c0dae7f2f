"""Events that a program has made itself: they get what every event has, and are judged as every event is."""

from __future__ import annotations

from collections.abc import Iterator

from spark_events.bridge.records import Added
from spark_events.event import EventBuilder
from spark_events.translate.draft import Draft, present
from spark_events.translate.queries import Queries

__all__ = ["added"]

_QUERY = "spark.streaming.query.id"


def added(record: Added, queries: Queries) -> Iterator[Draft]:
    """The event as it was made, with the names of its query where it says which one it belongs to.

    Raises:
        InvalidEventError: no event can be made of it.
    """
    told = record.event
    run = queries.of_query(str(told.attributes.get(_QUERY, "")))
    of_query = {} if run is None else present(run.scope_variables)
    # What the program tells wins: a late event is of an earlier run of its query.
    builder = EventBuilder(told.class_scope, told.name).set_attributes({**of_query, **told.attributes})
    event = builder.set_severity(told.severity).set_body(told.body or told.name).build()
    yield Draft(
        name=event.name,
        class_scope=event.class_scope,
        key=("added", told.id),
        body=event.body,
        severity=event.severity,
        observed_ts_millis=told.time or record.at,
        attributes=dict(event.attributes),
    )
