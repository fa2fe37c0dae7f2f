"""What was said in confidence is in no log, and in no event of another reporter, whoever quotes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, unquote

__all__ = ["NO_WORD", "Confidence"]

#: Shorter texts are in every other word; nobody could hide them.
_LEAST = 3
#: What is no word: it is long, or it has a number in it.
NO_WORD = re.compile(r".{12,}|(?=.*\d).{6,}", re.DOTALL)
_WORD = re.compile(r"\w")
_HIDDEN = "***"


class Confidence:
    """Hides in others' texts what they were told.

    Args:
        secrets: texts that are hidden, as they are and as URLs and JSON write them; in a mapping, with what is shown
            instead. Of ``Bearer …`` and ``session=…``, also what is behind it.
    """

    def __init__(self, secrets: Iterable[str] | Mapping[str, str]) -> None:
        named = secrets if isinstance(secrets, Mapping) else dict.fromkeys(secrets, _HIDDEN)
        self._shown = {
            form: shown
            for secret, shown in named.items()
            for text in (secret, *re.split(r"[ =;,]+", secret)[1:])
            for form in _forms(text)
            if len(form) >= _LEAST
        }
        # The longest first: one may be a part of another.
        self._pattern = "|".join(map(_alone, sorted(self._shown, key=len, reverse=True)))

    def hide(self, text: str) -> str:
        """The text, with ``***`` for what was said in confidence, or with its name."""
        return re.sub(self._pattern, lambda found: self._shown[found[0]], text) if self._pattern else text


def _forms(text: str) -> Iterator[str]:
    """How it may come back: as URLs write it, in either case, and as JSON does."""
    for written in (text, unquote(text), quote(text, safe=""), quote(text)):
        yield written
        yield re.sub("%[0-9A-F]{2}", lambda escape: escape[0].lower(), written)
        yield written.replace("\\", "\\\\").replace('"', '\\"').replace("/", "\\/")


def _alone(text: str) -> str:
    """One that may be a word, not as a part of another: nobody hides ``prod`` in ``product``."""
    is_secret = NO_WORD.fullmatch(text) is not None
    before = r"(?<!\w)" if _WORD.match(text) and not is_secret else ""
    behind = r"(?!\w)" if _WORD.match(text[-1]) and not is_secret else ""
    return f"{before}{re.escape(text)}{behind}"
