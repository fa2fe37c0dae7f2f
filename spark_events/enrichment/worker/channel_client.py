"""Worker side of the driver channel, over which the driver stops a task whose calls are no longer needed.

Spark does not notify a Python worker that its job is cancelled. It kills the worker at least two seconds later; until
then, the worker continues its calls. Spark also does not kill a task that a new attempt of its stage has replaced. The
driver detects both cases immediately, so it opens a port. Every task connects to the port, reports its attempt, and
waits.

The channel is optional: if executors cannot reach the port, tasks run until Spark kills them.

Every few seconds, and at its end, a task reports its progress over its connection. If the job has limits, the task also
asks for leases (:mod:`spark_events.enrichment.engine.ledger`). Several times per second, the task reports latencies and
rejections, and receives its share of the job's window and allowed rate (:mod:`.engine.job_state`):

    task:    hello          request 0          progress 1         request 2          report 3
    driver:                        lease 0                               lease 2             share 0      stop

All messages except the hello and stop messages consist of a proof, a length and JSON. A stop message consists of a
proof only.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import hmac
import json
import logging
import os
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.job_state import TaskState
from spark_events.enrichment.engine.ledger import Ask, Lease
from spark_events.enrichment.engine.loop import BackgroundLoop

_LOG = logging.getLogger(__name__)
_CONNECT_SECONDS = 10.0
#: The same after this process has waited in vain. Its next tasks would otherwise each wait as long before their calls.
_RECONNECT_SECONDS = 1.0
#: Hosts for which this process has waited in vain.
_silent: set[str] = set()
#: Time between the loss of the connection and the even share, in seconds.
_LOST_SECONDS = 5.0
_ATTEMPT = struct.Struct(">qqqq")
_PROOF_BYTES = 32
HELLO_BYTES = _ATTEMPT.size + _PROOF_BYTES
_LENGTH = struct.Struct(">I")
#: Maximum size of a message in bytes; a lease request with the time slots of a whole minute has a few thousand bytes.
_MOST_BYTES = 1 << 16
#: Kinds of messages from a task, and of the driver's messages.
ASK, PROGRESS, REPORT = b"asks", b"done", b"seen"
LEASE, SHARE = b"give", b"part"
_Body = Sequence[Any] | Mapping[str, Any]


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
        progress_seconds: time between two reports of a task's progress.
    """

    host: str
    port: int
    secret: bytes
    progress_seconds: float = 5.0

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

    def message(self, kind: bytes, attempt: TaskAttempt, number: int, body: _Body) -> bytes:
        """Return a message of or to a task. Messages of the task, leases and shares are numbered separately.

        A lease has the number of its request.
        """
        return self._sealed(kind, attempt, number, json.dumps(body).encode())

    def _sealed(self, what: bytes, attempt: TaskAttempt, number: int, body: bytes) -> bytes:
        proof = self._proof(what, _ATTEMPT.pack(*attempt) + _LENGTH.pack(number) + body)
        return proof + _LENGTH.pack(len(body)) + body

    async def read(
        self, reader: asyncio.StreamReader, attempt: TaskAttempt, numbers: Mapping[bytes, int], proof: bytes = b""
    ) -> tuple[bytes, Any]:
        """Read the next message, and return its kind and content.

        Args:
            reader: the connection.
            attempt: the task.
            numbers: the allowed kinds, with the number that a message of the kind must have.
            proof: the beginning of the message, if it has been read.

        Raises:
            OSError: when the message is invalid.
        """
        proof = proof or await reader.readexactly(_PROOF_BYTES)
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > _MOST_BYTES:
            raise _ForeignMessageError(f"a message of {length:,} bytes")
        body = await reader.readexactly(length)
        for kind, number in numbers.items():
            if hmac.compare_digest(proof, self._sealed(kind, attempt, number, body)[:_PROOF_BYTES]):
                return kind, json.loads(body)
        raise _ForeignMessageError("a message without a valid proof")

    @contextlib.contextmanager
    def listening(
        self,
        loop: BackgroundLoop,
        attempt: TaskAttempt,
        on_stop: Callable[[], None],
        share: JobShare | None = None,
        alone: Callable[[str], Awaitable[None]] | None = None,
        progress: Callable[[], Mapping[str, Any]] | None = None,
        state: TaskState | None = None,
    ) -> Iterator[None]:
        """Call ``on_stop()`` on the loop when the driver stops this task.

        Args:
            loop: the loop of the worker process.
            attempt: this task.
            on_stop: called at most once.
            share: requests leases over the connection; None if the job has no limits.
            alone: called with the reason if the driver is unreachable, to run share and state without the driver. If
                there is neither, a lost connection has no effect.
            progress: returns the task's progress; None: it reports none.
            state: reports over the connection; None if the task shares nothing.
        """
        listener = _Listener(self, attempt, on_stop, share, alone, progress, state)
        with loop.running(listener.run):
            try:
                yield
            finally:
                listener.is_over = True


