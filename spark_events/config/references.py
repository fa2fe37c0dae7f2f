"""References to values stored elsewhere, ``${env:NAME}`` and ``${file:/path}``, and secret values."""

from __future__ import annotations

import os
import re
from pathlib import Path

from spark_events.config.value_kinds import Kind, SafeReasonError

_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
#: References that messages quote: to a variable or an absolute path with a usual name.
QUOTED_REFERENCE = re.compile(r"\$\{(?:env:[A-Z][A-Z0-9_]*|env:[a-z][a-z_]*|file:/[\w./@ -]*)\}")


class UnresolvedError(SafeReasonError):
    """A variable or file does not exist; the message quotes only the reference."""


class Secret:
    """String that ``repr``, messages and logs do not show.

    Args:
        text: the secret.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret."""
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


#: Secret string; users should set it as ``${env:NAME}`` or ``${file:/path}``.
secret: Kind[Secret] = Kind("a non-empty string, or ${env:NAME}, or ${file:/path}", _secret, str, True)


def has_reference(value: str) -> bool:
    """Return whether a value refers to a variable or a file."""
    return _REFERENCE.search(value) is not None


def resolve(value: str) -> str:
    """Replace every reference in a value; the last line break of a file is removed.

    Raises:
        UnresolvedError: a variable or file does not exist.
    """
    return resolved(value)[0]


def resolved(value: str) -> tuple[str, dict[str, str]]:
    """Resolve a value; also return each resolved string with its reference.

    Resolve each reference only once, because a reference may name a pipe, which can be read only once.

    Raises:
        UnresolvedError: a variable or file does not exist.
    """
    targets: dict[str, str] = {}

    def target(reference: re.Match[str]) -> str:
        found = _target(reference)
        targets[found] = reference[0]
        return found

    return _REFERENCE.sub(target, value), targets


def _target(reference: re.Match[str]) -> str:
    where, name = reference.groups()
    is_quoted = QUOTED_REFERENCE.fullmatch(reference[0]) is not None
    if where == "env":
        if name not in os.environ:
            raise UnresolvedError(f"the sidecar's environment has no variable {name if is_quoted else 'of this name'}")
        return os.environ[name]
    try:
        return Path(name).read_text("utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its content is not UTF-8 text"
        raise UnresolvedError(f"the file {f'{name} ' if is_quoted else ''}cannot be read: {reason}") from None
