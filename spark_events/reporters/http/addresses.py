"""What an address says in confidence, and those who log addresses.

Receivers quote what they were sent: a page for 404 has the path in it, which is all the secret that some have.
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

#: The loggers of httpx and httpcore. Each request's address, headers included, is told there.
_TOLD_BY = ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")))


def secret_address(url: str) -> Iterator[str]:
    """What nobody is to read of an address that is a secret itself: all but its host and port."""
    parts = urlsplit(url)
    yield url
    yield parts.path
    yield from (part for part in parts.path.split("/") if NO_WORD.fullmatch(part))
    if parts.query:
        yield f"{parts.path}?{parts.query}"
    yield from credentials(url)


def credentials(url: str) -> Iterator[str]:
    """What nobody is to read of any address: who asks, with which password, and its query."""
    parts = urlsplit(url)
    yield parts.query
    # As it is written, too: a "+" is a blank only to some.
    yield from (one.partition("=")[2] for one in parts.query.split("&"))
    yield from (value for _, value in parse_qsl(parts.query))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if user or password:
        yield from (user, password, base64.b64encode(f"{user}:{password}".encode()).decode())


def in_headers(values: Iterable[str]) -> Iterator[str]:
    """What nobody is to read of headers: their values, and of ``Bearer …`` and ``session=…`` what is behind it."""
    for value in values:
        yield value
        yield from re.split(r"[ =;,]+", value)[1:]


_unseen: ContextVar[bool] = ContextVar("spark_events_unseen", default=False)


class _Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _unseen.get()


@contextmanager
def unseen() -> Iterator[None]:
    """What is sent within it, httpx does not log; a program that hosts us may log all that httpx says."""
    token = _unseen.set(True)
    try:
        yield
    finally:
        _unseen.reset(token)


for _name in _TOLD_BY:
    logging.getLogger(_name).addFilter(_Filter())
