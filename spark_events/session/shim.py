"""The shim in the JVM of this Python's driver."""

from __future__ import annotations

from typing import Any

from spark_events.errors import SessionError

__all__ = ["driver_of", "is_connect", "knows_shim", "session_of"]


def session_of(spark: Any | None) -> Any:
    """The session that is meant.

    Args:
        spark: a SparkSession; None: the one that is active.

    Raises:
        SessionError: there is none, or what was given is none.
    """
    if spark is None:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        try:
            # The thread's own, or else the one that was made first: in a callback's thread nobody has made any.
            spark = SparkSession.active()
        except PySparkException:
            raise SessionError("no SparkSession is active: start one, or give one as the argument") from None
    if not hasattr(spark, "streams") or not hasattr(spark, "conf"):
        raise SessionError(f"spark: given {type(spark).__name__}, allowed is a SparkSession")
    return spark


def is_connect(spark: Any) -> bool:
    """Whether the session is a client of Spark Connect, whose driver is elsewhere."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def driver_of(spark: Any) -> Any:
    """The JVM's own SparkContext.

    Raises:
        SessionError: it was stopped, or the shim is not on its class path.
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
    """Whether the jar is on the class path of a JVM."""
    from py4j.java_gateway import JavaClass

    # What py4j does not find as a class, it takes for a package.
    return isinstance(jvm.io.sparkevents.inprocess.InProcess, JavaClass)
