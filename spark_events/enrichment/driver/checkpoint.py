"""Runs an enrichment once and for all: the result is stored, and nothing can bring Spark to make it again.

``localCheckpoint`` and not ``persist``: what is persisted is computed again when an executor is lost, or when a table
that the plan reads is written to, and here that would mean to call again. A checkpoint has no plan to fall back on; a
block of it that is lost with its executor fails the batch, which Spark then runs again, as any batch that failed.
"""

from __future__ import annotations

import atexit
import contextlib
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, get_args

from spark_events.enrichment.driver.driver_channel import may_have_two_results
from spark_events.enrichment.driver.micro_batch import is_connect, is_local
from spark_events.enrichment.worker.report import COLUMN, PartitionReport
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_events.enrichment.driver.driver_channel import DriverChannel

__all__ = ["Settled", "Storage", "check_storage", "settle"]

#: Where a settled batch is kept: on its executors, on two of them each, or in the checkpoint directory.
Storage = Literal["local", "replicated", "reliable"]
_FIRST_WITH_LEVELS = (4, 0)
#: A thread's property, of Spark's: what is checkpointed has those checkpoints written first that it is made of.
_ANCESTORS_FIRST = "spark.checkpoint.checkpointAllMarkedAncestors"


#: What Connect clients of this process refer to.
_connected: weakref.WeakSet[Any] = weakref.WeakSet()


def _leave_to_the_server() -> None:
    """A program that ends without ``spark.stop()``, by an exception say, would hang for ever.

    When such a reference goes, PySpark's client makes a call for which grpc starts a thread, and waits for it; while
    the interpreter goes down, no thread starts any more. The server releases what a session held when that is over.
    """
    for plan in list(_connected):
        plan._relation_id = None


atexit.register(_leave_to_the_server)


class Settled:
    """A settled DataFrame.

    Attributes:
        df: with the hidden column.
        reports: one of each partition that had rows.
        release: gives back what it takes; may be called more than once.
    """

    def __init__(self, df: DataFrame, release: Callable[[], None]) -> None:
        self.df = df
        self.release = release
        self.reports: list[PartitionReport] = []


def check_storage(df: DataFrame, storage: Any) -> None:
    """Before anything runs.

    Raises:
        InvalidPlanError: it is none of the three, or this Spark does not have it.
    """
    if storage not in get_args(Storage):
        raise InvalidPlanError(f"storage is {storage!r}; allowed: {', '.join(map(repr, get_args(Storage)))}")
    if storage == "replicated" and _version(df) < _FIRST_WITH_LEVELS:
        raise InvalidPlanError("storage='replicated' needs Spark 4; with Spark 3.5 use 'local' or 'reliable'")
    if storage == "reliable" and is_connect(df):
        raise InvalidPlanError("storage='reliable' is not there with Connect, whose clients cannot delete its files")
    if storage == "reliable" and df.sparkSession.sparkContext.getCheckpointDir() is None:
        raise InvalidPlanError("storage='reliable' needs a folder: call spark.sparkContext.setCheckpointDir(...) first")


def settle(lazy: DataFrame, storage: Storage, channel: DriverChannel | None = None) -> Settled:
    """Runs every task of the enrichment, and waits.

    Args:
        lazy: the enrichment.
        storage: where its result is kept.
        channel: to which its tasks are connected.

    Raises:
        Exception: what Spark raises when its job fails; nothing is kept then.
    """
    settled = _stored(lazy, storage, channel)
    if storage == "reliable" or is_connect(lazy) or is_local(lazy):
        return settled
    # One of the two is read, once, and kept: nobody is called for it, and it has no shuffle to be attempted anew for.
    with _released_if_it_fails(settled):
        copies = 2 if storage == "replicated" else 1
        if not may_have_two_results(lazy.sparkSession, _rdd(settled.df), copies, settled.reports, channel):
            return settled
        single = _stored(settled.df, storage, None)
    settled.release()
    return single


def _stored(lazy: DataFrame, storage: Storage, channel: DriverChannel | None) -> Settled:
    connect = is_connect(lazy)
    settled = Settled(*_marked(lazy, storage, connect))
    with _released_if_it_fails(settled):
        if storage == "reliable":
            _write(settled.df, _told(settled.df))
        elif connect or not is_local(lazy):
            # When a job over it ends, Spark looks for blocks that were lost meanwhile with their executors, computes
            # these again and cuts the plan off. So the reports are read by another job: after that.
            # (`noop` and not `count`: Connect runs a query's own job in a way that leaves the plan uncut.)
            settled.df.write.format("noop").mode("overwrite").save()
        else:
            channel = None  # the next job is the one that calls
        if channel is not None:
            # What is still at work would store another result of what is read now.
            channel.stop_all()
        reports = (PartitionReport.from_bytes(row.report) for row in _told(settled.df).collect())
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


def _told(df: DataFrame) -> DataFrame:
    """The reports."""
    from pyspark.sql import functions

    report = functions.col(COLUMN).getField("report")
    return df.where(functions.col(COLUMN).isNotNull()).where(report.isNotNull()).select(report.alias("report"))


def _marked(lazy: DataFrame, storage: Storage, connect: bool) -> tuple[DataFrame, Callable[[], None]]:
    """The DataFrame to be stored by the next job that computes it, and what releases it."""
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
        # The server lets it go when the client no longer refers to it.
        _connected.add(marked._plan)
        return marked, lambda: None
    rdd = _rdd(marked)
    return marked, lambda: rdd.unpersist(False)


def _reliable(lazy: DataFrame) -> tuple[DataFrame, Callable[[], None]]:
    """Not written yet (:func:`_written`): only so it is known where its files will be, if it fails while it is."""
    context = lazy.sparkSession.sparkContext
    folder = context.getCheckpointDir()
    marked = lazy.checkpoint(eager=False)
    rdd = _rdd(marked)

    def delete() -> None:
        jvm: Any = context._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{folder}/rdd-{rdd.id()}")
        path.getFileSystem(context._jsc.hadoopConfiguration()).delete(path, True)

    return marked, delete


def _write(marked: DataFrame, made_of_it: DataFrame) -> None:
    """Has the files of a reliable checkpoint written.

    A job over it would compute it twice, for itself and then for the files, and call twice; another checkpoint, of
    whatever is made of it, has the files written first.
    """
    context = marked.sparkSession.sparkContext
    before: Any = context.getLocalProperty(_ANCESTORS_FIRST)
    context.setLocalProperty(_ANCESTORS_FIRST, "true")
    try:
        _rdd(made_of_it.localCheckpoint(eager=True)).unpersist(False)
    finally:
        context.setLocalProperty(_ANCESTORS_FIRST, before)
    if not _rdd(marked).isCheckpointed():
        # Whatever used it would call again.
        raise RuntimeError("Spark has not written the checkpoint that storage='reliable' asks for")


def _rdd(df: DataFrame) -> Any:
    """What a checkpoint's DataFrame is made of."""
    return df._jdf.queryExecution().analyzed().rdd()


def _persisted(lazy: DataFrame) -> tuple[DataFrame, Callable[[], None]]:
    """Connect on 3.5 has no checkpoints.

    The server analyses a plan anew for every action, and finds what is stored by the plan: rand() without a seed has
    another one each time. A view is analysed once.
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
