"""Workers hear at once that nobody wants their calls any more.

Spark does not tell a Python worker that its job is cancelled: it kills it, two seconds later at the earliest, and until
then it goes on calling. The driver knows at once, for the action that it waits for fails. So while a batch is enriched
the driver has a port open, every task holds a connection to it, and over this one word is sent when the batch is over.

Nothing depends on it: where executors cannot reach that port, what Spark does is all that is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import logging
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from spark_events.enrich.engine.loop import BackgroundLoop
from spark_events.enrich.spark.batches import is_connect, is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Halt", "halting", "told_to_halt"]

_LOG = logging.getLogger(__name__)
_LOOPBACK = "127.0.0.1"
_WORD_BYTES = 16
_CONNECT_SECONDS = 10.0
_CLOSE_SECONDS = 1.0
#: Spark kills the tasks of a job that has ended after four seconds at the latest.
_LINGER_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Halt:
    """Where a task hears it.

    Attributes:
        host: the driver's.
        port: open while the batch runs.
        word: what is said. Only the driver of this batch knows it, so nobody else who has the port can stop anything.
    """

    host: str
    port: int
    word: bytes

    @contextlib.contextmanager
    def heeded(self, loop: BackgroundLoop, on_halt: Callable[[], None]) -> Iterator[None]:
        """``on_halt()`` is called on the loop when the word is said; a connection that fails says nothing."""
        listening = loop.submit(self._listen(on_halt))
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has ended with its process
                listening.cancel()

    async def _listen(self, on_halt: Callable[[], None]) -> None:
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(self.host, self.port), _CONNECT_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:
            _LOG.debug("the driver at %s:%d cannot be reached: %s", self.host, self.port, error)
            return
        try:
            if hmac.compare_digest(await reader.readexactly(_WORD_BYTES), self.word):
                on_halt()
        except (OSError, asyncio.IncompleteReadError) as error:
            # A driver that has gone, or a firewall that forgets: Spark will tell one from the other.
            _LOG.debug("the driver at %s:%d is silent: %s", self.host, self.port, error)
        finally:
            writer.close()


def told_to_halt(df: DataFrame, *, wanted: bool = True) -> contextlib.AbstractContextManager[Halt | None]:
    """Inside, tasks may be given what it returns; at its end they are told. None: this driver cannot tell them."""
    if not wanted or is_connect(df):
        return contextlib.nullcontext()
    if is_local(df):
        return halting(_LOOPBACK, _LOOPBACK)
    conf = df.sparkSession.sparkContext.getConf()
    host = str(conf.get("spark.driver.host", _LOOPBACK)).strip("[]")
    return halting(str(conf.get("spark.driver.bindAddress", host)).strip("[]"), host)


@contextlib.contextmanager
def halting(bind: str, host: str) -> Iterator[Halt | None]:
    """The driver's side.

    Args:
        bind: the address to listen at.
        host: the address by which executors reach it.
    """
    background = BackgroundLoop()
    desk = _Desk()
    try:
        port = background.submit(desk.open(bind)).result()
    except OSError as error:
        _LOG.warning("workers cannot be told when a batch is given up, for no port opens at %s: %s", bind, error)
        background.close(_CLOSE_SECONDS)
        yield None
        return
    linger = _LINGER_SECONDS
    try:
        yield Halt(host, port, desk.word)
        linger = 0.0
    finally:
        background.submit(desk.tell()).result()
        background.submit(desk.close(linger, background.end))


class _Desk:
    """Where the tasks of one batch wait."""

    def __init__(self) -> None:
        self.word = secrets.token_bytes(_WORD_BYTES)
        self._over = False
        self._waiting: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def open(self, bind: str) -> int:
        self._server = await asyncio.start_server(self._wait, bind, 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _wait(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._waiting.add(writer)
        try:
            if self._over:
                writer.write(self.word)
            # Nobody has anything to say here; what ends is the connection.
            while await reader.read(_WORD_BYTES):
                pass
        except OSError:
            pass
        finally:
            self._waiting.discard(writer)
            writer.close()

    async def tell(self) -> None:
        """Says the word to all that wait, and to who comes yet."""
        self._over = True
        for writer in self._waiting:
            writer.write(self.word)

    async def close(self, linger: float, end: Callable[[], None]) -> None:
        """Ends the port and the loop, after a while: of a batch that was given up, tasks may just be starting."""
        await asyncio.sleep(linger)
        assert self._server is not None
        self._server.close()
        for writer in list(self._waiting):
            writer.close()
        asyncio.get_running_loop().call_later(_CLOSE_SECONDS, end)
