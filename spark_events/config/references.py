"""Values that are kept elsewhere, ``${env:NAME}`` and ``${file:/path}``, and what is never shown of them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from spark_events.config.kinds import Kind

__all__ = [
    "Secret",
    "UnresolvedError",
    "has_reference",
    "is_secret",
    "is_telling",
    "resolve",
    "resolved",
    "secret",
    "shown",
    "without_password",
]

_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
#: Spark's own idea of what a secret is called (``spark.redaction.regex``), and what reporters add to it.
_TELLING_KEY = re.compile(
    r"(?i)secret|pass?w(or)?d|token|access[._-]?key|api[._-]?key|credential|authorization|headers"
)

#: Up to the last @: passwords hold all kinds of characters that should have been escaped.
_PASSWORD = re.compile(r"(://[^\s/:@]*:)\S+(@)")


class UnresolvedError(ValueError):
    """What a reference names is not there; the message names the reference alone."""


class Secret:
    """A text that no ``repr``, no message and no log shows by accident.

    Args:
        text: what is to be kept.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one who needs it."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def _secret(value: str) -> Secret:
    if not value:
        raise ValueError("nothing")
    return Secret(value)


#: A text that is never shown; best given as ``${env:NAME}`` or ``${file:/path}``.
secret: Kind[Secret] = Kind("a text that is not empty, or ${env:NAME}, or ${file:/path}", _secret, str, True)


def resolve(value: str) -> str:
    """The value with every reference replaced by what it stands for; of a file, without the last line break.

    Raises:
        UnresolvedError: there is no such variable or file.
    """
    return resolved(value)[0]


def resolved(value: str) -> tuple[str, dict[str, str]]:
    """The same, with what each reference stands for and how it was written: a pipe can be read only once.

    Raises:
        UnresolvedError: there is no such variable or file.
    """
    targets: dict[str, str] = {}

    def target(reference: re.Match[str]) -> str:
        found = _target(reference)
        targets[found] = reference[0]
        return found

    return _REFERENCE.sub(target, value), targets


def _target(reference: re.Match[str]) -> str:
    where, name = reference.groups()
    if where == "env":
        if name not in os.environ:
            raise UnresolvedError(f"the sidecar's environment has no variable {name}")
        return os.environ[name]
    try:
        return Path(name).read_text("utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UnresolvedError(f"the file {name} cannot be read: {reason}") from None


def has_reference(value: str) -> bool:
    """Return whether a value contains ``${env:…}`` or ``${file:…}``."""
    return _REFERENCE.search(value) is not None


def is_telling(key: str) -> bool:
    """Whether a key is called like one of a secret."""
    return _TELLING_KEY.search(key) is not None


def is_secret(key: str, value: str) -> bool:
    """Whether a value is not to be shown: by what its key is called, or because it stands for something else."""
    return is_telling(key) or has_reference(value)


def shown(key: str, value: str, confidential: bool = False) -> str:
    """A value as messages may show it: a reference as it was written, a secret not at all, a URL without password."""
    if (confidential or is_telling(key)) and _REFERENCE.fullmatch(value) is None:
        return "a value that is not shown"
    return repr(without_password(value))


def without_password(text: str) -> str:
    """A text, an error of some library say, in which URLs have ``***`` where a password was.

    >>> without_password("cannot reach postgresql://ada:s3cret@db/events")
    'cannot reach postgresql://ada:***@db/events'
    """
    return _PASSWORD.sub(r"\1***\2", text)
