"""Add the program's own events to the stream of Spark's events."""

from __future__ import annotations

from typing import Any

import msgspec

from spark_events.errors import InvalidEventError, SessionError
from spark_events.event import Event, EventBuilder
from spark_events.event.codec import without_surrogates
from spark_events.session.shim import driver_of, is_connect, session_of

__all__ = ["add_event"]


def add_event(event: Event | EventBuilder, spark: Any | None = None) -> None:
    """Report an event of the user's program to every reporter.

    >>> add_event(EventBuilder("shop.orders", "OrdersImported").set_attribute("orders", 12))        # doctest: +SKIP

    The event travels over Spark's listener bus, so its order relative to Spark's own events is kept. The sidecar and
    every stream of :func:`spark_events.start` receive it, with the variables of the application. If the event has the
    attribute ``spark.streaming.query.id``, it also gets the variables of that query. The call returns immediately and
    does not wait for delivery. If nothing listens, the event is dropped without an error.

    Args:
        event: the event, or a builder, which is built first.
        spark: the session. None: the active session.

    Raises:
        InvalidEventError: when ``event`` is neither an Event nor an EventBuilder, or the builder rejects an attribute.
        SessionError: when no session is active, the session was stopped, the driver lacks the jar, or the session is
            a Spark Connect client.
    """
    made = event.build() if isinstance(event, EventBuilder) else event
    if not isinstance(made, Event):
        raise InvalidEventError(
            f"event: given {made!r} of type {type(made).__name__}, allowed is an Event or an EventBuilder"
        )
    session = session_of(spark)
    if is_connect(session):
        raise SessionError(
            "a client of Spark Connect cannot add events: they belong to the driver, which is the server's; there,"
            " io.sparkevents.Events.add takes them"
        )
    driver_of(session)
    if not session._jvm.io.sparkevents.Events.add(_told(without_surrogates(made))):
        raise SessionError("the SparkSession was stopped: start a new one")


def _told(event: Event) -> str:
    fields = {
        "id": event.event_id,
        "name": event.name,
        "class_scope": event.class_scope,
        "body": event.body,
        "severity": event.severity,
        "time": event.observed_ts_millis,
        "attributes": event.attributes,
    }
    return msgspec.json.encode(fields).decode()
