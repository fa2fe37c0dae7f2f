"""OTLP by gRPC: one call a request, on the reporter's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

from spark_events.config.confidence import Confidence
from spark_events.reporters.http.addresses import in_headers
from spark_events.reporters.otlp.answers import partial_success, retry_delay
from spark_events.reporters.otlp.target import Target
from spark_events.reporters.otlp.tls import context, read
from spark_events.reporters.otlp.verdicts import of_grpc

if TYPE_CHECKING:
    import grpc

__all__ = ["GrpcConnection"]

_METHOD = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


class GrpcConnection:
    """A channel, made when it is needed and made anew after a failure.

    A channel that has failed waits up to two minutes before it looks again whether the receiver is back; when
    to try is the dispatcher's to decide. A new one also reads certificates again, which may have been renewed.

    Args:
        target: where, and how.
    """

    def __init__(self, target: Target) -> None:
        # Its own log goes to standard error, which is the driver's; what matters is in the verdict.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc

        self._grpc = grpc
        self._target = target
        self._hide = Confidence(in_headers(target.headers.values())).hide
        self._metadata = tuple(target.headers.items())
        self._channel: grpc.Channel | None = None
        self._export: Any = None

    def open(self) -> None:
        """Makes the channel; it connects when there is something to send.

        Raises:
            UnavailableError: a certificate cannot be used.
        """
        if self._channel is None:
            self._connect()

    async def send(self, request: bytes) -> tuple[int, str]:
        """Sends an ExportLogsServiceRequest; how many records were not taken after all, and why.

        Raises:
            Exception: the verdict.
        """
        self.open()
        # Neither a blocking call, which nobody could cancel, nor one in another thread, which would go on and
        # deliver what a second attempt delivers again: a future, whose call ends when this task is cancelled.
        call = self._export.future(request, timeout=self._target.timeout, metadata=self._metadata)
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def end(_: object) -> None:
            # A loop that has ended is waiting for nothing.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        call.add_done_callback(end)
        try:
            await ended.wait()
        finally:
            call.cancel()
        if call.code() is self._grpc.StatusCode.OK:
            rejected, reason = partial_success(call.result())
            return rejected, self._hide(reason)
        await self.close()
        metadata = dict(call.trailing_metadata() or ())
        raise of_grpc(call.code().name, self._explained(self._hide(call.details() or "")), retry_delay(metadata))

    def _explained(self, details: str) -> str:
        # All that gRPC says of the alert "certificate required".
        if "TSI_DATA_CORRUPTED" in details and self._target.client_certificate is None:
            return f"{details}; the receiver may want a client's certificate (client.certificate, client.key)"
        return details

    async def close(self) -> None:
        """Ends the connection; the next request makes another."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _connect(self) -> None:
        grpc, target = self._grpc, self._target
        compression = grpc.Compression.Gzip if target.is_compressed else grpc.Compression.NoCompression
        # Channels to one address share their connection, and its waiting times, unless they are told not to.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        if target.is_secure:
            # gRPC reads anything and says at the handshake that it failed; this says what is wrong with it.
            context(target)
            credentials = grpc.ssl_channel_credentials(
                read(target.certificate), read(target.client_key), read(target.client_certificate)
            )
            self._channel = grpc.secure_channel(target.address, credentials, options, compression)
        else:
            self._channel = grpc.insecure_channel(target.address, options, compression)
        # Bytes in, bytes out: the request has been encoded already, to know its size.
        self._export = self._channel.unary_unary(_METHOD)
