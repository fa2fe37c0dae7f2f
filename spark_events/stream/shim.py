"""``add_event``, and access to the session, its driver and the shim in the driver's JVM."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from spark_events.errors import InvalidEventError, SessionError
from spark_events.event import Event, EventBuilder
from spark_events.event.codec import without_surrogates


def add_event(event: Event | EventBuilder, spark: Any | None = None) -> None:
    """Report an event of the user's program to every reporter.

    >>> add_event(EventBuilder("shop.orders", "OrdersImported").set_attribute("orders", 12))        # doctest: +SKIP

    The event is posted to Spark's listener bus, which preserves the order relative to Spark's own events. The sidecar
    and every stream of :func:`spark_events.start` receive the event and add the application's attributes. If the event
    has the attribute ``spark.streaming.query.id``, the attributes of that query are added too. The call returns
    immediately and does not wait for the delivery. If neither a sidecar nor a stream is running, the event is dropped
    without an error.

    Args:
        event: the event, or its builder.
        spark: the session. None: the active session.

    Raises:
        InvalidEventError: when ``event`` is neither an Event nor an EventBuilder, or the builder rejects an attribute.
        SessionError: when the call runs in a task, no session is active, the session was stopped, the driver lacks the
            jar, or the session is a Spark Connect client.
    """
    made = event.build() if isinstance(event, EventBuilder) else event
    if not isinstance(made, Event):
        raise InvalidEventError(
            f"event: given {made!r} of type {type(made).__name__}, expected an Event or an EventBuilder"
        )
    if _runs_in_task():
        raise SessionError(
            "a task cannot add events, because only the driver has Spark's listener bus: return the values and call"
            " add_event in the driver, count them with an accumulator, or call enrich_batch, which reports its own"
            " events"
        )
    session = session_of(spark)
    if is_connect(session):
        raise SessionError(
            "a Spark Connect client cannot add events, because the driver is in the server: call"
            " io.sparkevents.Events.add there"
        )
    driver_of(session)
    if not session._jvm.io.sparkevents.Events.add(_to_json(without_surrogates(made))):
        raise SessionError("the SparkSession was stopped: start a new one")


def _runs_in_task() -> bool:
    # A process that has not imported PySpark runs no task.
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.TaskContext.get() is not None


def _to_json(event: Event) -> str:
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


def session_of(spark: Any | None) -> Any:
    """Return ``spark``, or the active session if it is None.

    Args:
        spark: a SparkSession. None: the active session.

    Raises:
        SessionError: when no session is active, or ``spark`` is not a SparkSession.
    """
    if spark is None:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        try:
            # This call returns the session of the current thread or, in a thread without a session (such as a
            # callback's thread), the session that was created first.
            spark = SparkSession.active()
        except PySparkException:
            raise SessionError(
                "no SparkSession is active: start a session, or pass a session as the argument"
            ) from None
    if not hasattr(spark, "streams") or not hasattr(spark, "conf"):
        raise SessionError(f"spark: given {type(spark).__name__}, expected a SparkSession")
    return spark


def is_connect(spark: Any) -> bool:
    """Return whether the session is a Spark Connect client."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def driver_of(spark: Any) -> Any:
    """Return the JVM's SparkContext object.

    Raises:
        SessionError: when the context was stopped, or the driver's class path lacks the jar.
    """
    context = spark._sc
    if context._jsc is None or context._jsc.sc().isStopped():
        raise SessionError("the SparkSession was stopped: start a new one")
    if not knows_shim(spark._jvm):
        raise SessionError(
            "the driver's class path lacks the jar of spark-events: restart Python and build the session with"
            " spark_events.configure(SparkSession.builder, ...).getOrCreate(), or before the JVM starts, set"
            " spark.driver.extraClassPath to the path that spark_events.jar_path() returns"
        )
    return context._jsc.sc()


def knows_shim(jvm: Any) -> bool:
    """Return whether the class path of a JVM contains the jar."""
    from py4j.java_gateway import JavaClass

    # For an unknown class, py4j returns a package instead of an error.
    return isinstance(jvm.io.sparkevents.inprocess.InProcess, JavaClass)
