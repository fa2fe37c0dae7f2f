"""OTLP by HTTP: one POST a request, on the reporter's own loop."""

from __future__ import annotations

import gzip

import httpx

from spark_events._version import __version__
from spark_events.config.confidence import Confidence
from spark_events.reporters.http.addresses import credentials, in_headers, unseen
from spark_events.reporters.http.proxies import proxy_for
from spark_events.reporters.otlp.answers import failure, success
from spark_events.reporters.otlp.target import Target
from spark_events.reporters.otlp.tls import context
from spark_events.reporters.otlp.verdicts import UnavailableError, of_http

__all__ = ["HttpConnection"]

#: Most of the gain, for a third of the time.
_GZIP_LEVEL = 3
#: As much as gRPC takes of an answer. An OTLP receiver says less; who says more would fill this process's memory.
_MOST_READ = 4 * 1024 * 1024


class HttpConnection:
    """A client, made when it is needed and made anew after a failure, when certificates are read again.

    Args:
        target: where, and how.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._hide = Confidence([*credentials(target.address), *in_headers(target.headers.values())]).hide
        self._headers = {
            "content-type": "application/x-protobuf",
            "accept-encoding": "identity",
            "user-agent": f"spark-events/{__version__}",
            **({"content-encoding": "gzip"} if target.is_compressed else {}),
            **target.headers,
        }
        self._client: httpx.AsyncClient | None = None

    def open(self) -> httpx.AsyncClient:
        """Makes the client; it connects when there is something to send.

        Raises:
            UnavailableError: a certificate cannot be used.
            TransientError: nor can the environment's proxy.
        """
        if self._client is None:
            self._client = httpx.AsyncClient(
                verify=context(self._target) or httpx.create_ssl_context(),
                proxy=proxy_for(self._target.address),
                trust_env=False,
                timeout=self._target.timeout,
            )
        return self._client

    async def send(self, request: bytes) -> tuple[int, str]:
        """Sends an ExportLogsServiceRequest; how many records were not taken after all, and why.

        Raises:
            Exception: the verdict.
        """
        client = self.open()
        body = gzip.compress(request, _GZIP_LEVEL) if self._target.is_compressed else request
        try:
            # Not followed, if it sends us elsewhere: where our headers go is for the user to decide.
            with unseen():
                async with client.stream("POST", self._target.address, content=body, headers=self._headers) as response:
                    said = await _read(response)
        except (httpx.HTTPError, OSError) as error:
            # OSError: not all that TLS says after the handshake is httpx's yet.
            await self.close()
            raise UnavailableError(self._hide(_said(error)) + self._hint(error)) from error
        content_type = response.headers.get("content-type", "")
        if response.is_success:
            rejected, reason = success(content_type, said)
            return rejected, self._hide(reason)
        message, is_otlp = failure(content_type, said, self._hide)
        headers = dict(response.headers)
        if location := headers.get("location"):
            headers["location"] = self._hide(location)
        raise of_http(response.status_code, headers, message, is_otlp)

    def _hint(self, error: Exception) -> str:
        # The alert "certificate required" comes after the handshake, and races with the end of the connection.
        is_cut_off = isinstance(error, (httpx.ReadError, httpx.WriteError, OSError))
        if is_cut_off and self._target.is_secure and self._target.client_certificate is None:
            return "; the receiver may want a client's certificate (client.certificate, client.key)"
        return ""

    async def close(self) -> None:
        """Ends the connection; the next request makes another."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()


async def _read(response: httpx.Response) -> bytes:
    said = bytearray()
    async for part in response.aiter_raw():
        said += part
        if len(said) > _MOST_READ:
            raise UnavailableError(
                f"what answers there is no OTLP receiver: HTTP {response.status_code}, and more than {_MOST_READ} bytes"
            )
    return bytes(said)


def _said(error: BaseException) -> str:
    """Some errors have nothing to say but what they are; what they came from often has."""
    cause: BaseException | None = error
    while cause is not None and not str(cause):
        cause = cause.__cause__ or cause.__context__
    return f"{type(error).__name__}: {cause or 'no reason given'}"
