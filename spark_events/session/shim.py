"""Access to the session, its driver and the shim in the driver's JVM."""

from __future__ import annotations

from typing import Any

from spark_events.errors import SessionError

__all__ = ["driver_of", "is_connect", "knows_shim", "session_of"]


def session_of(spark: Any | None) -> Any:
    """Return the given session or the active one.

    Args:
        spark: a SparkSession. None: the active session.

    Raises:
        SessionError: when no session is active, or ``spark`` is not a SparkSession.
    """
    if spark is None:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        try:
            # Returns the thread's session or, in threads without one (callbacks), the session created first.
            spark = SparkSession.active()
        except PySparkException:
            raise SessionError("no SparkSession is active: start one, or give one as the argument") from None
    if not hasattr(spark, "streams") or not hasattr(spark, "conf"):
        raise SessionError(f"spark: given {type(spark).__name__}, allowed is a SparkSession")
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
            "the driver does not have the shim: its configuration lacks the line `spark.driver.extraClassPath"
            " <the path that spark_events.jar_path() returns>`, which must be there before the JVM starts; build the"
            " session with spark_events.configure(SparkSession.builder, ...).getOrCreate(), in a fresh Python"
        )
    return context._jsc.sc()


def knows_shim(jvm: Any) -> bool:
    """Return whether the jar is on the class path of a JVM."""
    from py4j.java_gateway import JavaClass

    # py4j treats an unknown class as a package.
    return isinstance(jvm.io.sparkevents.inprocess.InProcess, JavaClass)
