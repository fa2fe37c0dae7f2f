"""One request of HTTP: sent, followed where it may be followed, and its answer read as far as it is needed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple

import httpx

from spark_events.config import without_password
from spark_events.config.confidence import Confidence
from spark_events.errors import TransientError
from spark_events.reporters.http.addresses import in_headers, secret_address, unseen
from spark_events.reporters.http.proxies import proxy_for
from spark_events.reporters.webhook.config import WebhookConfig

__all__ = ["Answer", "Post"]

#: Of an answer: characters that a message quotes, and bytes that are read so that the connection can be used again.
_MOST_QUOTED = 300
_MOST_READ = 64 * 1024
#: How long it is read, in seconds: the status has said already what became of the events.
_READ_SECONDS = 0.25
_MOST_REDIRECTS = 5
_FOLLOWED = (301, 302, 307, 308)


class Answer(NamedTuple):
    """What the receiver said: the status, its ``Retry-After``, and the beginning of the text in one line."""

    status: int
    retry_after: str | None
    said: str


class Post:
    """Sends bodies to one address, over one connection that is kept.

    Args:
        config: the address, its headers, whom to trust, which proxy.
        headers: of every request, where the configuration has none of the same name.

    Raises:
        ValueError: a file of certificates or keys cannot be used.
    """

    def __init__(self, config: WebhookConfig, headers: Mapping[str, str]) -> None:
        self._url = httpx.URL(config.url.reveal())
        # Names of headers are the same in whatever letters.
        given = {name.lower(): (name, value.reveal()) for name, value in config.headers}
        ours = {**headers, "Accept-Encoding": "identity"}
        kept = [(name, value) for name, value in ours.items() if name.lower() not in given]
        self._headers = httpx.Headers([*kept, *given.values()], encoding="latin-1")
        secrets = [*(value for _, value in config.headers), config.signature_secret, config.routing_key]
        known = [secret.reveal() for secret in secrets if secret]
        self._confidence = Confidence([*secret_address(config.url.reveal()), *in_headers(known)])
        self._proxy = None if config.proxy is None else config.proxy.reveal()
        self._context = _trust(config)
        self._clients: dict[str, httpx.AsyncClient] = {}

    async def __call__(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """The answer to a POST.

        Raises:
            TransientError: there was none, or it leads to another host.
        """
        url = self._url
        try:
            for _ in range(_MOST_REDIRECTS + 1):
                with unseen():
                    answer, target = await self._ask(url, body, headers)
                if answer.status not in _FOLLOWED or target is None:
                    return answer
                url = self._next(url, target)
        except asyncio.CancelledError:
            # The pool may count the connection of a cancelled request for ever (httpcore#1093), and it has but one.
            await self.close()
            raise
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # OSError: not all that TLS says after the handshake is httpx's yet.
            raise TransientError(f"{self._url.host}: {self._describe(error)}") from None
        raise TransientError(f"{self._url.host}: more than {_MOST_REDIRECTS} redirects")

    async def _ask(self, url: httpx.URL, body: bytes, headers: Mapping[str, str]) -> tuple[Answer, str | None]:
        """The answer to one request, and where it leads."""
        # One a scheme, for each may have a proxy of its own.
        client = self._clients.get(url.scheme)
        if client is None:
            client = self._clients[url.scheme] = httpx.AsyncClient(
                verify=self._context,
                proxy=self._proxy or proxy_for(str(url)),
                trust_env=False,
                timeout=None,  # the attempt's own timeout cancels
                limits=httpx.Limits(max_connections=1),
            )
        said = bytearray()
        sent = self._headers.copy()
        sent.update(headers)
        async with client.stream("POST", url, content=body, headers=sent) as response:
            is_whole = await _read(response, said)
        if not is_whole:
            await self.close()
        # First hidden, then cut: of a secret that is cut, the rest would stay.
        text = " ".join(self._confidence.hide(said.decode("utf-8", "replace")).split())[:_MOST_QUOTED]
        return Answer(response.status_code, response.headers.get("Retry-After"), text), response.headers.get("Location")

    def _next(self, url: httpx.URL, target: str) -> httpx.URL:
        """Where a redirect leads: never to another host, nor out of TLS, for the headers are not for everybody."""
        new = url.join(target)
        if not new.userinfo:
            new = new.copy_with(username=url.username, password=url.password)
        if (new.host, _port(new)) == (url.host, _port(url)) and new.scheme == url.scheme:
            return new
        if new.host == url.host and (url.scheme, new.scheme) == ("http", "https"):
            return new
        raise TransientError(
            f"{url.host}: redirected to {new.scheme}://{new.netloc.decode()}, which is not followed; set it as url"
        )

    def _describe(self, error: Exception) -> str:
        text = " ".join(self._confidence.hide(without_password(str(error))).split())
        return f"{type(error).__name__}: {text}" if text else type(error).__name__

    async def close(self) -> None:
        """Closes the connection."""
        while self._clients:
            _, client = self._clients.popitem()
            await client.aclose()


async def _read(response: httpx.Response, into: bytearray) -> bool:
    """Reads what belongs to the status; whether that was all, so that the connection can be used again.

    Who has sent the status has decided. What comes behind it slowly, without end, or not at all, changes nothing: for
    want of it, events that were taken would be sent again and again.
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


def _trust(config: WebhookConfig) -> ssl.SSLContext:
    try:
        if config.tls_ca is None:
            context = httpx.create_ssl_context()
        else:
            context = ssl.create_default_context(cafile=config.tls_ca)
    except OSError as error:
        raise ValueError(f"tls.ca: {config.tls_ca}: {error.strerror or error}") from None
    if config.tls_certificate is not None:
        try:
            # The empty password: a key that needs one is refused rather than asked for on a terminal.
            context.load_cert_chain(config.tls_certificate, config.tls_key, password="")
        except OSError as error:
            where = " and ".join(filter(None, (config.tls_certificate, config.tls_key)))
            raise ValueError(f"tls.certificate: {where}: {error.strerror or error}") from None
    elif config.tls_key is not None:
        raise ValueError("tls.key: set, but tls.certificate is not")
    return context


def _port(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)
