"""OTLP over gRPC: one call per request, in the reporter's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_events.config.confidence import Confidence, in_headers
from spark_events.reporters.otlp.otlp_answers import partial_success, retry_delay
from spark_events.reporters.otlp.otlp_verdicts import of_grpc
from spark_events.reporters.otlp.target import Target

if TYPE_CHECKING:
    import grpc

_METHOD = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


class GrpcConnection:
    """gRPC channel that is created on demand and replaced after a failure.

    After a failure, a gRPC channel waits up to two minutes before it reconnects. With a new channel, the dispatcher
    decides when to retry. A new channel also reads renewed certificates.

    Args:
        target: address and options.
    """

    def __init__(self, target: Target) -> None:
        # Disable gRPC's own log on the driver's standard error; the raised error contains the reason.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc

        self._grpc = grpc
        self._target = target
        self._hide = Confidence(in_headers(target.headers.values())).hide
        self._metadata = tuple(target.headers.items())
        self._channel: grpc.Channel | None = None
        self._export: Any = None

    def open(self) -> None:
        """Create the channel, which connects at the first request.

        Raises:
            ValueError: a certificate cannot be used.
        """
        if self._channel is None:
            self._connect()

    async def send(self, request: bytes) -> tuple[int, str]:
        """Send an ExportLogsServiceRequest; return the number of rejected records and the reason.

        Raises:
            Exception: the receiver refused the request or could not be reached (see :mod:`verdicts`).
        """
        self.open()
        # Use a future, which can be cancelled together with this task. A blocking call cannot be cancelled: it would
        # continue in another thread, and its events would be delivered twice.
        call = self._export.future(request, timeout=self._target.timeout, metadata=self._metadata)
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def end(_: object) -> None:
            # The event loop is closed, so no task waits for the result.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        call.add_done_callback(end)
        try:
            await ended.wait()
        except asyncio.CancelledError:
            # The dispatcher's timeout usually ends an attempt before gRPC's deadline. Replace the channel, because gRPC
            # keeps a connection whose packets are lost, for example after a failover, until TCP gives up.
            await self.close()
            raise
        finally:
            call.cancel()
        if call.code() is self._grpc.StatusCode.OK:
            rejected, reason = partial_success(call.result())
            return rejected, self._hide(reason)
        await self.close()
        metadata = dict(call.trailing_metadata() or ())
        raise of_grpc(call.code().name, self._explained(self._hide(call.details() or "")), retry_delay(metadata))

    def _explained(self, details: str) -> str:
        # gRPC reports the TLS alert "certificate required" only in these messages.
        if "TSI_DATA_CORRUPTED" in details and self._target.client_certificate is None:
            return f"{details}; the receiver may require a client certificate (client.certificate, client.key)"
        return details

    async def close(self) -> None:
        """Close the channel without waiting for the network; the next request creates a new channel."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _connect(self) -> None:
        grpc, target = self._grpc, self._target
        compression = grpc.Compression.Gzip if target.is_compressed else grpc.Compression.NoCompression
        # Use a separate subchannel pool. By default, channels to one address share a connection and its back-off time.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        if target.is_secure:
            # Validate the certificate files first, because gRPC accepts any content and reports only a failed
            # handshake.
            files = (target.certificate, target.client_key, target.client_certificate)
            if any(files):
                target.context()
            credentials = grpc.ssl_channel_credentials(*(path and Path(path).read_bytes() for path in files))
            self._channel = grpc.secure_channel(target.address, credentials, options, compression)
        else:
            self._channel = grpc.insecure_channel(target.address, options, compression)
        # Pass no serializers, because the request is already encoded.
        self._export = self._channel.unary_unary(_METHOD)
