"""What messages may quote of a user's settings: the one place that renders a key, a value or a URL.

- A value is quoted only if its kind says that it is harmless (:attr:`Kind.harmless`), or if it is a reference.
- A URL is quoted as scheme and host; the port is kept, because one host may run several receivers.
- The value of an unknown key is never quoted.
"""

from __future__ import annotations

import re
from typing import Any

from spark_events.config.references import QUOTED_REFERENCE
from spark_events.config.value_kinds import Kind

#: Names of secret keys: Spark's default ``spark.redaction.regex``, extended for reporters.
_SECRET_KEY = re.compile(r"(?i)secret|pass?w(or)?d|token|access[._-]?key|api[._-]?key|credential|authorization|headers")
_NOT_SHOWN = "a value that is not shown"
#: Beginning of a key that messages quote. A line of a file without a separator is a key that may contain its value.
_KEY = re.compile(r"[\w.$-]{0,200}")

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30})://(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_HOST = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
#: URL in a text. A password with unescaped characters is a part of it, up to its last @.
_URLS = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,30}://(?:[^\s/:@]*:\S*@)?(?:[^\s'\"<>\\]*[^\s'\"<>\\.,;:!?)\]}])?")


def is_secret_key(key: str) -> bool:
    """Return whether the name in the key suggests a secret, such as password or token."""
    return _SECRET_KEY.search(key) is not None


def is_harmless(key: str, value: str, kind: Kind[Any]) -> bool:
    """Return whether messages may contain a value."""
    if kind.confidential or kind.harmless is None or is_secret_key(key):
        return False
    return kind.harmless.fullmatch(value) is not None


def quoted(key: str, value: str, kind: Kind[Any]) -> str:
    """Return a value as messages show it.

    >>> from spark_events.config import duration, text
    >>> quoted("timeout", "10 sec", duration), quoted("endpoint", "https://ada:s3cret@collector/v1?key=s3cret", text())
    ("'10 sec'", "'https://collector/…'")
    >>> quoted("timeout", "hunter2-s3cret", duration)
    'a value that is not shown'
    """
    if not value or is_harmless(key, value, kind) or QUOTED_REFERENCE.fullmatch(value):
        return repr(value)
    # The host of a confidential URL that is invalid may be a misplaced secret.
    is_url = not kind.confidential and not is_secret_key(key) and _URL.fullmatch(value) and not re.search(r"\s", value)
    if is_url and (short := scheme_and_host(value)):
        return repr(short)
    return _NOT_SHOWN


def quoted_key(key: str) -> str:
    """Return a key, cut at the first character that keys do not contain."""
    kept = _KEY.match(key)
    shown = kept[0] if kept else ""
    return key if shown == key else f"{shown}…"


def quoted_source(source: str) -> str:
    """Return a path or URL for messages; a path with an @ may be a mistyped URL with a password.

    >>> quoted_source("postgresql:/ada:s3cret@db/events"), quoted_source("s3://bucket/spark-logs")
    ('SOURCE', 's3://bucket/…')
    """
    if "://" in source:
        return scheme_and_host(source) or "SOURCE"
    return "SOURCE" if "@" in source else source


def scheme_and_host(url: str) -> str:
    """Return the scheme and host of a URL, with its port; an empty string if the host is unclear.

    >>> scheme_and_host("postgresql://ada:s3cret@db:5432/events?password=s3cret")
    'postgresql://db:5432/…'
    """
    parts = _URL.fullmatch(url)
    # An @ behind the first slash may belong to a password with an unescaped slash.
    if parts is None or "@" in parts["rest"]:
        return ""
    host = parts["authority"].rpartition("@")[2]
    if not _HOST.fullmatch(host):
        return ""
    return f"{parts['scheme']}://{host}{'/…' if parts['rest'].strip('/') else parts['rest']}"


def with_short_urls(text: str) -> str:
    """Replace each URL in a text by its scheme and host.

    >>> with_short_urls("cannot reach postgresql://ada:s3cret@db/events")
    'cannot reach postgresql://db/…'
    """
    return _URLS.sub(lambda url: scheme_and_host(url[0]) or f"{url[0].partition('://')[0]}://…", text)
