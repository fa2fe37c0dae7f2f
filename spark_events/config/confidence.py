"""Hiding of secrets in texts that quote them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, unquote

__all__ = ["NO_WORD", "Confidence"]

#: Minimum length of a hidden secret; shorter texts occur in ordinary words.
_LEAST = 3
#: Text that cannot be an ordinary word: it is long, or it contains a digit.
NO_WORD = re.compile(r".{12,}|(?=.*\d).{6,}", re.DOTALL)
_WORD = re.compile(r"\w")
_HIDDEN = "***"


class Confidence:
    """Replaces secrets in texts.

    Args:
        secrets: texts to hide, also in their URL, JSON and Python forms; a mapping gives the replacement for each.
    """

    def __init__(self, secrets: Iterable[str] | Mapping[str, str]) -> None:
        named = secrets if isinstance(secrets, Mapping) else dict.fromkeys(secrets, _HIDDEN)
        self._shown = {form: shown for secret, shown in named.items() for form in _forms(secret) if len(form) >= _LEAST}
        # Longest first, because one secret may contain another.
        pattern = "|".join(map(_alone, sorted(self._shown, key=len, reverse=True)))
        self._pattern = re.compile(pattern) if pattern else None

    def hide(self, text: str) -> str:
        """Replace each secret with ``***``, or with its reference."""
        return self._pattern.sub(lambda found: self._shown[found[0]], text) if self._pattern else text


def _forms(text: str) -> Iterator[str]:
    """Return the forms in which a library may quote a text: stripped, URL-encoded, JSON, Python."""
    for whole in (text, text.strip()):
        for written in (whole, unquote(whole), quote(whole, safe=""), quote(whole)):
            yield written
            yield re.sub("%[0-9A-F]{2}", lambda escape: escape[0].lower(), written)
            for escaped in (json.dumps(written), json.dumps(written, ensure_ascii=False), repr(written)):
                yield escaped[1:-1]
                yield escaped[1:-1].replace("/", "\\/")


def _alone(text: str) -> str:
    """Return a pattern that does not match an ordinary word within a longer word (``prod`` in ``product``)."""
    is_secret = NO_WORD.fullmatch(text) is not None
    before = r"(?<!\w)" if _WORD.match(text) and not is_secret else ""
    behind = r"(?!\w)" if _WORD.match(text[-1]) and not is_secret else ""
    return f"{before}{re.escape(text)}{behind}"
