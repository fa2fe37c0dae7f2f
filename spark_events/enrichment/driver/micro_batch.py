"""Which query and micro-batch a DataFrame belongs to."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Any

from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["MicroBatch", "is_connect", "is_local", "micro_batch", "running"]

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
#: Connect's server sets it for the process in which it runs foreachBatch.
_CONNECT_WORKER = "SPARK_CONNECT_LOCAL_URL"


@dataclasses.dataclass(frozen=True, slots=True)
class MicroBatch:
    """The same for the same rows, over restarts; empty outside of streaming, unless the caller says otherwise.

    Attributes:
        query: the query's id, or a name that the caller gave.
        batch: its number.
        run: the id that Spark has given this run of the query, where it tells; a restart is another one.
        spark_query: the id that Spark has given the query, where it tells; ``query`` may be a name of the caller's.
        streams: whether a query of Spark's runs it; a batch job may be called as one, but no next batch follows it.
    """

    query: str
    batch: int | None
    run: str = ""
    spark_query: str = ""
    streams: bool = True

    @property
    def scope(self) -> str:
        """For idempotency keys."""
        return f"{self.query}/{'' if self.batch is None else self.batch}"

    def __str__(self) -> str:
        if self.batch is None:
            return self.query or "batch job"
        return f"batch {self.batch}" + (f" of query {self.query}" if self.query else "")


def is_connect(df: DataFrame) -> bool:
    """Whether it is a DataFrame of a Connect session; found out without importing what Connect needs."""
    return type(df).__module__.startswith("pyspark.sql.connect")


def is_local(df: DataFrame) -> bool:
    """Whether the executor of a classic session is the driver itself: it is not lost without it."""
    master = str(df.sparkSession.sparkContext.master)
    return master == "local" or master.startswith("local[")


def micro_batch(df: DataFrame, batch_id: Any, query: Any) -> MicroBatch:
    """What the caller says, else what Spark does.

    Raises:
        InvalidPlanError: it cannot be known, or is no number.
    """
    if batch_id is not None and (not isinstance(batch_id, int) or isinstance(batch_id, bool) or batch_id < 0):
        raise InvalidPlanError(f"batch_id is {batch_id!r}; allowed: the number that foreachBatch gave")
    if query is not None and (not isinstance(query, str) or not query):
        raise InvalidPlanError(f"query is {query!r}; allowed: a name that stays the same over restarts")
    if is_connect(df):
        streams = _CONNECT_WORKER in os.environ
        if streams and (batch_id is None or query is None):
            raise InvalidPlanError(
                "with Spark Connect, Spark does not tell which query and batch this is: give batch_id=batch_id, as "
                "foreachBatch gave it, and query='a name of yours', which keeps idempotency keys apart"
            )
        return MicroBatch(query or "", batch_id, streams=streams)
    context = df.sparkSession.sparkContext
    told_query = context.getLocalProperty(_QUERY_ID)
    told_batch = context.getLocalProperty(_BATCH_ID)
    if batch_id is None and told_batch is not None:
        batch_id = int(told_batch)
    if not told_query and (batch_id is None or query is None) and _is_of_a_stream(df):
        raise InvalidPlanError(
            "this is a thread of foreachBatch that Spark does not tell which query and batch it is of, so idempotency "
            "keys would be the same in every batch: make it a pyspark.InheritableThread, in a pool give "
            "pyspark.inheritable_thread_target(function); or give batch_id=batch_id and query='a name of yours'"
        )
    told = told_query or ""
    return MicroBatch(query or told, batch_id, _run_of(df, told), told, streams=bool(told))


def running(df: DataFrame, query: str) -> StreamingQuery | None:
    """The query of this id while it runs. The session that foreachBatch gives is a clone, whose own streams lack it.

    Raises:
        Exception: Spark does not tell; how it does is not a part of it that anybody has promised.
    """
    from pyspark.sql.streaming.query import StreamingQuery

    jvm: Any = df.sparkSession.sparkContext._jvm
    queries = df.sparkSession._jsparkSession.sharedState().activeStreamingQueries()
    found = queries.get(jvm.java.util.UUID.fromString(query))
    return None if found is None else StreamingQuery(found)


def _run_of(df: DataFrame, query: str) -> str:
    """Asked of the query itself: the job group, which Spark names after the run, is anybody's to change."""
    if query:
        with contextlib.suppress(Exception):  # who waits for its end says what is amiss
            found = running(df, query)
            return "" if found is None else str(found.runId)
    return ""


def _is_of_a_stream(df: DataFrame) -> bool:
    """Whether a query that is running has made it: each has a session of its own, which only its batches are of."""
    with contextlib.suppress(Exception):  # it is not a part of Spark that anybody has promised
        session = df._jdf.sparkSession()
        running = session.sharedState().activeStreamingQueries()
        for key in list(running):
            query = running.get(key)  # it may have ended meanwhile
            execution = None if query is None else query.lastExecution()
            if execution is not None and execution.sparkSession() == session:
                return True
    return False
