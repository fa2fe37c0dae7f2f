"""HTTP client for one server, with a limited response, hidden secrets and a replaceable connection."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import httpx

from spark_events._version import __version__
from spark_events.config import Secret, scheme_and_host
from spark_events.config.confidence import Confidence, in_headers, secret_address
from spark_events.errors import TransientError
from spark_events.reporters.http.addresses import proxy_for, without_request_log
from spark_events.reporters.http.http_answers import verdict
from spark_events.reporters.http.http_config import HttpConfig

#: Limits for a response: characters to quote in messages, and bytes to read so that the connection can be used again.
_MOST_QUOTED = 300
_MOST_READ = 64 * 1024
#: Time limit for reading the body of a response, in seconds, if only the status decides whether the events are
#: delivered.
_READ_SECONDS = 0.25


class Answer(NamedTuple):
    """Response of a server.

    Attributes:
        headers: case-insensitive headers.
        body: beginning of the body.
        is_whole: whether ``body`` is the complete body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool


class Post:
    """Client that posts to one server over one persistent connection.

    The connection is created on demand and replaced after a failure.

    Args:
        url: URL of the server.
        context: returns the TLS context of a new connection.
        headers: headers of every request; a later header overrides an earlier header of the same name.
        secrets: strings that responses and errors must not show.
        proxy: URL of the proxy; None: from the environment.
        timeout: time limit of each network operation, in seconds; None: the caller limits the time.
        advice: addition to the error message if the server closes the connection.
    """

    def __init__(
        self,
        url: str,
        context: Callable[[], ssl.SSLContext],
        headers: Iterable[tuple[str, str]],
        secrets: Iterable[str],
        proxy: str | None = None,
        timeout: float | None = None,
        advice: str = "",
    ) -> None:
        self._url = httpx.URL(url)
        self._context = context
        ours = {"User-Agent": f"spark-events/{__version__}", "Accept-Encoding": "identity"}
        self._headers = httpx.Headers(ours, encoding="latin-1")
        for name, value in headers:
            self._headers[name] = value
        #: Replace the secrets in a string.
        self.hide = Confidence(secrets).hide
        self._proxy = proxy
        self._timeout = timeout
        self._advice = advice
        self._client: httpx.AsyncClient | None = None

    def open(self) -> httpx.AsyncClient:
        """Return the client, which connects at the first request; create it if there is none.

        Raises:
            ValueError: a certificate cannot be used.
            TransientError: the environment's proxy cannot be used.
        """
        if self._client is None:
            self._client = httpx.AsyncClient(
                verify=self._context(),
                proxy=self._proxy or proxy_for(str(self._url)),
                trust_env=False,
                timeout=self._timeout,
                limits=httpx.Limits(max_connections=1),
            )
        return self._client

    async def deliver(self, body: bytes, headers: Mapping[str, str], url: str | None = None) -> Answer:
        """Post a body; return the response if the server has accepted it. The arguments are those of :meth:`post`.

        Raises:
            Exception: the server refused the request or could not be reached (see :mod:`answers`).
        """
        answer = await self.post(body, headers, url)
        # Hide secrets before shortening the string, because a shortened secret would not be recognised.
        excerpt = " ".join(self.hide(answer.body.decode("utf-8", "replace")).split())[:_MOST_QUOTED]
        error = verdict(answer.status, answer.headers.get("Retry-After"), excerpt, time.time())
        if error is not None:
            raise error
        return answer

    async def post(
        self,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        url: str | None = None,
        most_read: int = _MOST_READ,
        read_seconds: float | None = _READ_SECONDS,
    ) -> Answer:
        """Post a body, and return the response.

        Args:
            body: content of the request.
            headers: further headers of this request.
            url: URL on the configured server; None for the configured URL.
            most_read: maximum number of bytes to read of the response's body.
            read_seconds: time limit for reading the response's body; None: no limit.

        Raises:
            TransientError: no response, or a redirect. Redirects are not followed, because the headers may be secret.
            ValueError: a certificate cannot be used.
        """
        target = self._url if url is None else httpx.URL(url)
        sent = self._headers.copy()
        sent.update(headers or {})
        client = self.open()
        try:
            with without_request_log():
                async with client.stream("POST", target, content=body, headers=sent) as response:
                    excerpt, is_whole = await _read(response, most_read, read_seconds)
            if not is_whole:
                await self.close()
            if response.has_redirect_location:
                new = target.join(response.headers["Location"])
                where = scheme_and_host(str(new)) or "another address"  # the path may be secret
                raise TransientError(f"{self._url.host}: redirected to {where}; configure the new address")
        except asyncio.CancelledError:
            # Create a new pool after a cancelled request. httpcore may count the cancelled connection forever
            # (httpcore#1093), and the pool allows only one connection.
            await self.close()
            raise
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # Catch OSError too: httpx does not wrap every TLS error after the handshake.
            await self.close()
            raise TransientError(f"{self._url.host}: {self._described(error)}") from None
        return Answer(response.status_code, response.headers, excerpt, is_whole)

    def _described(self, error: Exception) -> str:
        """Describe an error by its type and message, or by the message of its cause if it has none."""
        cause: BaseException | None = error
        while cause is not None and not str(cause):
            cause = cause.__cause__ or cause.__context__
        reason = " ".join(self.hide(str(cause or "no reason given")).split())
        # The TLS alert "certificate required" arrives after the handshake, possibly after the connection has ended.
        is_cut_off = isinstance(error, (httpx.ReadError, httpx.WriteError, OSError))
        return f"{type(error).__name__}: {reason}{self._advice if is_cut_off else ''}"

    async def close(self) -> None:
        """Close the connection; the next request creates a new client."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def post_to(
    config: HttpConfig, context: ssl.SSLContext, headers: Iterable[tuple[str, str]] = (), secrets: Sequence[Secret] = ()
) -> Post:
    """Return a client for the configured URL.

    Args:
        config: URL, headers and proxy.
        context: trusted authorities and client certificate, from :func:`trust`.
        headers: default headers, which the configured headers override.
        secrets: further secrets that responses and errors must not show.
    """
    url = config.url.reveal()
    own = [(name, value.reveal()) for name, value in config.headers]
    known = [*(value for _, value in own), *(secret.reveal() for secret in secrets)]
    return Post(
        url,
        lambda: context,
        [*headers, *own],
        [*secret_address(url), *in_headers(known)],
        proxy=None if config.proxy is None else config.proxy.reveal(),
    )


async def _read(response: httpx.Response, most: int, seconds: float | None) -> tuple[bytes, bool]:
    """Return the beginning of the body, and whether the body was complete.

    Errors while reading a slow or endless body are ignored, because the status may have confirmed the delivery. After
    an incomplete read, the connection cannot be used again.
    """
    body = bytearray()

    async def read() -> bool:
        async for part in response.aiter_raw():
            body.extend(part)
            if len(body) > most:
                return False
        return True

    try:
        is_whole = await asyncio.wait_for(read(), seconds)
    except (asyncio.TimeoutError, httpx.HTTPError, OSError):
        is_whole = False
    return bytes(body), is_whole


def trust(
    ca: str | None,
    certificate: str | None = None,
    key: str | None = None,
    keys: tuple[str, str] = ("tls.ca", "tls.certificate"),
) -> ssl.SSLContext:
    """Return a TLS context.

    Args:
        ca: PEM file of the trusted authorities; None: those of httpx.
        certificate: PEM file of the client certificate.
        key: PEM file of its key, unless ``certificate`` contains the key.
        keys: settings of ``ca`` and ``certificate``, for error messages.

    Raises:
        ValueError: a certificate or key file cannot be used.
    """
    try:
        context = httpx.create_ssl_context() if ca is None else ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ValueError(f"{keys[0]}: {ca}: {error.strerror or error}") from None
    if certificate is not None:
        try:
            # With an empty password, an encrypted key raises an error. Without a password, it would prompt on a
            # terminal.
            context.load_cert_chain(certificate, key, password="")
        except OSError as error:
            where = " and ".join(filter(None, (certificate, key)))
            raise ValueError(f"{keys[1]}: {where}: {error.strerror or error}") from None
    return context
