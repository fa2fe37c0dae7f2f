"""Identity of the query and micro-batch that a DataFrame belongs to."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.checks import CONNECT_URL
from spark_events.enrichment.worker.map_in_arrow import BATCH_ID, QUERY_ID
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class MicroBatch:
    """Identity of a micro-batch; it stays the same for the same rows after a restart.

    Outside of streaming, it is empty unless the caller passes ``query`` or ``batch_id``.

    Attributes:
        query: the query's id, or a name that the caller passed.
        batch: the number of the batch.
        run: Spark's id of this run of the query, or "" if unknown; it changes at a restart.
        spark_query: Spark's id of the query, or "" if unknown; ``query`` may be a name from the caller instead.
        streams: whether a Spark query runs the batch. A batch job may also pass a query and a number, but has no next
            batch.
    """

    query: str
    batch: int | None
    run: str = ""
    spark_query: str = ""
    streams: bool = True

    @property
    def scope(self) -> str:
        """Part of the idempotency keys that identifies the batch."""
        return f"{self.query}/{'' if self.batch is None else self.batch}"

    def __str__(self) -> str:
        if self.batch is None:
            return self.query or "batch job"
        return f"batch {self.batch}" + (f" of query {self.query}" if self.query else "")


def is_connect(df: DataFrame) -> bool:
    """Return whether the DataFrame belongs to a Connect session; does not import Connect's dependencies."""
    return type(df).__module__.startswith("pyspark.sql.connect")


def is_local(df: DataFrame) -> bool:
    """Return whether the driver is the only executor of a classic session, so no executor can be lost alone."""
    master = str(df.sparkSession.sparkContext.master)
    return master == "local" or master.startswith("local[")


def micro_batch(df: DataFrame, batch_id: int | None, query: str | None) -> MicroBatch:
    """Return the batch's identity from the caller's arguments or, without them, from Spark.

    Raises:
        InvalidPlanError: when Spark does not report a query and batch that are required.
    """
    if is_connect(df):
        streams = CONNECT_URL in os.environ
        if streams and (batch_id is None or query is None):
            raise InvalidPlanError(
                "idempotency keys need the query and batch of this DataFrame, and Spark Connect does not report them: "
                "pass replay=Replay(query='name', batch_id=batch_id), with a fixed query name and the batch number "
                "that foreachBatch received"
            )
        return MicroBatch(query or "", batch_id, streams=streams)
    context = df.sparkSession.sparkContext
    spark_query = context.getLocalProperty(QUERY_ID)
    spark_batch = context.getLocalProperty(BATCH_ID)
    if batch_id is None and spark_batch is not None:
        batch_id = int(spark_batch)
    if not spark_query and (batch_id is None or query is None) and _is_of_a_stream(df):
        raise InvalidPlanError(
            "this thread of foreachBatch did not inherit its query and batch from Spark, so idempotency keys would be "
            "equal in every batch: start a pyspark.InheritableThread, or submit "
            "pyspark.inheritable_thread_target(function) to the pool; or pass replay=Replay(query='name', "
            "batch_id=batch_id)"
        )
    spark_query = spark_query or ""
    return MicroBatch(query or spark_query, batch_id, _run_of(df, spark_query), spark_query, streams=bool(spark_query))


def running(df: DataFrame, query: str) -> StreamingQuery | None:
    """Return the running query with this id, or None.

    The session that foreachBatch passes is a clone, whose own ``streams`` does not list the query.

    Raises:
        Exception: when Spark does not answer; the call is not a documented part of Spark.
    """
    from pyspark.sql.streaming.query import StreamingQuery

    jvm: Any = df.sparkSession.sparkContext._jvm
    queries = df.sparkSession._jsparkSession.sharedState().activeStreamingQueries()
    found = queries.get(jvm.java.util.UUID.fromString(query))
    return None if found is None else StreamingQuery(found)


def _run_of(df: DataFrame, query: str) -> str:
    """Return the id of the query's current run, or "" if unknown.

    The id is read from the query. The job group also has the id, but user code may change the job group.
    """
    if query:
        with contextlib.suppress(Exception):  # Held reports this error
            found = running(df, query)
            return "" if found is None else str(found.runId)
    return ""


def _is_of_a_stream(df: DataFrame) -> bool:
    """Return whether a running query created the DataFrame; only the batches of a query use its session."""
    try:
        session = df._jdf.sparkSession()
        running = session.sharedState().activeStreamingQueries()
        # Iterating over a Java map takes dozens of calls of the JVM.
        for key in [] if running.isEmpty() else list(running):
            query = running.get(key)  # None if the query has ended meanwhile
            execution = None if query is None else query.lastExecution()
            if execution is not None and execution.sparkSession() == session:
                return True
    except Exception as error:  # not a documented part of Spark
        _warn(type(error).__name__)
    return False


@functools.cache
def _warn(error_type: str) -> None:
    """Warn once per type of error, because a job may enrich many DataFrames."""
    _LOG.warning(
        "cannot determine whether a streaming query created a DataFrame; its calls get the idempotency keys of a batch "
        "job. In foreachBatch, pass replay=Replay(query='name', batch_id=batch_id): %s",
        error_type,
    )
