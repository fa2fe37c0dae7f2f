"""Driver side of the driver channel, a port over which the driver stops tasks whose calls are no longer needed.

Each batch of ``enrich_batch`` has a separate channel, which is open while the batch runs. A thread on the driver waits
for the batch; when the wait ends, the thread stops the batch's tasks. The channel of a lazy enrichment stops no task,
because no thread waits for its jobs, and stays open, because Spark may compute the DataFrame at any time.

Tasks also report their progress and their attempt, so that the driver can detect two attempts that may both have stored
a result. If the job has limits, the tasks lease parts of the limits over this channel. They also
share the window of the job, and the rate that the destination allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.driver.micro_batch import is_connect, is_local
from spark_events.enrichment.driver.progress import Progress
from spark_events.enrichment.engine.job_state import JobState, Send
from spark_events.enrichment.engine.ledger import Ask, Lease, Ledger, granted
from spark_events.enrichment.engine.loop import BackgroundLoop
from spark_events.enrichment.worker.channel_client import (
    ASK,
    HELLO_BYTES,
    LEASE,
    PROGRESS,
    REPORT,
    SHARE,
    ChannelAddress,
    TaskAttempt,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_events.enrichment.worker.report import PartitionReport

_LOG = logging.getLogger(__name__)
_LOOPBACK = "127.0.0.1"
_SECRET_BYTES = 16
_CLOSE_SECONDS = 1.0
#: Buffer size of a connection. With a smaller buffer, asyncio would pause reading at each message.
_BUFFER_BYTES = 1 << 16
#: After a job has ended, Spark kills its tasks within four seconds.
_LINGER_SECONDS = 5.0
#: Maximum number of open channels of lazy enrichments. The tasks of an older one share their limits evenly.
_MOST_LAZY = 16


class DriverChannel:
    """An open port and the tasks that are connected to it.

    Args:
        ledger: the limits of the job; None: the job has none.
        progress: collects what the tasks report; None: their reports are ignored.
        state: the window and the allowed rate of the job; None: the tasks do not share them.
        stops: whether the channel stops tasks, and compares attempts of one partition; not for lazy enrichments, whose
            partitions several jobs may compute at the same time.
        hello_seconds: time limit for the hello message, which a task sends with its first packet; after this time, the
            channel closes the connection.
        most_strangers: maximum number of connections that have not sent a hello message; the channel closes further
            connections immediately.

    Attributes:
        address: the address that tasks connect to.
        repeated: whether two attempts of one partition have connected.
    """

    def __init__(
        self,
        ledger: Ledger | None = None,
        progress: Progress | None = None,
        state: JobState | None = None,
        *,
        stops: bool = True,
        hello_seconds: float = 10.0,
        most_strangers: int = 1_000,
    ) -> None:
        self.address = ChannelAddress(_LOOPBACK, 0, secrets.token_bytes(_SECRET_BYTES))
        if progress is not None:
            self.address = dataclasses.replace(self.address, progress_seconds=progress.task_seconds)
        self.repeated = False
        self._ledger = ledger
        self._progress = progress
        self._state = state
        self._stops = stops
        self._hello_seconds = hello_seconds
        self._most_strangers = most_strangers
        self._background = BackgroundLoop()
        # Only the loop's thread uses the attributes below.
        self._stopped = False
        self._strangers = 0
        self._tasks: dict[TaskAttempt, asyncio.StreamWriter] = {}
        self._attempts: dict[int, list[TaskAttempt]] = {}
        self._connections: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    def open(self, bind: str, host: str) -> bool:
        """Open the port and return whether that succeeded.

        Args:
            bind: the address to listen on.
            host: the address by which executors reach the driver.
        """
        try:
            port = self._background.submit(self._open(bind)).result()
        except OSError as error:
            _LOG.warning(
                "driver channel: cannot open a port at %s (%s); abandoned tasks call until Spark kills them",
                bind,
                error,
            )
            self._background.close(_CLOSE_SECONDS)
            return False
        self.address = dataclasses.replace(self.address, host=host, port=port)
        return True

    def close(self, linger: float = 0.0) -> None:
        """Close the port after ``linger`` seconds, because tasks of an abandoned batch may still be starting."""
        self._background.submit(self._close(linger))

    def stop_all(self) -> None:
        """Stop all tasks, including those that connect later."""
        self._background.submit(self._stop_all()).result()

    async def _open(self, bind: str) -> int:
        self._server = await asyncio.start_server(self._accept, bind, 0, limit=_BUFFER_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            attempt = await self._read_hello(reader)
            if attempt is not None and attempt not in self._tasks:
                await self._serve(attempt, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # At exit, the loop cancels this task. Some versions of asyncio would log the cancellation as an error.
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
        # One task may connect twice, for two lazy enrichments of one stage.
        member: Hashable = attempt if self._stops else object()
        leasing: asyncio.Task[None] | None = None
        send = self._sender_of_shares(attempt, writer)
        try:
            if self._stops:
                self._tasks[attempt] = writer
                self._compare(attempt)
            for number in itertools.count():  # until the connection closes
                kind, body = await self.address.read(reader, attempt, dict.fromkeys((REPORT, ASK, PROGRESS), number))
                if kind == REPORT and self._state is not None:
                    part, report = body
                    self._state.report(member, part, report, send)
                elif kind == ASK and self._ledger is not None:
                    self._ledger.ask(member, Ask(*body))
                    if (lease := self._ledger.lease(member, at_once=False)) is not None:
                        self._send(LEASE, attempt, number, lease, writer)
                    else:
                        # Meanwhile, the task may report.
                        leasing = asyncio.ensure_future(
                            self._give_lease(granted(self._ledger, member), attempt, number, writer)
                        )
                elif kind == PROGRESS and self._progress is not None:
                    self._progress.update(attempt, body)
        finally:
            if leasing is not None:
                leasing.cancel()
            if self._ledger is not None:
                self._ledger.leave(member)
            if self._state is not None:
                self._state.leave(member)
            self._tasks.pop(attempt, None)

    async def _give_lease(
        self, lease: Awaitable[Lease], attempt: TaskAttempt, number: int, writer: asyncio.StreamWriter
    ) -> None:
        self._send(LEASE, attempt, number, await lease, writer)

    def _sender_of_shares(self, attempt: TaskAttempt, writer: asyncio.StreamWriter) -> Send:
        """Return a function that sends shares to a task, and that any thread may call."""
        numbers, loop = itertools.count(), asyncio.get_running_loop()

        def send(part: str, share: Sequence[Any]) -> None:
            loop.call_soon_threadsafe(lambda: self._send(SHARE, attempt, next(numbers), (part, share), writer))

        return send

    def _send(
        self, kind: bytes, attempt: TaskAttempt, number: int, body: Sequence[Any], writer: asyncio.StreamWriter
    ) -> None:
        # uvloop refuses to write to a connection that is being closed.
        with contextlib.suppress(RuntimeError):
            writer.write(self.address.message(kind, attempt, number, body))

    def _compare(self, attempt: TaskAttempt) -> None:
        """Stop the older of two attempts, whichever connects first."""
        others = self._attempts.setdefault(attempt.partition, [])
        if attempt not in others:
            others.append(attempt)
        self.repeated = self.repeated or len(others) > 1
        if self._stopped or any(other.replaces(attempt) for other in others):
            self._send_stop(attempt)
        for other in others:
            if attempt.replaces(other):
                self._send_stop(other)

    def _send_stop(self, attempt: TaskAttempt) -> None:
        # uvloop refuses to write to a connection that is being closed.
        with contextlib.suppress(KeyError, RuntimeError):
            self._tasks[attempt].write(self.address.stop_message(attempt))

    async def _stop_all(self) -> None:
        self._stopped = True
        for attempt in self._tasks:
            self._send_stop(attempt)

    async def _close(self, linger: float) -> None:
        await asyncio.sleep(linger)
        assert self._server is not None
        self._server.close()
        for writer in list(self._connections):
            writer.close()
        asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self._background.end)


def batch_channel(
    df: DataFrame,
    *,
    wanted: bool = True,
    ledger: Ledger | None = None,
    progress: Progress | None = None,
    state: JobState | None = None,
) -> contextlib.AbstractContextManager[DriverChannel | None]:
    """Return a context manager that opens the channel of one batch, and stops the batch's tasks on exit.

    The context manager yields None if the driver opens no port.
    """
    if not wanted or is_connect(df):
        return contextlib.nullcontext()
    return opened_channel(*_addresses(df), ledger, progress, state)


@contextlib.contextmanager
def opened_channel(
    bind: str,
    host: str,
    ledger: Ledger | None = None,
    progress: Progress | None = None,
    state: JobState | None = None,
) -> Iterator[DriverChannel | None]:
    """Open a channel at an address, and stop its tasks on exit; yield None if the port cannot be opened."""
    channel = DriverChannel(ledger, progress, state)
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


#: Open channels of lazy enrichments, by application, ledger and state, and the lock of this dictionary.
_lazy: OrderedDict[tuple[str, Ledger | None, JobState], DriverChannel] = OrderedDict()
_lazy_lock = threading.Lock()


def lazy_channel(df: DataFrame, ledger: Ledger | None, state: JobState) -> ChannelAddress | None:
    """Return the address at which the tasks of lazy enrichments share a ledger and a state; None: no open port."""
    if is_connect(df):
        return None
    application = str(df.sparkSession.sparkContext.applicationId)
    with _lazy_lock:
        key = (application, ledger, state)
        channel = _lazy.pop(key, None)
        if channel is None:
            channel = DriverChannel(ledger, state=state, stops=False)
            if not channel.open(*_addresses(df)):
                return None
        _lazy[key] = channel
        ended = [other for other in _lazy if other[0] != application]
        for other in ended or list(_lazy)[:-_MOST_LAZY]:
            _lazy.pop(other).close()
    return channel.address


def _addresses(df: DataFrame) -> tuple[str, str]:
    """Return the address to listen on and the address by which executors reach the driver."""
    if is_local(df):
        return _LOOPBACK, _LOOPBACK
    conf = df.sparkSession.sparkContext.getConf()
    host = str(conf.get("spark.driver.host", _LOOPBACK)).strip("[]")
    return str(conf.get("spark.driver.bindAddress", host)).strip("[]"), host


def may_have_two_results(
    session: SparkSession, reports: Sequence[PartitionReport], channel: DriverChannel | None
) -> bool:
    """Return whether a stored batch may contain two results of one partition.

    With speculation, or when Spark retries a stage, Spark may compute a partition twice at the same time. Both tasks
    may store their result, on two executors, and a reader uses one of the two. Spark assumes that the results are
    equal, but calls to external services may return different results. In local mode, a partition has only one
    location, so this check runs on clusters only.

    Counting the stored blocks would not be enough, because the older attempt may store its result later, or in place of
    a replica.

    Args:
        session: the Spark session of the batch.
        reports: the reports from its tasks.
        channel: the channel to which tasks have connected; some tasks may not have reached it.
    """
    if channel is not None and channel.repeated:
        return True
    if str(session.conf.get("spark.speculation", "false")).lower() == "true":
        return True
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in {report.stage for report in reports}]
    # None means that Spark has forgotten the stage.
    return any(stage is None or stage.currentAttemptId > 0 for stage in stages)
