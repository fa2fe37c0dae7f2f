"""Reporter that exports events as OTLP LogRecords."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from spark_events.errors import MissingExtraError
from spark_events.event import Event
from spark_events.reporters.batch_progress import BatchProgress, TooLargeError
from spark_events.reporters.otlp.spans import ids
from spark_events.reporters.otlp.target import OtlpConfig, Target, target
from spark_events.reporters.reporter import REQUEST_LINGER, Reporter

if TYPE_CHECKING:
    from spark_events.reporters.otlp.over_grpc import GrpcConnection
    from spark_events.reporters.otlp.over_http import HttpConnection

_LOG = logging.getLogger(__name__)


class OtlpReporter(Reporter):
    """Export events as OTLP LogRecords, by gRPC or HTTP, and handle partial success.

    The mapping follows OpenTelemetry's log data model. Messages and services come from OpenTelemetry's protocol
    package; docs/decisions/0015 explains why OpenTelemetry's exporter is not used.
    """

    Config: ClassVar[type[OtlpConfig]] = OtlpConfig
    linger = REQUEST_LINGER

    def __init__(self, config: OtlpConfig) -> None:
        where = target(config, os.environ)
        self._most_bytes = config.request_max_size
        try:
            from spark_events.reporters.otlp.encoding import Encoder

            self._connection = _connection(where)
        except ImportError as error:
            raise MissingExtraError(f"{error}; run: pip install 'spark-events[otlp]'") from error
        own = {"service.name": config.service_name, "service.version": config.service_version}
        resource = {key: value for key, value in own.items() if value is not None}
        find = partial(ids, parent=config.trace_parent) if config.trace_ids else None
        self._encoder = Encoder(time.time_ns, config.attribute_max_length, resource, find)
        self._batch = BatchProgress()

    def open(self) -> None:
        self._connection.open()

    async def report(self, events: Sequence[Event]) -> None:
        self._batch = self._batch.of(events)
        await self._batch.deliver(self._send)

    async def _send(self, part: Sequence[Event]) -> tuple[int, str]:
        request = self._encoder.encode(part)
        size = len(request)
        if size > self._most_bytes:
            raise TooLargeError(
                f"the event has {size:,} bytes, which exceeds request.max-size ({self._most_bytes:,} bytes)"
            )
        rejected, reason = await self._connection.send(request)
        if reason and not rejected:
            _LOG.warning("the OTLP receiver accepted all events with a warning: %s", reason)
        return rejected, reason

    async def release(self) -> None:
        await self._connection.close()


def _connection(where: Target) -> GrpcConnection | HttpConnection:
    if where.is_http:
        from spark_events.reporters.otlp.over_http import HttpConnection

        return HttpConnection(where)
    from spark_events.reporters.otlp.over_grpc import GrpcConnection

    return GrpcConnection(where)
