"""Workers hear at once that nobody wants their calls any more.

Spark does not tell a Python worker that its job is cancelled: it kills it, two seconds later at the earliest, and until
then it goes on calling. Nor does it end a task that a new attempt of its stage has replaced. The driver knows at once:
the action that it waits for fails, or the new task connects. So while a batch is enriched the driver has a port open,
every task holds a connection to it, says there which one it is, and is told when it is not wanted any more.

Nothing depends on it: where executors cannot reach that port, what Spark does is all that is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import logging
import secrets
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from spark_events.enrich.engine.loop import BackgroundLoop
from spark_events.enrich.spark.attempt import Attempt
from spark_events.enrich.spark.batches import is_connect, is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Desk", "Halt", "halting", "standing_halt", "told_to_halt"]

_LOG = logging.getLogger(__name__)
_LOOPBACK = "127.0.0.1"
_WORD_BYTES = 16
_CONNECT_SECONDS = 10.0
_CLOSE_SECONDS = 1.0
#: Spark kills the tasks of a job that has ended after four seconds at the latest.
_LINGER_SECONDS = 5.0

_ATTEMPT = struct.Struct(">qqqq")
_PROOF_BYTES = 32
_NAME_BYTES = _ATTEMPT.size + _PROOF_BYTES
#: Who has connected has so long to say its name; a task says it with its first packet.
_NAME_SECONDS = 10.0
#: So many may be about to; who comes then is sent away.
_MOST_STRANGERS = 1_000
#: Between two looks at Spark's active stages, while tasks of lazy enrichments are connected.
_LOOK_SECONDS = 0.2
#: A stage that is attempted anew is inactive for a moment.
_LOOKS_WITHOUT = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Halt:
    """Where a task hears it.

    Attributes:
        host: the driver's.
        port: open while the batch runs.
        word: by which driver and tasks know each other. It is never sent; what is sent can only be made with it, so
            nobody else who has the port can stop anything, nor what has heard everything that was said.
    """

    host: str
    port: int
    word: bytes

    def name(self, attempt: Attempt) -> bytes:
        """What a task says first."""
        packed = _ATTEMPT.pack(*attempt)
        return packed + self._proof(b"task", packed)

    def answer(self, attempt: Attempt) -> bytes:
        """What it is told when it is not wanted any more; each is told something else."""
        return self._proof(b"halt", _ATTEMPT.pack(*attempt))

    def _proof(self, what: bytes, packed: bytes) -> bytes:
        return hmac.digest(self.word, what + packed, "sha256")

    @contextlib.contextmanager
    def heeded(self, loop: BackgroundLoop, attempt: Attempt, on_halt: Callable[[], None]) -> Iterator[None]:
        """``on_halt()`` is called on the loop when it is told so; a connection that fails says nothing."""
        over = threading.Event()
        listening = loop.submit(self._listen(attempt, on_halt, over))
        try:
            yield
        finally:
            over.set()
            with contextlib.suppress(RuntimeError):  # the loop has ended with its process
                listening.cancel()

    async def _listen(self, attempt: Attempt, on_halt: Callable[[], None], over: threading.Event) -> None:
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(self.host, self.port), _CONNECT_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:
            _LOG.debug("the driver at %s:%d cannot be reached: %s", self.host, self.port, error)
            return
        try:
            if over.is_set():
                # It was cancelled just when it had connected: until Python 3.12, asyncio.wait_for forgets that.
                return
            writer.write(self.name(attempt))
            if hmac.compare_digest(await reader.readexactly(_PROOF_BYTES), self.answer(attempt)):
                on_halt()
        except (OSError, asyncio.IncompleteReadError) as error:
            # A driver that has gone, or a firewall that forgets: Spark will tell one from the other.
            _LOG.debug("the driver at %s:%d is silent: %s", self.host, self.port, error)
        finally:
            writer.close()


def told_to_halt(df: DataFrame, *, wanted: bool = True) -> contextlib.AbstractContextManager[Desk | None]:
    """Inside, tasks may be given what its desk has for them; at its end they are told. None: this driver cannot."""
    if not wanted or is_connect(df):
        return contextlib.nullcontext()
    return halting(*_addresses(df))


def _addresses(df: DataFrame) -> tuple[str, str]:
    """Return the address to listen at, and the one by which executors reach it."""
    if is_local(df):
        return _LOOPBACK, _LOOPBACK
    conf = df.sparkSession.sparkContext.getConf()
    host = str(conf.get("spark.driver.host", _LOOPBACK)).strip("[]")
    return str(conf.get("spark.driver.bindAddress", host)).strip("[]"), host


#: The desk of each application's lazy enrichments; None: no port opens. Weakly held, as sessions are.
_standing: weakref.WeakKeyDictionary[Any, Desk | None] = weakref.WeakKeyDictionary()
_standing_lock = threading.Lock()


def standing_halt(df: DataFrame, *, wanted: bool = True) -> Halt | None:
    """Return what tasks of a lazy enrichment are given; None: this driver cannot tell them.

    No code of ours waits for their job, so a thread asks Spark for its active stages while tasks are connected. One
    port serves the application until it ends.
    """
    if not wanted or is_connect(df):
        return None
    context = df.sparkSession.sparkContext
    with _standing_lock:
        if context not in _standing:
            _standing[context] = _standing_desk(context, *_addresses(df))
        desk = _standing[context]
    return None if desk is None else desk.halt


def _standing_desk(context: Any, bind: str, host: str) -> Desk | None:
    desk = _opened(bind, host, by_stage=True)
    if desk is not None:
        # The thread must not keep the context: its end closes the desk.
        thread = threading.Thread(
            target=_watch_stages, args=(desk, context.statusTracker()), name="spark-events-enrich-stages", daemon=True
        )
        weakref.finalize(context, desk.close, 0.0).atexit = False
        thread.start()
    return desk


def _watch_stages(desk: Desk, tracker: Any) -> None:
    """Tell the tasks of stages that have ended, with a job that was cancelled, that failed, or has enough rows.

    Spark's own view lags behind its tasks. So a stage has ended only if it is inactive and Spark knows of its tasks.
    """
    ended: dict[int, int] = {}
    while desk.wait_for_tasks(_LOOK_SECONDS):
        try:
            here = desk.waiting()
            inactive = {attempt.stage for attempt in here}.difference(tracker.getActiveStageIds())
            ended = {stage: ended.get(stage, 0) + 1 for stage in inactive if _has_begun(tracker.getStageInfo(stage))}
        except Exception as error:
            # The application has been stopped, and its tasks with it.
            _LOG.debug("Spark no longer tells which stages are active: %s", error)
            return
        for attempt in here:
            if ended.get(attempt.stage, 0) >= _LOOKS_WITHOUT:
                desk.tell(attempt)


def _has_begun(stage: Any) -> bool:
    return stage is not None and bool(stage.numActiveTasks or stage.numCompletedTasks or stage.numFailedTasks)


def _opened(bind: str, host: str, *, by_stage: bool = False) -> Desk | None:
    background = BackgroundLoop()
    desk = Desk(background, by_stage=by_stage)
    try:
        desk.open(bind, host)
    except OSError as error:
        _LOG.warning(
            "workers cannot be told when their calls are no longer wanted: no port opens at %s: %s", bind, error
        )
        background.close(_CLOSE_SECONDS)
        return None
    return desk


@contextlib.contextmanager
def halting(bind: str, host: str) -> Iterator[Desk | None]:
    """The driver's side.

    Args:
        bind: the address to listen at.
        host: the address by which executors reach it.
    """
    desk = _opened(bind, host)
    if desk is None:
        yield None
        return
    linger = _LINGER_SECONDS
    try:
        yield desk
        linger = 0.0
    finally:
        try:
            desk.over()
        finally:
            desk.close(linger)


class Desk:
    """Where the tasks of one batch wait, or those of an application's lazy enrichments.

    Args:
        background: the loop that serves the port.
        by_stage: tasks of several enrichments come, so one replaces another of its own stage alone; who has left is
            forgotten.

    Attributes:
        halt: what they are given.
        repeated: whether it has heard of two attempts at one partition.
    """

    def __init__(self, background: BackgroundLoop, *, by_stage: bool = False) -> None:
        self._background = background
        self._by_stage = by_stage
        self._occupied = threading.Event()
        self._closed = threading.Event()
        self.halt = Halt(_LOOPBACK, 0, secrets.token_bytes(_WORD_BYTES))
        self.repeated = False
        # What follows is the loop's.
        self._over = False
        self._strangers = 0
        self._waiting: dict[Attempt, asyncio.StreamWriter] = {}
        self._attempts: dict[tuple[int, int], list[Attempt]] = {}
        self._connections: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    def open(self, bind: str, host: str) -> None:
        """Opens the port.

        Raises:
            OSError: there is none.
        """
        self.halt = dataclasses.replace(self.halt, host=host, port=self._background.submit(self._open(bind)).result())

    def over(self) -> None:
        """Tells all that wait that nobody wants them any more, and who comes yet."""
        self._background.submit(self._tell_all()).result()

    def close(self, linger: float) -> None:
        """Ends the port and the loop, after a while: of a batch that was given up, tasks may just be starting."""
        self._closed.set()
        self._occupied.set()
        self._background.submit(self._close(linger))

    def wait_for_tasks(self, pause: float) -> bool:
        """Wait until tasks are connected, and for ``pause`` seconds; False once the desk is closed."""
        self._occupied.wait()
        return not self._closed.wait(pause)

    def waiting(self) -> set[Attempt]:
        """The tasks that are connected; for any thread."""
        return self._background.submit(self._waiting_now()).result()

    async def _waiting_now(self) -> set[Attempt]:
        return set(self._waiting)

    def tell(self, attempt: Attempt) -> None:
        """Tell a task that its calls are no longer wanted; for any thread."""
        self._background.loop.call_soon_threadsafe(self._tell, attempt)

    async def _open(self, bind: str) -> int:
        self._server = await asyncio.start_server(self._met, bind, 0, limit=_NAME_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            attempt = await self._named(reader)
            if attempt is not None and attempt not in self._waiting:
                await self._seated(attempt, reader, writer)
        except OSError:
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _named(self, reader: asyncio.StreamReader) -> Attempt | None:
        """Who it is; None: no task of this batch."""
        if self._strangers >= _MOST_STRANGERS:
            return None
        self._strangers += 1
        try:
            said = await asyncio.wait_for(reader.readexactly(_NAME_BYTES), _NAME_SECONDS)
        except (asyncio.IncompleteReadError, asyncio.TimeoutError):
            return None
        finally:
            self._strangers -= 1
        attempt = Attempt(*_ATTEMPT.unpack(said[: _ATTEMPT.size]))
        return attempt if hmac.compare_digest(said, self.halt.name(attempt)) else None

    async def _seated(self, attempt: Attempt, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._waiting[attempt] = writer
        self._occupied.set()
        try:
            self._compare(attempt)
            # It has nothing more to say; what ends is the connection.
            while await reader.read(_NAME_BYTES):
                pass
        finally:
            del self._waiting[attempt]
            if self._by_stage:
                self._forget(attempt)
            if not self._waiting and not self._closed.is_set():
                self._occupied.clear()

    def _place_of(self, attempt: Attempt) -> tuple[int, int]:
        return (attempt.stage if self._by_stage else 0), attempt.partition

    def _forget(self, attempt: Attempt) -> None:
        others = self._attempts[self._place_of(attempt)]
        others.remove(attempt)
        if not others:
            del self._attempts[self._place_of(attempt)]

    def _compare(self, attempt: Attempt) -> None:
        """A task has come: it may have replaced another, or another it."""
        others = self._attempts.setdefault(self._place_of(attempt), [])
        if attempt not in others:
            others.append(attempt)
        self.repeated = self.repeated or len(others) > 1
        if self._over or any(other.replaces(attempt) for other in others):
            self._tell(attempt)
        for other in others:
            if attempt.replaces(other):
                self._tell(other)

    def _tell(self, attempt: Attempt) -> None:
        # uvloop does not write to one that is being closed; nor is anybody there to read it.
        with contextlib.suppress(KeyError, RuntimeError):
            self._waiting[attempt].write(self.halt.answer(attempt))

    async def _tell_all(self) -> None:
        self._over = True
        for attempt in self._waiting:
            self._tell(attempt)

    async def _close(self, linger: float) -> None:
        await asyncio.sleep(linger)
        assert self._server is not None
        self._server.close()
        for writer in list(self._connections):
            writer.close()
        asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self._background.end)
