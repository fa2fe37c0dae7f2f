"""Worker side of the driver channel, over which the driver notifies a task that its calls are no longer wanted.

Spark does not notify a Python worker that its job is cancelled: it kills the worker at least two seconds later, and the
worker continues to call until then. Nor does Spark end a task that a new attempt of its stage has replaced. The driver
knows of both at once. So it opens a port; every task connects, reports its attempt, and waits.

The channel is optional: if executors cannot reach the port, tasks run until Spark kills them.
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

_LOG = logging.getLogger(__name__)
_CONNECT_SECONDS = 10.0
_ATTEMPT = struct.Struct(">qqqq")
_PROOF_BYTES = 32
HELLO_BYTES = _ATTEMPT.size + _PROOF_BYTES


class TaskAttempt(NamedTuple):
    """Identity of one attempt of a partition; Spark may run several attempts at the same time.

    Attributes:
        partition: the number of the partition.
        stage: the id of the stage, which is the same in all attempts of the stage.
        number: the attempt number of this task, from 0; it restarts at 0 in a new attempt of the stage.
        task: Spark's id of this attempt; later attempts have greater ids.
    """

    partition: int = 0
    stage: int = 0
    number: int = 0
    task: int = 0

    def replaces(self, other: TaskAttempt) -> bool:
        """Return whether Spark has abandoned the stage attempt that the other task attempt belongs to.

        True is certain. Within one attempt of a stage, attempt numbers grow with the ids; two attempts of a task run
        there at the same time only by speculation, and Spark uses the first result.
        """
        if self.partition != other.partition or self.task <= other.task:
            return False
        return self.stage != other.stage or self.number <= other.number


@dataclasses.dataclass(frozen=True, slots=True)
class ChannelAddress:
    """Address and secret by which tasks reach the driver.

    Attributes:
        host: the driver's host.
        port: the port of the channel.
        secret: known only to the driver and its tasks. It is never sent: messages are proofs derived from it, so a
            third party that reaches the port cannot stop a task, even after reading every message.
    """

    host: str
    port: int
    secret: bytes

    def hello(self, attempt: TaskAttempt) -> bytes:
        """Return the only message that a task sends."""
        packed = _ATTEMPT.pack(*attempt)
        return packed + self._proof(b"task", packed)

    def attempt_of(self, hello: bytes) -> TaskAttempt | None:
        """Return the attempt in a hello message, or None if its proof is wrong."""
        attempt = TaskAttempt(*_ATTEMPT.unpack(hello[: _ATTEMPT.size]))
        return attempt if hmac.compare_digest(hello, self.hello(attempt)) else None

    def stop_message(self, attempt: TaskAttempt) -> bytes:
        """Return the only message that the driver sends; it differs for every task."""
        return self._proof(b"halt", _ATTEMPT.pack(*attempt))

    def _proof(self, what: bytes, packed: bytes) -> bytes:
        return hmac.digest(self.secret, what + packed, "sha256")

    @contextlib.contextmanager
    def listening(self, loop: BackgroundLoop, attempt: TaskAttempt, on_stop: Callable[[], None]) -> Iterator[None]:
        """Call ``on_stop()`` on the loop when the driver stops this task; a lost connection has no effect."""
        over = threading.Event()
        listener = loop.submit(self._listen(attempt, on_stop, over))
        try:
            yield
        finally:
            over.set()
            with contextlib.suppress(RuntimeError):  # the loop ended with its process
                listener.cancel()

    async def _listen(self, attempt: TaskAttempt, on_stop: Callable[[], None], over: threading.Event) -> None:
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(self.host, self.port), _CONNECT_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:
            _LOG.debug("driver channel %s:%d: cannot connect: %s", self.host, self.port, error)
            return
        try:
            if over.is_set():
                # The task ended while the connection opened: before Python 3.12, asyncio.wait_for may lose that
                # cancellation.
                return
            writer.write(self.hello(attempt))
            if hmac.compare_digest(await reader.readexactly(_PROOF_BYTES), self.stop_message(attempt)):
                on_stop()
        except (OSError, asyncio.IncompleteReadError) as error:
            # The driver has exited, or a firewall has closed the connection; Spark detects the former.
            _LOG.debug("driver channel %s:%d: connection lost: %s", self.host, self.port, error)
        finally:
            writer.close()
