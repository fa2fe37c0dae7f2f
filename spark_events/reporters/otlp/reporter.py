"""Reporter that exports events as OTLP LogRecords."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import ClassVar, Protocol

from spark_events.errors import MissingExtraError, PermanentError
from spark_events.event import Event
from spark_events.reporters.otlp.target import OtlpConfig, Target, target
from spark_events.reporters.otlp.verdicts import Refused, TooLarge
from spark_events.reporters.reporter import REQUEST_LINGER, Reporter

_LOG = logging.getLogger(__name__)
#: Maximum number of times a refused batch is halved. 30 find three bad events among a thousand.
_MOST_HALVINGS = 30


class _Connection(Protocol):
    """Connection to a receiver, by gRPC or HTTP."""

    def open(self) -> object: ...
    async def send(self, request: bytes) -> tuple[int, str]: ...
    async def close(self) -> None: ...


class _Batch:
    """BatchProgress of a batch over several attempts, so that no part is delivered again."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._key = self._key_of(events)
        self.size = len(events)
        #: Parts to deliver, the last one first.
        self.left: list[Sequence[Event]] = [events]
        self.rejected = 0
        self.reason = ""
        self._halvings = 0

    def is_of(self, events: Sequence[Event]) -> bool:
        """Return whether this batch has these events."""
        return self._key == self._key_of(events)

    def done(self, rejected: int, reason: str) -> None:
        """Remove the next part, which is delivered or rejected."""
        self.left.pop()
        self.rejected += rejected
        self.reason = reason or self.reason

    def too_large(self, reason: str) -> None:
        """Halve the next part; reject a single event that is too large."""
        part = self.left[-1]
        if len(part) == 1:
            self.done(1, reason)
        else:
            self.left[-1:] = [part[len(part) // 2 :], part[: len(part) // 2]]

    def refused(self, reason: str) -> None:
        """Halve the refused part to find the bad event; reject the part after too many halvings."""
        if self._halvings < _MOST_HALVINGS:
            self._halvings += 1
            self.too_large(reason)
        else:
            self.done(len(self.left[-1]), reason)

    @staticmethod
    def _key_of(events: Sequence[Event]) -> tuple[str, ...]:
        return tuple(event.event_id for event in events)


class OtlpReporter(Reporter):
    """Exports events as OTLP LogRecords, by gRPC or HTTP, and handles partial success.

    The mapping follows OpenTelemetry's log data model. Messages and services come from OpenTelemetry's protocol
    package; docs/decisions/0015 says why its exporter is not used.
    """

    Config: ClassVar[type[OtlpConfig]] = OtlpConfig
    linger = REQUEST_LINGER

    def __init__(self, config: OtlpConfig) -> None:
        where = target(config, os.environ)
        self._most_bytes = self._usual_bytes = config.request_max_size
        try:
            from spark_events.reporters.otlp.encoding import Encoder

            self._connection = _connection(where)
        except ImportError as error:
            raise MissingExtraError(f"{error}; run: pip install 'spark-events[otlp]'") from error
        own = {"service.name": config.service_name, "service.version": config.service_version}
        resource = {**where.resource, **{key: value for key, value in own.items() if value is not None}}
        self._encoder = Encoder(time.time_ns, config.attribute_max_length, resource)
        self._batch: _Batch | None = None

    def open(self) -> None:
        self._connection.open()

    async def report(self, events: Sequence[Event]) -> None:
        batch = self._batch
        if batch is None or not batch.is_of(events):
            batch = self._batch = _Batch(events)
        while batch.left:
            try:
                rejected, reason = await self._send(batch)
            except TooLarge as refusal:
                batch.too_large(str(refusal))
            except Refused as refusal:
                batch.refused(str(refusal))
            else:
                if reason and not rejected:
                    _LOG.warning("the OTLP receiver has taken all events, but says: %s", reason)
                batch.done(rejected, reason)
        self._batch = None
        if batch.rejected:
            raise PermanentError(f"{batch.rejected} of {batch.size} events: {batch.reason}", batch.rejected)

    async def _send(self, batch: _Batch) -> tuple[int, str]:
        part = batch.left[-1]
        request = self._encoder.encode(part)
        size = len(request)
        # A receiver with a smaller limit than ours refuses a single event that exceeds it.
        if size > (self._most_bytes if len(part) == 1 else self._usual_bytes):
            raise TooLarge(f"the event has {size:,} bytes, a request at most {self._most_bytes:,} (request.max-size)")
        try:
            return await self._connection.send(request)
        except TooLarge:
            if len(part) > 1:
                # Lower the limit, so that the next requests are not refused too.
                self._usual_bytes = size // 2
            raise

    async def close(self) -> None:
        await self._connection.close()


def _connection(where: Target) -> _Connection:
    if where.is_http:
        from spark_events.reporters.otlp.over_http import HttpConnection

        return HttpConnection(where)
    from spark_events.reporters.otlp.over_grpc import GrpcConnection

    return GrpcConnection(where)
