"""What an address and its headers say in confidence is in no log, and in no event of another reporter.

Receivers quote what they were sent: a page for 404 has the path in it, which is all the secret that some have.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

__all__ = ["Confidence", "credentials", "secret_address", "unseen"]

#: Shorter texts are in every other word; nobody could hide them.
_LEAST = 3
#: What is no word: it is long, or it has a number in it.
_NO_WORD = re.compile(r".{12,}|(?=.*\d).{6,}", re.DOTALL)
_WORD = re.compile(r"\w")
_HIDDEN = "***"
#: The loggers of httpx and httpcore. Each request's address, headers included, is told there.
_TOLD_BY = ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")))


class Confidence:
    """Hides in others' texts what they were told.

    Args:
        secrets: texts that are hidden, as they are and as URLs and JSON write them. Of ``Bearer …`` and ``session=…``,
            also what is behind it.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        texts = {part for secret in secrets for part in (secret, *re.split(r"[ =;,]+", secret)[1:])}
        forms = {form for text in texts for form in _forms(text) if len(form) >= _LEAST}
        # The longest first: one may be a part of another.
        self._pattern = "|".join(map(_alone, sorted(forms, key=len, reverse=True)))

    def hide(self, text: str) -> str:
        """The text, with ``***`` for what was said in confidence."""
        return re.sub(self._pattern, _HIDDEN, text) if self._pattern else text


def _forms(text: str) -> Iterator[str]:
    """How it may come back: as URLs write it, in either case, and as JSON does."""
    for written in (text, unquote(text), quote(text, safe=""), quote(text)):
        yield written
        yield re.sub("%[0-9A-F]{2}", lambda escape: escape[0].lower(), written)
        yield written.replace("\\", "\\\\").replace('"', '\\"').replace("/", "\\/")


def _alone(text: str) -> str:
    """One that may be a word, not as a part of another: nobody hides ``prod`` in ``product``."""
    is_secret = _NO_WORD.fullmatch(text) is not None
    before = r"(?<!\w)" if _WORD.match(text) and not is_secret else ""
    behind = r"(?!\w)" if _WORD.match(text[-1]) and not is_secret else ""
    return f"{before}{re.escape(text)}{behind}"


def secret_address(url: str) -> Iterator[str]:
    """What nobody is to read of an address that is a secret itself: all but its host and port."""
    parts = urlsplit(url)
    yield url
    yield parts.path
    yield from (part for part in parts.path.split("/") if _NO_WORD.fullmatch(part))
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
