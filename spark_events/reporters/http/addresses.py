"""URLs of HTTP reporters: their secrets, the loggers that print URLs, and the proxy for a URL.

Responses must also be searched for secrets: a 404 page quotes the path of the request, which may be the secret.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import parse_qsl, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from spark_events.config.references import NO_WORD
from spark_events.errors import TransientError


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy for a URL, or None for a direct connection.

    Raises:
        TransientError: the variable is not a valid proxy; the message does not quote it, because it may contain a
            password.
    """
    parts = urlsplit(url)
    found = getproxies_environment()
    proxy = found.get(parts.scheme)
    if not proxy or _is_excepted(parts.hostname or "", parts.port, found):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    try:
        known = urlsplit(proxy)
        if known.scheme in ("http", "https") and known.hostname and known.port != 0:
            return proxy
    except ValueError:
        pass
    raise TransientError(
        f"{parts.scheme.upper()}_PROXY in the environment is not a valid proxy; expected http://host:port or"
        " https://host:port"
    )


def _is_excepted(host: str, port: int | None, found: dict[str, str]) -> bool:
    written = f"[{host}]" if ":" in host else host
    names = (host, written, f"{written}:{port}") if port else (host, written)
    return any(proxy_bypass_environment(name, found) for name in names)


#: Loggers of httpx and httpcore that print the URL and headers of each request.
_LOGGERS = ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")))


def secret_address(url: str) -> Iterator[str]:
    """Yield the secret parts of a confidential URL: all parts except host and port."""
    parts = urlsplit(url)
    yield url
    yield parts.path
    yield from (part for part in parts.path.split("/") if NO_WORD.fullmatch(part))
    if parts.query:
        yield f"{parts.path}?{parts.query}"
    yield from credentials(url)


def credentials(url: str) -> Iterator[str]:
    """Yield the secret parts of any URL: user, password and query."""
    parts = urlsplit(url)
    yield parts.query
    # Also hide the undecoded value, because some receivers do not decode "+" as a space.
    yield from (one.partition("=")[2] for one in parts.query.split("&"))
    yield from (value for _, value in parse_qsl(parts.query))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if user or password:
        yield from (user, password, base64.b64encode(f"{user}:{password}".encode()).decode())


def in_headers(values: Iterable[str]) -> Iterator[str]:
    """Yield the values of headers, and the secret part of a value after ``Bearer`` or ``session=``."""
    for value in values:
        yield value
        yield from re.split(r"[ =;,]+", value)[1:]


_unseen: ContextVar[bool] = ContextVar("spark_events_unseen", default=False)


class _Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _unseen.get()


@contextmanager
def without_request_log() -> Iterator[None]:
    """Context manager that suppresses httpx's log of requests, whatever log level the host program sets."""
    token = _unseen.set(True)
    try:
        yield
    finally:
        _unseen.reset(token)


for _name in _LOGGERS:
    logging.getLogger(_name).addFilter(_Filter())