class _Listener:
    """A task's connection to the driver: waits for the stop message, and requests leases.

    Args: see :meth:`ChannelAddress.listening`.

    Attributes:
        is_over: whether the task has ended.
    """

    def __init__(
        self,
        address: ChannelAddress,
        attempt: TaskAttempt,
        on_stop: Callable[[], None],
        share: JobShare | None,
        alone: Callable[[str], Awaitable[None]] | None,
        progress: Callable[[], Mapping[str, Any]] | None,
        state: TaskState | None,
    ) -> None:
        self.is_over = False
        self._address = address
        #: Without the port, which is another one in each batch, so that the driver logs equal warnings once.
        self._peer = f"the driver at {address.host}"
        self._attempt = attempt
        self._on_stop = on_stop
        self._share = share
        self._alone = alone
        self._progress = progress
        self._state = state
        #: Number of the next message, of the next share, and of the latest lease request with its lease.
        self._number = self._shares = self._asked = 0
        self._lease: asyncio.Future[Lease] | None = None

    async def run(self) -> None:
        """Connect, and use the connection until it closes; runs again after a cancellation by a user's function."""
        self._number = self._shares = self._asked = 0
        host, port = self._address.host, self._address.port
        seconds = _RECONNECT_SECONDS if host in _silent else _CONNECT_SECONDS
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), seconds)
        except (OSError, asyncio.TimeoutError) as error:
            _LOG.debug("driver channel: cannot connect to %s:%s: %s", host, port, error)
            if not isinstance(error, ConnectionRefusedError):
                _silent.add(host)
            why = f"cannot connect to {self._peer} ({_reason(error)})"
        else:
            _silent.discard(host)
            why = await self._attend(reader, writer)
            if why and self._is_needed:
                # If the driver has exited, Spark ends this process soon. Until then, start no calls beyond the lease,
                # because the calls of other tasks may use the whole limit.
                await asyncio.sleep(_LOST_SECONDS)
        if why and self._is_needed and self._alone is not None and not self.is_over:
            await self._alone(why)

    @property
    def _is_needed(self) -> bool:
        return self._share is not None or self._state is not None

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Use the connection until it closes; return the reason, or "" after the stop message."""
        address, attempt, share, state = self._address, self._attempt, self._share, self._state
        sending: list[asyncio.Task[None]] = []
        try:
            if self.is_over:
                # The task ended while the connection was opened; before Python 3.12, asyncio.wait_for may lose this
                # cancellation.
                return ""
            writer.write(address.hello(attempt))
            if share is not None:
                sending.append(asyncio.ensure_future(share.run(functools.partial(self._lease_for, writer))))
            if self._progress is not None:
                sending.append(asyncio.ensure_future(self._report(writer)))
            if state is not None:
                state.connect(lambda part, report: self._send(writer, REPORT, (part, report)))
            while not hmac.compare_digest(
                proof := await reader.readexactly(_PROOF_BYTES), address.stop_message(attempt)
            ):
                kind, body = await address.read(reader, attempt, {LEASE: self._asked, SHARE: self._shares}, proof)
                if kind == SHARE and state is not None:
                    self._shares += 1
                    state.receive(*body)
                elif self._lease is not None and not self._lease.done():
                    self._lease.set_result(Lease(*body))
            self._on_stop()
            return ""
        except (OSError, asyncio.IncompleteReadError) as error:
            # The driver has exited, or a firewall has closed the connection. Spark itself detects a driver that has
            # exited.
            _LOG.debug("driver channel: lost the connection to %s: %s", self._peer, error)
            return f"lost the connection to {self._peer}"
        finally:
            for task in sending:
                task.cancel()
            if state is not None:
                state.leave()
            if share is not None:
                self._send(writer, ASK, share.ask(is_last=True))
            if self._progress is not None:
                self._send(writer, PROGRESS, self._progress())
            writer.close()

    async def _report(self, writer: asyncio.StreamWriter) -> None:
        """Report the progress of the task until its end."""
        assert self._progress is not None
        while True:
            await asyncio.sleep(self._address.progress_seconds)
            self._send(writer, PROGRESS, self._progress())

    async def _lease_for(self, writer: asyncio.StreamWriter, ask: Ask) -> Lease:
        """Send a lease request and wait for the lease."""
        self._lease = asyncio.get_running_loop().create_future()
        self._asked = self._number
        self._send(writer, ASK, ask)
        return await self._lease

    def _send(self, writer: asyncio.StreamWriter, kind: bytes, body: _Body) -> None:
        with contextlib.suppress(RuntimeError):  # uvloop refuses to write to a connection that is being closed
            writer.write(self._address.message(kind, self._attempt, self._number, body))
        self._number += 1


def _reason(error: Exception) -> str:
    """Describe why a connection failed; asyncio's own message contains the port."""
    if isinstance(error, asyncio.TimeoutError):
        return "timeout"
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number > 0 else type(error).__name__
