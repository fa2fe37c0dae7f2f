"""Worker side of the driver channel, over which the driver stops a task whose calls are no longer needed.

Spark does not notify a Python worker that its job is cancelled. It kills the worker at least two seconds later; until
then, the worker continues its calls. Spark also does not kill a task that a new attempt of its stage has replaced. The
driver detects both cases immediately, so it opens a port. Every task connects to the port, reports its attempt, and
waits.

The channel is optional: if executors cannot reach the port, tasks run until Spark kills them.

If the job has limits, a task also asks for leases over its connection (:mod:`spark_events.enrichment.engine.ledger`):

    task:    hello          request 0          request 1
    driver:                        lease 0            lease 1      stop

A request and a lease consist of a proof, a length and JSON. A stop message consists of a proof only.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import logging
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.ledger import Ask, Lease
from spark_events.enrichment.engine.loop import BackgroundLoop

_LOG = logging.getLogger(__name__)
_CONNECT_SECONDS = 10.0
#: Time between the loss of the connection and the even share, in seconds.
_LOST_SECONDS = 5.0
_ATTEMPT = struct.Struct(">qqqq")
_PROOF_BYTES = 32
HELLO_BYTES = _ATTEMPT.size + _PROOF_BYTES
_LENGTH = struct.Struct(">I")
#: Maximum size of a lease request in bytes; with the time slots of a whole minute, it has a few thousand bytes.
_MOST_BYTES = 1 << 16


class _ForeignMessageError(OSError):
    """Error: a message lacks a valid proof, the digest that shows that the sender knows the channel's secret."""


class TaskAttempt(NamedTuple):
    """Identity of one attempt of a partition; Spark may run several attempts at the same time.

    Attributes:
        partition: the number of the partition.
        stage: the id of the stage, which is the same in all attempts of the stage.
        number: the attempt number of this task, from 0; it begins at 0 again in a new attempt of the stage.
        task: Spark's id of this attempt; later attempts have greater ids.
    """

    partition: int = 0
    stage: int = 0
    number: int = 0
    task: int = 0

    def replaces(self, other: TaskAttempt) -> bool:
        """Return whether Spark has abandoned the stage attempt that the other task attempt belongs to.

        A result of True is certain. Within one attempt of a stage, two attempts of a task run at the same time only
        because of speculation: attempt numbers grow with the ids, and Spark uses the result of the attempt that
        finishes first.
        """
        if self.partition != other.partition or self.task <= other.task:
            return False
        return self.stage != other.stage or self.number <= other.number


