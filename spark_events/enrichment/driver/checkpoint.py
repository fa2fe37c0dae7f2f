"""Storage of a settled batch: Spark stores the result and cannot compute it again.

The storage is ``localCheckpoint`` and not ``persist``. Spark recomputes persisted data if an executor is lost, or if a
table that the plan reads is written; a recomputation would repeat the calls. A checkpoint has no plan from which it
could be recomputed. If a block is lost with its executor, the batch fails, and Spark runs the batch again.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.driver.channel_server import may_have_two_results
from spark_events.enrichment.driver.micro_batch import is_connect, is_local
from spark_events.enrichment.settings import Storage
from spark_events.enrichment.worker.report import COLUMN, PartitionReport
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_events.enrichment.driver.channel_server import DriverChannel

_LOG = logging.getLogger(__name__)
_FIRST_WITH_LEVELS = (4, 0)
#: Local property of a Spark thread. If it is "true", a checkpoint job first writes the checkpoints of those ancestors
#: that are marked for checkpointing.
_ANCESTORS_FIRST = "spark.checkpoint.checkpointAllMarkedAncestors"


#: Plans to which Connect clients of this process refer.
_connected: weakref.WeakSet[Any] = weakref.WeakSet()


def _leave_to_the_server() -> None:
    """Prevent a hang if the interpreter exits without ``spark.stop()``, for example after an exception.

    When the plan of a Connect checkpoint is garbage-collected, PySpark's client makes a call and waits for it. grpc
    starts a thread for the call, but no thread can start during interpreter shutdown, so the client would wait forever.
    Removing the plan's relation id prevents the call. The server releases a session's stored data when the session
    ends.
    """
    for plan in list(_connected):
        plan._relation_id = None


atexit.register(_leave_to_the_server)


class Settled:
    """A settled DataFrame.

    Attributes:
        df: the DataFrame, including the hidden column.
        reports: one report for each partition that contained rows.
        release: deletes the stored result; may be called repeatedly.
    """

    def __init__(self, df: DataFrame, release: Callable[[], None]) -> None:
        self.df = df
        self.release = release
        self.reports: list[PartitionReport] = []


def check_storage(df: DataFrame, storage: Storage) -> None:
    """Check the storage before any task runs.

    Raises:
        InvalidPlanError: when this Spark version or session does not support the storage.
    """
    if storage == "replicated" and _version(df) < _FIRST_WITH_LEVELS:
        raise InvalidPlanError("Buffer.storage='replicated' needs Spark 4; with Spark 3.5 use 'local' or 'reliable'")
    if storage == "reliable" and is_connect(df):
        raise InvalidPlanError(
            "Buffer.storage='reliable' does not work with Spark Connect, because a client cannot delete the"
            " checkpoint's files; use 'local', or with Spark 4 'replicated'"
        )
    if storage == "reliable" and df.sparkSession.sparkContext.getCheckpointDir() is None:
        raise InvalidPlanError(
            "Buffer.storage='reliable' needs a checkpoint directory: call spark.sparkContext.setCheckpointDir(...)"
        )


def settle(lazy: DataFrame, storage: Storage, channel: DriverChannel | None = None) -> Settled:
    """Run all tasks of the enrichment, and wait for the result.

    Args:
        lazy: the enrichment.
        storage: where to store its result.
        channel: the driver channel to which its tasks are connected.

    Raises:
        Exception: when Spark's job fails; the stored result is released.
    """
    settled = _stored(lazy, storage, channel)
    if storage == "reliable" or is_connect(lazy) or is_local(lazy):
        return settled
    # If there are two results, copy one of them. The copy makes no calls. It contains no shuffle, so Spark does not run
    # its stage again.
    with _released_if_it_fails(settled):
        if not may_have_two_results(lazy.sparkSession, settled.reports, channel):
            return settled
        single = _stored(settled.df, storage, None)
    settled.release()
    return single


def _stored(lazy: DataFrame, storage: Storage, channel: DriverChannel | None) -> Settled:
    connect = is_connect(lazy)
    settled = Settled(*_marked(lazy, storage, connect))
    with _released_if_it_fails(settled):
        if storage == "reliable":
            _write(settled.df, _reports_of(settled.df))
        elif connect or not is_local(lazy):
            # When a job ends, Spark looks for blocks that were lost with their executors, recomputes them, and
            # truncates the plan. Therefore a second job reads the reports afterwards. (Use `noop` and not `count`:
            # Connect runs `count` as a separate query, whose job does not truncate the plan.)
            settled.df.write.format("noop").mode("overwrite").save()
        else:
            channel = None  # the next job makes the calls
        if channel is not None:
            # A task that is still running could store another result in place of the result that is read now.
            channel.stop_all()
        reports = (PartitionReport.from_bytes(row.report) for row in _reports_of(settled.df).collect())
        settled.reports = sorted(reports, key=lambda one: one.partition)
    return settled


@contextlib.contextmanager
def _released_if_it_fails(settled: Settled) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            settled.release()
        raise


def _reports_of(df: DataFrame) -> DataFrame:
    """Return a DataFrame of the partitions' reports."""
    # Strings, because building the same expressions from columns takes ten times as many calls of the JVM.
    return df.selectExpr(f"{COLUMN}.report").where("report is not null")


