"""What was said in confidence is in no log, and in no event of another reporter, whoever quotes it."""

from __future__ import annotations

import json
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
        secrets: texts that are hidden, as they are and as URLs, JSON and Python write them; in a mapping, with what is
            shown instead.
    """

    def __init__(self, secrets: Iterable[str] | Mapping[str, str]) -> None:
        named = secrets if isinstance(secrets, Mapping) else dict.fromkeys(secrets, _HIDDEN)
        self._shown = {form: shown for secret, shown in named.items() for form in _forms(secret) if len(form) >= _LEAST}
        # The longest first: one may be a part of another.
        pattern = "|".join(map(_alone, sorted(self._shown, key=len, reverse=True)))
        self._pattern = re.compile(pattern) if pattern else None

    def hide(self, text: str) -> str:
        """The text, with ``***`` for what was said in confidence, or with its name."""
        return self._pattern.sub(lambda found: self._shown[found[0]], text) if self._pattern else text


def _forms(text: str) -> Iterator[str]:
    """How it may come back: without blanks around it, as URLs write it, in either case, and as JSON and Python do."""
    for whole in (text, text.strip()):
        for written in (whole, unquote(whole), quote(whole, safe=""), quote(whole)):
            yield written
            yield re.sub("%[0-9A-F]{2}", lambda escape: escape[0].lower(), written)
            for escaped in (json.dumps(written), json.dumps(written, ensure_ascii=False), repr(written)):
                yield escaped[1:-1]
                yield escaped[1:-1].replace("/", "\\/")


def _alone(text: str) -> str:
    """One that may be a word, not as a part of another: nobody hides ``prod`` in ``product``."""
    is_secret = NO_WORD.fullmatch(text) is not None
    before = r"(?<!\w)" if _WORD.match(text) and not is_secret else ""
    behind = r"(?!\w)" if _WORD.match(text[-1]) and not is_secret else ""
    return f"{before}{re.escape(text)}{behind}"