@dataclasses.dataclass(frozen=True, slots=True)
class ChannelAddress:
    """Address and secret with which tasks reach the driver.

    Attributes:
        host: the driver's host.
        port: the port of the channel.
        secret: known only to the driver and its tasks. It is never sent: messages contain proofs, which are digests
            derived from it. A third party that reaches the port therefore cannot stop a task, even after reading every
            message.
    """

    host: str
    port: int
    secret: bytes

    def hello(self, attempt: TaskAttempt) -> bytes:
        """Return the first message that a task sends."""
        packed = _ATTEMPT.pack(*attempt)
        return packed + self._proof(b"task", packed)

    def attempt_of(self, hello: bytes) -> TaskAttempt | None:
        """Return the attempt in a hello message, or None if its proof is wrong."""
        attempt = TaskAttempt(*_ATTEMPT.unpack(hello[: _ATTEMPT.size]))
        return attempt if hmac.compare_digest(hello, self.hello(attempt)) else None

    def stop_message(self, attempt: TaskAttempt) -> bytes:
        """Return the message that stops a task; the message is different for every task."""
        return self._proof(b"halt", _ATTEMPT.pack(*attempt))

    def _proof(self, what: bytes, packed: bytes) -> bytes:
        return hmac.digest(self.secret, what + packed, "sha256")

    def ask(self, attempt: TaskAttempt, number: int, body: bytes) -> bytes:
        """Return the message of the lease request with this number."""
        return self._sealed(b"asks", attempt, number, body)

    def lease(self, attempt: TaskAttempt, number: int, body: bytes) -> bytes:
        """Return the message of the lease that answers this request."""
        return self._sealed(b"give", attempt, number, body)

    def _sealed(self, what: bytes, attempt: TaskAttempt, number: int, body: bytes) -> bytes:
        proof = self._proof(what, _ATTEMPT.pack(*attempt) + _LENGTH.pack(number) + body)
        return proof + _LENGTH.pack(len(body)) + body

    async def read_ask(self, reader: asyncio.StreamReader, attempt: TaskAttempt, number: int) -> bytes:
        """Read the lease request with this number.

        Raises:
            OSError: when the message is invalid.
        """
        proof = await reader.readexactly(_PROOF_BYTES)
        return await self._read(reader, proof, lambda body: self.ask(attempt, number, body))

    @staticmethod
    async def _read(reader: asyncio.StreamReader, proof: bytes, expected: Callable[[bytes], bytes]) -> bytes:
        """Read the part of a message after its proof."""
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > _MOST_BYTES:
            raise _ForeignMessageError(f"a message of {length:,} bytes")
        body = await reader.readexactly(length)
        if not hmac.compare_digest(proof, expected(body)[:_PROOF_BYTES]):
            raise _ForeignMessageError("a message without a valid proof")
        return body

    @contextlib.contextmanager
    def listening(
        self,
        loop: BackgroundLoop,
        attempt: TaskAttempt,
        on_stop: Callable[[], None],
        share: JobShare | None = None,
        alone: Callable[[str], Awaitable[None]] | None = None,
    ) -> Iterator[None]:
        """Call ``on_stop()`` on the loop when the driver stops this task.

        Args:
            loop: the loop of the worker process.
            attempt: this task.
            on_stop: called at most once.
            share: requests leases over the connection; None if the job has no limits.
            alone: called with the reason if the driver is unreachable, to run the share without the driver. If there is
                no share, a lost connection has no effect.
        """
        over = threading.Event()
        listener = loop.submit(self._listen(attempt, on_stop, over, share, alone))
        try:
            yield
        finally:
            over.set()
            with contextlib.suppress(RuntimeError):  # the loop ended with its process
                listener.cancel()

    async def _listen(
        self,
        attempt: TaskAttempt,
        on_stop: Callable[[], None],
        over: threading.Event,
        share: JobShare | None,
        alone: Callable[[str], Awaitable[None]] | None,
    ) -> None:
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(self.host, self.port), _CONNECT_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:
            _LOG.debug("driver channel %s:%d: cannot connect: %s", self.host, self.port, error)
            why = f"cannot connect to {self.host}:{self.port}: {str(error) or 'timeout'}"
        else:
            why = await self._attend(reader, writer, attempt, on_stop, over, share)
            if why and share is not None:
                # If the driver has exited, Spark ends this process soon. Until then, start no calls beyond the lease,
                # because the calls of other tasks may use the whole limit.
                await asyncio.sleep(_LOST_SECONDS)
        if why and share is not None and alone is not None and not over.is_set():
            await alone(why)

    async def _attend(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        attempt: TaskAttempt,
        on_stop: Callable[[], None],
        over: threading.Event,
        share: JobShare | None,
    ) -> str:
        """Use the connection until it closes; return the reason, or "" after the stop message."""
        conversation = _Conversation(self, attempt, writer)
        asking: asyncio.Task[None] | None = None
        try:
            if over.is_set():
                # The task ended while the connection was opened; before Python 3.12, asyncio.wait_for may lose this
                # cancellation.
                return ""
            writer.write(self.hello(attempt))
            if share is not None:
                asking = asyncio.ensure_future(share.run(conversation.lease_for))
            while not hmac.compare_digest(proof := await reader.readexactly(_PROOF_BYTES), self.stop_message(attempt)):
                if share is None:
                    raise _ForeignMessageError("a message without a valid proof")
                conversation.answered(await self._read(reader, proof, conversation.expected))
            on_stop()
            return ""
        except (OSError, asyncio.IncompleteReadError) as error:
            # The driver has exited, or a firewall has closed the connection. Spark itself detects a driver that has
            # exited.
            _LOG.debug("driver channel %s:%d: connection lost: %s", self.host, self.port, error)
            return f"lost the connection to {self.host}:{self.port}: {error}"
        finally:
            if asking is not None:
                asking.cancel()
            if share is not None:
                conversation.send(share.ask(is_last=True))
            writer.close()


class _Conversation:
    """Numbered lease requests of a task, and the leases that answer them."""

    def __init__(self, address: ChannelAddress, attempt: TaskAttempt, writer: asyncio.StreamWriter) -> None:
        self._address = address
        self._attempt = attempt
        self._writer = writer
        self._number = 0
        self._lease: asyncio.Future[Lease] | None = None

    def send(self, ask: Ask) -> None:
        """Send a lease request, if the connection is open."""
        with contextlib.suppress(RuntimeError):  # uvloop refuses to write to a connection that is being closed
            self._writer.write(self._address.ask(self._attempt, self._number, ask.to_bytes()))
        self._number += 1

    async def lease_for(self, ask: Ask) -> Lease:
        """Send a lease request and wait for the lease."""
        self._lease = asyncio.get_running_loop().create_future()
        self.send(ask)
        return await self._lease

    def expected(self, body: bytes) -> bytes:
        """Return the message of the lease for the last request."""
        return self._address.lease(self._attempt, self._number - 1, body)

    def answered(self, body: bytes) -> None:
        """Deliver a lease to the request that waits for it."""
        if self._lease is not None and not self._lease.done():
            self._lease.set_result(Lease.from_bytes(body))
