"""OTLP over HTTP: one POST per request, in the reporter's event loop."""

from __future__ import annotations

import gzip

import httpx

from spark_events._version import __version__
from spark_events.config.references import Confidence
from spark_events.reporters.http.addresses import credentials, in_headers, proxy_for, without_request_log
from spark_events.reporters.otlp.answers import failure, success
from spark_events.reporters.otlp.target import Target, context
from spark_events.reporters.otlp.verdicts import UnavailableError, of_http

#: gzip level. It compresses almost as well as the default level, in a third of the time.
_GZIP_LEVEL = 3
#: Maximum size of a response in bytes, the same as in gRPC; it limits this process's memory.
_MOST_READ = 4 * 1024 * 1024


class HttpConnection:
    """HTTP client that is created on demand and replaced after a failure; a new client reads the certificates again.

    Args:
        target: address and options.
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
        """Create the client, which connects at the first request.

        Raises:
            UnavailableError: a certificate cannot be used.
            TransientError: the environment's proxy cannot be used.
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
        """Send a request for logs or traces; return the number of rejected records or spans, and the reason.

        Raises:
            Exception: the receiver refused the request or could not be reached (see :mod:`verdicts`).
        """
        client = self.open()
        body = gzip.compress(request, _GZIP_LEVEL) if self._target.is_compressed else request
        try:
            # Do not follow redirects, because only the configured host may receive the headers, which may contain
            # secrets.
            with without_request_log():
                async with client.stream("POST", self._target.address, content=body, headers=self._headers) as response:
                    answer = await _read(response)
        except (httpx.HTTPError, OSError) as error:
            # Catch OSError too: httpx does not wrap every TLS error after the handshake.
            await self.close()
            raise UnavailableError(self._hide(_text_of(error)) + self._hint(error)) from error
        content_type = response.headers.get("content-type", "")
        if response.is_success:
            rejected, reason = success(content_type, answer)
            return rejected, self._hide(reason)
        message, is_otlp, is_page = failure(content_type, answer, self._hide)
        headers = dict(response.headers)
        if location := headers.get("location"):
            headers["location"] = self._hide(location)
        raise of_http(response.status_code, headers, message, is_otlp, is_page)

    def _hint(self, error: Exception) -> str:
        # The TLS alert "certificate required" arrives after the handshake, possibly after the connection has ended.
        is_cut_off = isinstance(error, (httpx.ReadError, httpx.WriteError, OSError))
        if is_cut_off and self._target.is_secure and self._target.client_certificate is None:
            return "; the receiver may require a client certificate (client.certificate, client.key)"
        return ""

    async def close(self) -> None:
        """Close the client; the next request creates a new client."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()


async def _read(response: httpx.Response) -> bytes:
    answer = bytearray()
    async for part in response.aiter_raw():
        answer += part
        if len(answer) > _MOST_READ:
            raise UnavailableError(
                f"the endpoint is not an OTLP receiver: its HTTP {response.status_code} response has more than "
                f"{_MOST_READ} bytes"
            )
    return bytes(answer)


def _text_of(error: BaseException) -> str:
    """Describe an error by its own message, else by its cause's message, else by its type."""
    cause: BaseException | None = error
    while cause is not None and not str(cause):
        cause = cause.__cause__ or cause.__context__
    return f"{type(error).__name__}: {cause or 'no reason given'}"
