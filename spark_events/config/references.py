"""References to values stored elsewhere, ``${env:NAME}`` and ``${file:/path}``; hiding of secrets in strings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from spark_events.config.kinds import Kind

#: Minimum length of a secret that is hidden. A shorter secret may be a part of ordinary words.
_LEAST = 3
#: Pattern of secrets that are safe to replace inside a word, because they are long or contain a digit.
NO_WORD = re.compile(r".{12,}|(?=.*\d).{6,}", re.DOTALL)
_WORD = re.compile(r"\w")
_HIDDEN = "***"


class Confidence:
    """Filter that replaces secrets in strings.

    Args:
        secrets: strings to hide, also in their URL, JSON and Python forms. A mapping contains a replacement for each
            string.
    """

    def __init__(self, secrets: Iterable[str] | Mapping[str, str]) -> None:
        named = secrets if isinstance(secrets, Mapping) else dict.fromkeys(secrets, _HIDDEN)
        self._shown = {form: shown for secret, shown in named.items() for form in _forms(secret) if len(form) >= _LEAST}
        # Sort the secrets by length, longest first, because one secret may contain another.
        pattern = "|".join(map(_alone, sorted(self._shown, key=len, reverse=True)))
        self._pattern = re.compile(pattern) if pattern else None

    def hide(self, text: str) -> str:
        """Replace each secret with ``***``, or with its reference."""
        return self._pattern.sub(lambda found: self._shown[found[0]], text) if self._pattern else text


def _forms(text: str) -> Iterator[str]:
    """Return the forms in which a library may quote a string: stripped, URL-encoded, JSON, Python."""
    for whole in (text, text.strip()):
        for written in (whole, unquote(whole), quote(whole, safe=""), quote(whole)):
            yield written
            yield re.sub("%[0-9A-F]{2}", lambda escape: escape[0].lower(), written)
            for escaped in (json.dumps(written), json.dumps(written, ensure_ascii=False), repr(written)):
                yield escaped[1:-1]
                yield escaped[1:-1].replace("/", "\\/")


def _alone(text: str) -> str:
    """Return a pattern that matches the string as a word, and not within a longer word (``prod`` in ``product``)."""
    is_secret = NO_WORD.fullmatch(text) is not None
    before = r"(?<!\w)" if _WORD.match(text) and not is_secret else ""
    behind = r"(?!\w)" if _WORD.match(text[-1]) and not is_secret else ""
    return f"{before}{re.escape(text)}{behind}"


_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
#: Names of secret keys: Spark's default ``spark.redaction.regex``, extended for reporters.
_SECRET_KEY = re.compile(r"(?i)secret|pass?w(or)?d|token|access[._-]?key|api[._-]?key|credential|authorization|headers")

#: Match up to the last @, because users often forget to encode special characters in a password.
_PASSWORD = re.compile(r"(://[^\s/:@]*:)\S+(@)")


class UnresolvedError(ValueError):
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
    if where == "env":
        if name not in os.environ:
            raise UnresolvedError(f"the sidecar's environment has no variable {name}")
        return os.environ[name]
    try:
        return Path(name).read_text("utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its content is not UTF-8 text"
        raise UnresolvedError(f"the file {name} cannot be read: {reason}") from None


def is_secret_key(key: str) -> bool:
    """Return whether the name in the key suggests a secret, such as password or token."""
    return _SECRET_KEY.search(key) is not None


def is_secret(key: str, value: str) -> bool:
    """Return whether a value must be hidden, because of its key's name or because it contains a reference."""
    return is_secret_key(key) or _REFERENCE.search(value) is not None


def shown(key: str, value: str, confidential: bool = False) -> str:
    """Return a value as messages show it: references unresolved, secrets and URL passwords hidden."""
    if (confidential or is_secret_key(key)) and _REFERENCE.fullmatch(value) is None:
        return "a value that is not shown"
    return repr(without_password(value))


def without_password(text: str) -> str:
    """Replace passwords in URLs with ``***``.

    >>> without_password("cannot reach postgresql://ada:s3cret@db/events")
    'cannot reach postgresql://ada:***@db/events'
    """
    return _PASSWORD.sub(r"\1***\2", text)
