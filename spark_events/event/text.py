"""Sanitising of text for terminals and UTF-8."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["on_one_line", "plain", "said_of", "snake_case", "visible"]

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_BREAKS = re.compile("[\t-\r\x85\u2028\u2029]+")
# Terminal control, bidirectional ("Trojan Source") and zero-width characters. Joiners stay: emoji and some scripts need
# them.
_CONTROLS = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


def on_one_line(text: str) -> str:
    """Return the text on one line: breaks and tabs as a blank, all other control characters escaped.

    >>> on_one_line("two\\nlines, \\u202etxt.exe")
    'two lines, \\\\u202etxt.exe'
    """
    return visible(_BREAKS.sub(" ", text))


def visible(text: str) -> str:
    """Escape control characters, including bidirectional ones; line breaks and tabs stay."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def plain(value: str) -> str:
    """Return a plain str, without the lone surrogates that UTF-8 cannot encode."""
    return value.encode("utf-8", "replace").decode()


@lru_cache(maxsize=1024)
def snake_case(name: str) -> str:
    """Return a name in camel case as snake case.

    >>> snake_case("triggerExecution")
    'trigger_execution'
    """
    return _WORD.sub("_", name).lower()


def said_of(thing: object, most: int) -> str:
    """Return at most ``most`` characters of the ``str`` of a foreign object; never raise."""
    try:
        return plain(str(thing)[:most])
    except Exception as error:
        return f"(not printable: its __str__ raises {type(error).__name__})"
