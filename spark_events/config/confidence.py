"""Removal of secrets from texts of libraries and servers, which quote values in their own forms."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from spark_events.config.quoting import scheme_and_host, with_short_urls

#: Minimum length of a secret that is hidden. A shorter secret may be a part of ordinary words.
_LEAST = 3
#: Pattern of secrets that are safe to replace inside a word, because they are long or contain a digit.
NO_WORD = re.compile(r".{12,}|(?=.*\d).{6,}", re.DOTALL)
_WORD = re.compile(r"\w")
_HIDDEN = "***"
#: Minimum length of a part of a secret in Base64; shorter parts occur by chance.
_LEAST_BASE64 = 8
#: Name and value of a secret inside a value, such as ``password="…"`` of ``sasl.jaas.config``.
_ASSIGNED = re.compile(r"(?i)\w*(?:pass?w(?:or)?d|secret|token|key|pwd)\w*\s*[=:]\s*([\"']?)(.+?)(?:\1(?:[\s;,&]|$)|$)")


class Confidence:
    """Filter that replaces secrets in strings, and reduces URLs to scheme and host.

    Args:
        secrets: strings to hide, also in their URL, JSON, Python and Base64 forms. A mapping contains a replacement for
            each string.
    """

    def __init__(self, secrets: Iterable[str] | Mapping[str, str]) -> None:
        named = secrets if isinstance(secrets, Mapping) else dict.fromkeys(secrets, _HIDDEN)
        self._shown = {
            form: (shown == _HIDDEN and scheme_and_host(form)) or shown
            for secret, shown in named.items()
            for form in _forms(secret)
            if len(form) >= _LEAST
        }
        # Sort the secrets by length, longest first, because one secret may contain another.
        pattern = "|".join(map(_alone, sorted(self._shown, key=len, reverse=True)))
        self._pattern = re.compile(pattern) if pattern else None

    def hide(self, text: str) -> str:
        """Replace each secret with ``***``, or with its reference, and shorten each URL."""
        hidden = self._pattern.sub(lambda found: self._shown[found[0]], text) if self._pattern else text
        return with_short_urls(hidden)


def parts_of(value: str) -> Iterator[str]:
    """Yield the parts of a value that a library may quote alone: of a URL, a header, or a list of settings."""
    yield from (found[2] for found in _ASSIGNED.finditer(value))
    if "://" in value:
        yield from secret_address(value)
    else:
        yield from (part for part in re.split(r"[\s;,=\"'&?@/]+", value) if NO_WORD.fullmatch(part))


def secret_address(url: str) -> Iterator[str]:
    """Yield the secret parts of a confidential URL: all parts except host and port.

    A path without a host is a file. The name of a user beside a password is a secret only if it looks like one: it may
    be a common word.
    """
    yield url
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    if parts.netloc:
        yield parts.path
        yield from (part for part in parts.path.split("/") if NO_WORD.fullmatch(part))
    if parts.query:
        yield f"{parts.path}?{parts.query}"
        yield parts.query
    yield parts.fragment
    # Also hide the undecoded value, because some receivers do not decode "+" as a space.
    yield from (one.partition("=")[2] for one in parts.query.split("&"))
    yield from (value for _, value in parse_qsl(parts.query))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if user or password:
        yield from (password, f"{user}:{password}", parts.netloc.rpartition("@")[0])
        if not password or NO_WORD.fullmatch(user):
            yield user


def in_headers(values: Iterable[str]) -> Iterator[str]:
    """Yield the values of headers, and the secret part of a value after ``Bearer`` or ``session=``."""
    for value in values:
        yield value
        yield from re.split(r"[ =;,]+", value)[1:]


def _forms(text: str) -> Iterator[str]:
    """Return the forms in which a library may quote a string: stripped, URL-encoded, JSON, Python, Base64."""
    for whole in dict.fromkeys((text, text.strip())):
        for written in dict.fromkeys((whole, unquote(whole), quote(whole, safe=""), quote(whole))):
            yield written
            yield re.sub("%[0-9A-F]{2}", lambda escape: escape[0].lower(), written)
            octets = written.encode("utf-8", "surrogatepass")
            for escaped in (
                json.dumps(written)[1:-1],
                json.dumps(written, ensure_ascii=False)[1:-1],
                repr(written)[1:-1],
                repr(octets)[2:-1],
            ):
                yield escaped
                yield escaped.replace("/", "\\/")
            yield from _base64(octets)


def _base64(octets: bytes) -> Iterator[str]:
    """Yield the Base64 of a secret, and the part of it that is the same when other bytes come before and after."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        if len(octets) >= _LEAST:
            yield encode(octets).decode().rstrip("=")
        for before in range(3):
            begin, end = -(-before * 4 // 3), (before + len(octets)) * 4 // 3
            kept = encode(bytes(before) + octets).decode()[begin:end]
            if len(kept) >= _LEAST_BASE64:
                yield kept


def _alone(text: str) -> str:
    """Return a pattern that matches the string as a word, and not within a longer word (``prod`` in ``product``)."""
    is_secret = NO_WORD.fullmatch(text) is not None
    before = r"(?<!\w)" if _WORD.match(text) and not is_secret else ""
    behind = r"(?!\w)" if _WORD.match(text[-1]) and not is_secret else ""
    return f"{before}{re.escape(text)}{behind}"
