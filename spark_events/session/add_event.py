"""Events of the program's own, in their place among what Spark itself tells."""

from __future__ import annotations

from typing import Any

import msgspec

from spark_events.errors import InvalidEventError, SessionError
from spark_events.event import Event, EventBuilder
from spark_events.event.codec import without_surrogates
from spark_events.session.shim import driver_of, is_connect, session_of

__all__ = ["add_event"]


def add_event(event: Event | EventBuilder, spark: Any | None = None) -> None:
    """Reports an event of the program's own, with the application's variables, to every reporter there is.

    >>> add_event(EventBuilder("shop.orders", "OrdersImported").set_attribute("orders", 12))        # doctest: +SKIP

    It goes over Spark's listener bus, and so it has its place among what Spark itself tells. The
    sidecar gets it, and a stream of :func:`spark_events.start`. With an attribute ``spark.streaming.query.id`` it
    gets that query's variables, too. The call returns at once; nobody listening is no error.

    Args:
        event: or what builds it.
        spark: the session; None: the one that is active.

    Raises:
        InvalidEventError: it is no event; a builder refuses a wrong attribute by itself, and names it.
        SessionError: there is no session, it was stopped, has no shim, or is a client of Spark Connect.
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
    told = {
        "id": event.event_id,
        "name": event.name,
        "class_scope": event.class_scope,
        "body": event.body,
        "severity": event.severity,
        "time": event.observed_ts_millis,
        "attributes": event.attributes,
    }
    return msgspec.json.encode(told).decode()
