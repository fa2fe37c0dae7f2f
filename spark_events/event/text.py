"""Text as every destination can take it."""

from __future__ import annotations

import re

__all__ = ["on_one_line", "plain", "said_of"]

# Line breaks of every kind, and what a terminal would obey.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def on_one_line(text: str) -> str:
    """Without anything that would begin another line or steer a terminal."""
    return _CONTROL.sub(" ", text)


def plain(value: str) -> str:
    """A str that is nothing but a str, without the lone surrogates that UTF-8 cannot hold."""
    return value.encode("utf-8", "replace").decode()


def said_of(thing: object, most: int) -> str:
    """What somebody else's object says of itself, in at most so many characters."""
    try:
        return plain(str(thing)[:most])
    except Exception as error:
        return f"(cannot be told, its __str__ raises {type(error).__name__})"
