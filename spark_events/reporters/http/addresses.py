"""The loggers that print URLs, and the proxy for a URL."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

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