def _marked(lazy: DataFrame, storage: Storage, connect: bool) -> tuple[DataFrame, Callable[[], None]]:
    """Return the DataFrame and a function that releases it; the next job that computes the DataFrame stores it."""
    if storage == "reliable":
        return _reliable(lazy)
    if connect and _version(lazy) < _FIRST_WITH_LEVELS:
        return _persisted(lazy)
    options: dict[str, Any] = {}
    if storage == "replicated":
        from pyspark import StorageLevel

        options["storageLevel"] = StorageLevel.MEMORY_AND_DISK_2
    marked = lazy.localCheckpoint(eager=False, **options)
    if connect:
        # The server releases the result when the client no longer refers to it.
        _connected.add(marked._plan)
        return marked, lambda: None
    rdd = _rdd(marked)
    return marked, lambda: rdd.unpersist(False)


def _reliable(lazy: DataFrame) -> tuple[DataFrame, Callable[[], None]]:
    """Mark the DataFrame for a reliable checkpoint, which :func:`_write` writes.

    Marking assigns the path of the files, so the returned function can delete the files even if writing them fails.
    """
    context = lazy.sparkSession.sparkContext
    folder = context.getCheckpointDir()
    marked = lazy.checkpoint(eager=False)
    rdd = _rdd(marked)

    name = f"{folder}/rdd-{rdd.id()}"

    def delete() -> None:
        jvm: Any = context._jvm
        try:
            path = jvm.org.apache.hadoop.fs.Path(name)
            path.getFileSystem(context._jsc.hadoopConfiguration()).delete(path, True)
        except Exception as error:
            _LOG.warning(
                "Buffer.storage='reliable': deleting %s failed (%s); delete this folder when the application has ended",
                name, error,
            )  # fmt: skip

    return marked, delete


def _write(marked: DataFrame, made_of_it: DataFrame) -> None:
    """Write the files of a reliable checkpoint.

    A job over the checkpoint itself would compute the checkpoint twice, once for the job and once for the files, and
    would repeat every call. Instead, this function checkpoints a DataFrame derived from the checkpoint, so Spark writes
    the files of the checkpoint first.
    """
    context = marked.sparkSession.sparkContext
    before: Any = context.getLocalProperty(_ANCESTORS_FIRST)
    context.setLocalProperty(_ANCESTORS_FIRST, "true")
    try:
        _rdd(made_of_it.localCheckpoint(eager=True)).unpersist(False)
    finally:
        context.setLocalProperty(_ANCESTORS_FIRST, before)
    if not _rdd(marked).isCheckpointed():
        # Without these files, any later job would repeat the calls.
        raise RuntimeError(
            "Spark did not write the checkpoint of Buffer.storage='reliable'; the batch fails, because continuing would"
            " repeat its calls; see the driver's log for the cause, or use another Buffer.storage"
        )


def _rdd(df: DataFrame) -> Any:
    """Return the RDD (a Java object) behind a checkpoint's DataFrame."""
    return df._jdf.queryExecution().analyzed().rdd()


def _persisted(lazy: DataFrame) -> tuple[DataFrame, Callable[[], None]]:
    """Store the result with ``persist``, because Connect on Spark 3.5 does not support checkpoints.

    For every action, the server analyses a plan again and looks up stored data by the plan. rand() without a seed
    receives a new seed each time, so the look-up would fail. A view is analysed only once.
    """
    session, name = lazy.sparkSession, f"spark_events_{uuid.uuid4().hex}"
    lazy.createTempView(name)
    cached = session.table(name).persist()

    def release() -> None:
        cached.unpersist()
        session.catalog.dropTempView(name)

    return cached, release


def _version(df: DataFrame) -> tuple[int, ...]:
    return tuple(int(part) for part in df.sparkSession.version.split(".")[:2])
