"""The driver's end of the driver channel: a port at which tasks wait to hear that their calls are no longer wanted.

A batch of ``enrich_batch`` has a channel of its own while it runs: the driver's thread waits for the batch, and stops
its tasks when the wait ends. All lazy enrichments of an application share one, until the application ends: no thread
waits for their jobs, so the driver asks Spark which stages are active while tasks are connected.

Tasks also say here which attempt they are, so the driver knows whether two of them may have stored a result.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import secrets
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.driver.micro_batch import is_connect, is_local
from spark_events.enrichment.engine.loop import BackgroundLoop
from spark_events.enrichment.worker.driver_channel import HELLO_BYTES, ChannelAddress, TaskAttempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_events.enrichment.worker.report import PartitionReport

__all__ = ["DriverChannel", "batch_channel", "lazy_channel_address", "may_have_two_results", "opened_channel"]

_LOG = logging.getLogger(__name__)
_LOOPBACK = "127.0.0.1"
_SECRET_BYTES = 16
_CLOSE_SECONDS = 1.0
#: Spark kills the tasks of a job that has ended after four seconds at the latest.
_LINGER_SECONDS = 5.0
#: Between two looks at Spark's active stages.
_LOOK_SECONDS = 0.2
#: A stage that is attempted anew is inactive for a moment.
_LOOKS_INACTIVE = 2


class DriverChannel:
    """One open port, and the tasks that are connected to it.

    Args:
        by_stage: tasks of several enrichments connect: an attempt replaces another one of the same stage only, and
            attempts that have left are forgotten.
        hello_seconds: a connection that has not said hello by then is closed; a task does so with its first packet.
        most_strangers: connections that have not said hello yet, at most; further ones are closed at once.

    Attributes:
        address: for the tasks.
        repeated: whether two attempts at one partition have connected.
    """

    def __init__(self, *, by_stage: bool = False, hello_seconds: float = 10.0, most_strangers: int = 1_000) -> None:
        self.address = ChannelAddress(_LOOPBACK, 0, secrets.token_bytes(_SECRET_BYTES))
        self.repeated = False
        self._by_stage = by_stage
        self._hello_seconds = hello_seconds
        self._most_strangers = most_strangers
        self._background = BackgroundLoop()
        self._occupied = threading.Event()
        self._closed = threading.Event()
        # The loop's thread alone uses the rest.
        self._stopped = False
        self._strangers = 0
        self._tasks: dict[TaskAttempt, asyncio.StreamWriter] = {}
        self._attempts: dict[tuple[int, int], list[TaskAttempt]] = {}
        self._connections: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    def open(self, bind: str, host: str) -> bool:
        """Open the port; return whether that worked.

        Args:
            bind: the address to listen at.
            host: the address by which executors reach it.
        """
        try:
            port = self._background.submit(self._open(bind)).result()
        except OSError as error:
            _LOG.warning(
                "driver channel: no port opens at %s (%s); tasks go on calling until Spark kills them", bind, error
            )
            self._background.close(_CLOSE_SECONDS)
            return False
        self.address = dataclasses.replace(self.address, host=host, port=port)
        return True

    def close(self, linger: float = 0.0) -> None:
        """Close the port after ``linger`` seconds: tasks of a batch that was given up may just be starting."""
        self._closed.set()
        self._occupied.set()
        self._background.submit(self._close(linger))

    def stop_all(self) -> None:
        """Stop all tasks, also those that connect later."""
        self._background.submit(self._stop_all()).result()

    def stop(self, attempt: TaskAttempt) -> None:
        """Stop one task."""
        self._background.loop.call_soon_threadsafe(self._send_stop, attempt)

    def tasks(self) -> set[TaskAttempt]:
        """Return the tasks that are connected."""
        return self._background.submit(self._connected()).result()

    def wait_for_tasks(self, pause: float) -> bool:
        """Wait until a task is connected, and for ``pause`` seconds; return False once the channel is closed."""
        self._occupied.wait()
        return not self._closed.wait(pause)

    async def _open(self, bind: str) -> int:
        self._server = await asyncio.start_server(self._accept, bind, 0, limit=HELLO_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            attempt = await self._read_hello(reader)
            if attempt is not None and attempt not in self._tasks:
                await self._serve(attempt, reader, writer)
        except OSError:
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _read_hello(self, reader: asyncio.StreamReader) -> TaskAttempt | None:
        if self._strangers >= self._most_strangers:
            return None
        self._strangers += 1
        try:
            return self.address.attempt_of(await asyncio.wait_for(reader.readexactly(HELLO_BYTES), self._hello_seconds))
        except (asyncio.IncompleteReadError, asyncio.TimeoutError):
            return None
        finally:
            self._strangers -= 1

    async def _serve(self, attempt: TaskAttempt, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks[attempt] = writer
        self._occupied.set()
        try:
            self._compare(attempt)
            # A task says nothing more; the read ends with the connection.
            while await reader.read(HELLO_BYTES):
                pass
        finally:
            del self._tasks[attempt]
            if self._by_stage:
                self._forget(attempt)
            if not self._tasks and not self._closed.is_set():
                self._occupied.clear()

    def _compare(self, attempt: TaskAttempt) -> None:
        """Stop the older of two attempts, whichever connects first."""
        others = self._attempts.setdefault(self._place_of(attempt), [])
        if attempt not in others:
            others.append(attempt)
        self.repeated = self.repeated or len(others) > 1
        if self._stopped or any(other.replaces(attempt) for other in others):
            self._send_stop(attempt)
        for other in others:
            if attempt.replaces(other):
                self._send_stop(other)

    def _place_of(self, attempt: TaskAttempt) -> tuple[int, int]:
        return (attempt.stage if self._by_stage else 0), attempt.partition

    def _forget(self, attempt: TaskAttempt) -> None:
        others = self._attempts[self._place_of(attempt)]
        others.remove(attempt)
        if not others:
            del self._attempts[self._place_of(attempt)]

    def _send_stop(self, attempt: TaskAttempt) -> None:
        # uvloop refuses to write to a connection that is being closed.
        with contextlib.suppress(KeyError, RuntimeError):
            self._tasks[attempt].write(self.address.stop_message(attempt))

    async def _stop_all(self) -> None:
        self._stopped = True
        for attempt in self._tasks:
            self._send_stop(attempt)

    async def _connected(self) -> set[TaskAttempt]:
        return set(self._tasks)

    async def _close(self, linger: float) -> None:
        await asyncio.sleep(linger)
        assert self._server is not None
        self._server.close()
        for writer in list(self._connections):
            writer.close()
        asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self._background.end)


def batch_channel(df: DataFrame, *, wanted: bool = True) -> contextlib.AbstractContextManager[DriverChannel | None]:
    """Open the channel of one batch, and stop its tasks at the end; None: this driver opens no port."""
    if not wanted or is_connect(df):
        return contextlib.nullcontext()
    return opened_channel(*_addresses(df))


@contextlib.contextmanager
def opened_channel(bind: str, host: str) -> Iterator[DriverChannel | None]:
    """Open a channel at an address, and stop its tasks at the end; None: no port opens."""
    channel = DriverChannel()
    if not channel.open(bind, host):
        yield None
        return
    linger = _LINGER_SECONDS
    try:
        yield channel
        linger = 0.0
    finally:
        try:
            channel.stop_all()
        finally:
            channel.close(linger)


#: The channels of the applications' lazy enrichments; None: no port opens. A context that has ended is dropped.
_lazy: weakref.WeakKeyDictionary[Any, DriverChannel | None] = weakref.WeakKeyDictionary()
_lazy_lock = threading.Lock()


def lazy_channel_address(df: DataFrame, *, wanted: bool = True) -> ChannelAddress | None:
    """Return the address for tasks of a lazy enrichment; None: this driver opens no port."""
    if not wanted or is_connect(df):
        return None
    context = df.sparkSession.sparkContext
    with _lazy_lock:
        if context not in _lazy:
            channel = DriverChannel(by_stage=True)
            _lazy[context] = channel if channel.open(*_addresses(df)) else None
            if _lazy[context] is not None:
                # The thread must not keep the context, whose end closes the channel.
                weakref.finalize(context, channel.close).atexit = False
                watch, tracker = "spark-events-enrich-stages", context.statusTracker()
                threading.Thread(target=_watch_stages, args=(channel, tracker), name=watch, daemon=True).start()
        found = _lazy[context]
    return None if found is None else found.address


def _watch_stages(channel: DriverChannel, tracker: Any) -> None:
    """Stop the tasks of stages that have ended: their job was cancelled, has failed, or has enough rows.

    Spark's own view lags behind its tasks. So a stage has ended only if it is inactive and Spark has seen its tasks.
    """
    inactive_looks: dict[int, int] = {}
    while channel.wait_for_tasks(_LOOK_SECONDS):
        try:
            tasks = channel.tasks()
            inactive = {attempt.stage for attempt in tasks}.difference(tracker.getActiveStageIds())
            begun = [stage for stage in inactive if _has_begun(tracker.getStageInfo(stage))]
        except Exception as error:
            # The application has been stopped, and its tasks with it.
            _LOG.debug("driver channel: Spark no longer tells its active stages: %s", error)
            return
        inactive_looks = {stage: inactive_looks.get(stage, 0) + 1 for stage in begun}
        for attempt in tasks:
            if inactive_looks.get(attempt.stage, 0) >= _LOOKS_INACTIVE:
                channel.stop(attempt)


def _has_begun(stage: Any) -> bool:
    return stage is not None and bool(stage.numActiveTasks or stage.numCompletedTasks or stage.numFailedTasks)


def _addresses(df: DataFrame) -> tuple[str, str]:
    """Return the address to listen at, and the one by which executors reach it."""
    if is_local(df):
        return _LOOPBACK, _LOOPBACK
    conf = df.sparkSession.sparkContext.getConf()
    host = str(conf.get("spark.driver.host", _LOOPBACK)).strip("[]")
    return str(conf.get("spark.driver.bindAddress", host)).strip("[]"), host


def may_have_two_results(
    session: SparkSession, rdd: Any, copies: int, reports: Sequence[PartitionReport], channel: DriverChannel | None
) -> bool:
    """Return whether a stored batch may hold two results of one partition.

    Spark computes a partition twice at the same time by speculation, and when a stage is attempted anew. Both tasks may
    store their result, on two executors, and a reader takes either. To Spark they are equal; calls to the outside
    world make them differ. In local mode a partition has one place, so this is asked for a cluster only.

    Counting blocks alone would not do: the older attempt may store its own later, or in the place of a replica.

    Args:
        session: whose cluster it is.
        rdd: Java's, stored.
        copies: of every partition that there should be.
        reports: of its tasks.
        channel: to which tasks have connected; not all may have reached it.
    """
    if channel is not None and channel.repeated:
        return True
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in {report.stage for report in reports}]
    if any(stage is not None and stage.currentAttemptId > 0 for stage in stages):
        return True
    speculates = str(session.conf.get("spark.speculation", "false")).lower() == "true"
    if not speculates and None not in stages:
        return False
    try:
        return _most_blocks(session, rdd) > copies
    except Exception:
        # A method of Spark's that no documentation promises; one copy too many does no harm.
        return True


def _most_blocks(session: SparkSession, rdd: Any) -> int:
    """Return the most places of one partition, as of the beginning of the job that read the reports.

    (The ``BlockManager``, which knows it at any time, py4j cannot look at on Spark 4.3.)
    """
    scala: Any = session.sparkContext._jsc.sc()
    return max((scala.getPreferredLocs(rdd, part).size() for part in range(rdd.getNumPartitions())), default=0)
