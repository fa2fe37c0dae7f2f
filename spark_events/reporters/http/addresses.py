"""Secrets in addresses and headers, and loggers that print addresses.

Receivers quote requests: the page of a 404 contains the path, which may be the secret.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import parse_qsl, unquote, urlsplit

from spark_events.config.confidence import NO_WORD

__all__ = ["credentials", "in_headers", "secret_address", "unseen"]

#: Loggers of httpx and httpcore that print the address and headers of each request.
_TOLD_BY = ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")))


def secret_address(url: str) -> Iterator[str]:
    """Yield the secret parts of an address that is itself a secret: all but host and port."""
    parts = urlsplit(url)
    yield url
    yield parts.path
    yield from (part for part in parts.path.split("/") if NO_WORD.fullmatch(part))
    if parts.query:
        yield f"{parts.path}?{parts.query}"
    yield from credentials(url)


def credentials(url: str) -> Iterator[str]:
    """Yield the secret parts of any address: user, password and query."""
    parts = urlsplit(url)
    yield parts.query
    # Also the undecoded value, because not every receiver decodes "+" as a space.
    yield from (one.partition("=")[2] for one in parts.query.split("&"))
    yield from (value for _, value in parse_qsl(parts.query))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if user or password:
        yield from (user, password, base64.b64encode(f"{user}:{password}".encode()).decode())


def in_headers(values: Iterable[str]) -> Iterator[str]:
    """Yield header values, and the part after ``Bearer`` or ``session=``."""
    for value in values:
        yield value
        yield from re.split(r"[ =;,]+", value)[1:]


_unseen: ContextVar[bool] = ContextVar("spark_events_unseen", default=False)


class _Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _unseen.get()


@contextmanager
def unseen() -> Iterator[None]:
    """Suppress httpx's log of requests within this context; a host program may log everything."""
    token = _unseen.set(True)
    try:
        yield
    finally:
        _unseen.reset(token)


for _name in _TOLD_BY:
    logging.getLogger(_name).addFilter(_Filter())
