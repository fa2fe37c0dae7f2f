"""What an address and its headers say in confidence is in no log, and in no event of another reporter.

Receivers quote what they were sent: a page for 404 has the path in it, which is all the secret that some have.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

__all__ = ["Confidence", "credentials", "secret_address", "unseen"]

#: Shorter texts are in every other word; nobody could hide them.
_LEAST = 3
#: A part of a path is a secret only where it could not be guessed.
_LEAST_OF_A_PATH = 6
_HIDDEN = "***"
#: The loggers of httpx and httpcore. Each request's address, headers included, is told there.
_TOLD_BY = ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")))


class Confidence:
    """Hides in others' texts what they were told.

    Args:
        secrets: texts that are hidden, as they are and as URLs write them. Of ``Bearer …``, also what is behind it.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        given = tuple(secrets)
        texts = {*given, *(secret.partition(" ")[2] for secret in given)}
        forms = {form for text in texts for form in (text, quote(text, safe=""), quote(text), unquote(text))}
        # The longest first: one may be a part of another.
        self._texts = sorted((form for form in forms if len(form) >= _LEAST), key=len, reverse=True)

    def hide(self, text: str) -> str:
        """The text, with ``***`` for what was said in confidence."""
        for secret in self._texts:
            text = text.replace(secret, _HIDDEN)
        return text


def secret_address(url: str) -> Iterator[str]:
    """What nobody is to read of an address that is a secret itself: all but its host and port."""
    parts = urlsplit(url)
    yield url
    yield parts.path
    yield from (part for part in parts.path.split("/") if len(part) >= _LEAST_OF_A_PATH)
    if parts.query:
        yield f"{parts.path}?{parts.query}"
    yield from credentials(url)


def credentials(url: str) -> Iterator[str]:
    """What nobody is to read of any address: who asks, with which password, and its query."""
    parts = urlsplit(url)
    yield parts.query
    yield from (value for _, value in parse_qsl(parts.query))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if user or password:
        yield from (user, password, base64.b64encode(f"{user}:{password}".encode()).decode())


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
