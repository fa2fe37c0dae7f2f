"""HTTP POST that reads a limited part of the response."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import httpx

from spark_events._version import __version__
from spark_events.config import Secret, without_password
from spark_events.config.references import Confidence
from spark_events.errors import TransientError
from spark_events.reporters.http.addresses import in_headers, proxy_for, secret_address, without_request_log
from spark_events.reporters.http.config import HttpConfig

#: Limits for a response: characters to quote in messages, and bytes to read so that the connection can be used again.
_MOST_QUOTED = 300
_MOST_READ = 64 * 1024
#: Time limit for reading the body of a response, in seconds. Only the status decides whether the events are delivered.
_READ_SECONDS = 0.25


class Answer(NamedTuple):
    """Response: status, ``Retry-After``, and the beginning of the body on one line."""

    status: int
    retry_after: str | None
    excerpt: str


class Post:
    """Client that posts to one server over one persistent connection.

    Args:
        config: URL, headers and proxy.
        context: trusted authorities and client certificate, from :func:`trust`.
        headers: default headers; the configuration's headers override them.
        secrets: further secrets that responses and errors must not show.
    """

    def __init__(
        self,
        config: HttpConfig,
        context: ssl.SSLContext,
        headers: Mapping[str, str] | None = None,
        secrets: Sequence[Secret] = (),
    ) -> None:
        self._url = httpx.URL(config.url.reveal())
        # Header names are case-insensitive.
        given = {name.lower(): (name, value.reveal()) for name, value in config.headers}
        ours = {**(headers or {}), "User-Agent": f"spark-events/{__version__}", "Accept-Encoding": "identity"}
        kept = [(name, value) for name, value in ours.items() if name.lower() not in given]
        self._headers = httpx.Headers([*kept, *given.values()], encoding="latin-1")
        known = [secret.reveal() for secret in (*(value for _, value in config.headers), *secrets)]
        self._confidence = Confidence([*secret_address(config.url.reveal()), *in_headers(known)])
        self._proxy = None if config.proxy is None else config.proxy.reveal()
        self._context = context
        self._client: httpx.AsyncClient | None = None

    async def __call__(self, body: bytes, headers: Mapping[str, str], url: str | None = None) -> Answer:
        """Post a body, and return the response.

        Args:
            body: content of the request.
            headers: headers of this request.
            url: URL on the configured server; None for the configured URL.

        Raises:
            TransientError: no response, or a redirect. Redirects are not followed, because the headers may be secret.
        """
        try:
            with without_request_log():
                return await self._ask(self._url if url is None else httpx.URL(url), body, headers)
        except asyncio.CancelledError:
            # Create a new pool after a cancelled request. httpcore may count the cancelled connection forever
            # (httpcore#1093), and the pool allows only one connection.
            await self.close()
            raise
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # Catch OSError too: httpx does not wrap every TLS error after the handshake.
            raise TransientError(f"{self._url.host}: {self._describe(error)}") from None

    async def _ask(self, url: httpx.URL, body: bytes, headers: Mapping[str, str]) -> Answer:
        if self._client is None:
            self._client = httpx.AsyncClient(
                verify=self._context,
                proxy=self._proxy or proxy_for(str(self._url)),
                trust_env=False,
                timeout=None,  # the timeout of the attempt cancels the request
                limits=httpx.Limits(max_connections=1),
            )
        excerpt = bytearray()
        sent = self._headers.copy()
        sent.update(headers)
        async with self._client.stream("POST", url, content=body, headers=sent) as response:
            is_whole = await _read(response, excerpt)
        if not is_whole:
            await self.close()
        # Hide secrets before shortening the string, because a shortened secret would not be recognised.
        text = " ".join(self._confidence.hide(excerpt.decode("utf-8", "replace")).split())[:_MOST_QUOTED]
        if response.has_redirect_location:
            new = url.join(response.headers["Location"])
            where = f"{new.scheme}://{new.netloc.decode()}"
            raise TransientError(f"{self._url.host}: redirected to {where}; set url to the new address")
        return Answer(response.status_code, response.headers.get("Retry-After"), text)

    def _describe(self, error: Exception) -> str:
        text = " ".join(self._confidence.hide(without_password(str(error))).split())
        return f"{type(error).__name__}: {text}" if text else type(error).__name__

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


async def _read(response: httpx.Response, into: bytearray) -> bool:
    """Read the beginning of the body; return whether the body was complete.

    Only the status decides whether the events are delivered. Errors while reading a slow or endless body are ignored,
    because a retry would send delivered events again. After an incomplete read, the connection cannot be used again.
    """

    async def read() -> bool:
        async for part in response.aiter_raw():
            into.extend(part)
            if len(into) > _MOST_READ:
                return False
        return True

    try:
        return await asyncio.wait_for(read(), _READ_SECONDS)
    except (asyncio.TimeoutError, httpx.HTTPError, OSError):
        return False


def trust(ca: str | None, certificate: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """Return a TLS context; the arguments are paths of PEM files, and the names in errors are the keys of settings.

    Raises:
        ValueError: a certificate or key file cannot be used.
    """
    try:
        context = httpx.create_ssl_context() if ca is None else ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ValueError(f"tls.ca: {ca}: {error.strerror or error}") from None
    if certificate is not None:
        try:
            # With an empty password, an encrypted key raises an error. Without a password, it would prompt on a
            # terminal.
            context.load_cert_chain(certificate, key, password="")
        except OSError as error:
            where = " and ".join(filter(None, (certificate, key)))
            raise ValueError(f"tls.certificate: {where}: {error.strerror or error}") from None
    elif key is not None:
        raise ValueError("tls.key: set without tls.certificate; set both")
    return context
