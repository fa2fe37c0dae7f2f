"""The workers' end of the driver channel, over which a task hears that its calls are no longer wanted.

Spark does not tell a Python worker that its job is cancelled: it kills the worker two seconds later at the earliest,
and until then the worker goes on calling. Nor does Spark end a task that a new attempt of its stage has replaced. The
driver knows at once. So it opens a port; every task connects to it, says which attempt it is, and waits.

Nothing depends on the channel: where executors cannot reach the port, Spark's kill is all that happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import logging
import struct
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from spark_events.enrichment.engine.loop import BackgroundLoop

__all__ = ["HELLO_BYTES", "ChannelAddress", "TaskAttempt"]

_LOG = logging.getLogger(__name__)
_CONNECT_SECONDS = 10.0
_ATTEMPT = struct.Struct(">qqqq")
_PROOF_BYTES = 32
HELLO_BYTES = _ATTEMPT.size + _PROOF_BYTES


class TaskAttempt(NamedTuple):
    """One attempt at a partition; Spark may run several at the same time.

    Attributes:
        partition: its number.
        stage: the id of the stage, the same in all attempts of the stage.
        number: of the attempts of this task, from 0; a new attempt of the stage begins anew.
        task: Spark's id of this attempt; a later attempt has a greater one.
    """

    partition: int = 0
    stage: int = 0
    number: int = 0
    task: int = 0

    def replaces(self, other: TaskAttempt) -> bool:
        """Return whether Spark has given up the stage attempt that the other one belongs to.

        True is certain. Within one attempt of a stage, numbers grow with the ids; two attempts of a task run there at
        the same time by speculation, and Spark takes the first result.
        """
        if self.partition != other.partition or self.task <= other.task:
            return False
        return self.stage != other.stage or self.number <= other.number


@dataclasses.dataclass(frozen=True, slots=True)
class ChannelAddress:
    """Where tasks reach the driver.

    Attributes:
        host: the driver's.
        port: the channel's.
        secret: known to the driver and its tasks alone. It is never sent: messages are proofs made with it, so nobody
            else who reaches the port can stop a task, not even after listening to every message.
    """

    host: str
    port: int
    secret: bytes

    def hello(self, attempt: TaskAttempt) -> bytes:
        """Return a task's only message."""
        packed = _ATTEMPT.pack(*attempt)
        return packed + self._proof(b"task", packed)

    def attempt_of(self, hello: bytes) -> TaskAttempt | None:
        """Return the attempt that says hello; None: its proof is wrong."""
        attempt = TaskAttempt(*_ATTEMPT.unpack(hello[: _ATTEMPT.size]))
        return attempt if hmac.compare_digest(hello, self.hello(attempt)) else None

    def stop_message(self, attempt: TaskAttempt) -> bytes:
        """Return the driver's only message; it differs for every task."""
        return self._proof(b"halt", _ATTEMPT.pack(*attempt))

    def _proof(self, what: bytes, packed: bytes) -> bytes:
        return hmac.digest(self.secret, what + packed, "sha256")

    @contextlib.contextmanager
    def listening(self, loop: BackgroundLoop, attempt: TaskAttempt, on_stop: Callable[[], None]) -> Iterator[None]:
        """Call ``on_stop()`` on the loop when the driver stops this task; a broken connection stops nothing."""
        over = threading.Event()
        listener = loop.submit(self._listen(attempt, on_stop, over))
        try:
            yield
        finally:
            over.set()
            with contextlib.suppress(RuntimeError):  # the loop has ended with its process
                listener.cancel()

    async def _listen(self, attempt: TaskAttempt, on_stop: Callable[[], None], over: threading.Event) -> None:
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(self.host, self.port), _CONNECT_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:
            _LOG.debug("driver channel %s:%d: cannot connect: %s", self.host, self.port, error)
            return
        try:
            if over.is_set():
                # Cancelled just when it had connected: until Python 3.12, asyncio.wait_for forgets that.
                return
            writer.write(self.hello(attempt))
            if hmac.compare_digest(await reader.readexactly(_PROOF_BYTES), self.stop_message(attempt)):
                on_stop()
        except (OSError, asyncio.IncompleteReadError) as error:
            # The driver has gone, or a firewall has dropped the connection; Spark notices the former.
            _LOG.debug("driver channel %s:%d: connection lost: %s", self.host, self.port, error)
        finally:
            writer.close()
