"""Fingerprint of a failure: equal for the same cause in other runs and on other machines."""

from __future__ import annotations

import re
from hashlib import blake2b

__all__ = ["fingerprint", "short_location"]

_LONGEST = 500
#: Path or URL; only its last segment becomes part of the fingerprint.
_PATH = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?/+[^\s'\"`,;()\[\]{}<>]*/([^\s'\"`,;()\[\]{}<>/]*)")
#: Words with a digit, such as ids, addresses, ports, dates and numbers.
_VARIABLE = re.compile(r"[^\s'\"`,;()\[\]{}<>=]*\d[^\s'\"`,;()\[\]{}<>=]*")
_HOST = re.compile(r"(?<=UnknownHostException: )\S+|\S+(?=: (?:Name or service not known|nodename nor servname))")
_LINE = re.compile(r":\d+(?= in |$)")
#: Spark's condition at the beginning of a message. Spark omits the exception's type before it in the error of a SQL
#: execution, but not in that of its job.
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ")


def fingerprint(error_type: str, message: str, location: str | None) -> str:
    """Return a hash of the error type, the user's file and function, and the fixed parts of the message.

    Line numbers are excluded, because an edit elsewhere in the file changes them.

    Args:
        error_type: the type of the root cause.
        message: the message of the root cause; only its first line is used.
        location: the innermost line of the user's code, in the form of ``failure.location``.
    """
    first_line = message.strip().partition("\n")[0][:_LONGEST]
    if condition := _CONDITION.match(first_line):
        error_type = condition[1]
    text = _HOST.sub("#", f"{error_type}: {first_line}")
    text = _VARIABLE.sub("#", _PATH.sub(r"#/\1", text))
    frame = _LINE.sub("", short_location(location)) if location else ""
    return blake2b(f"{text}\x1f{frame}".encode("utf-8", "replace"), digest_size=8).hexdigest()


def short_location(location: str) -> str:
    """Return a location without its folder.

    >>> short_location("/jobs/payments.py:16 in book")
    'payments.py:16 in book'
    """
    file, found, function = location.partition(" in ")
    return re.split(r"[/\\]", file)[-1] + found + function
