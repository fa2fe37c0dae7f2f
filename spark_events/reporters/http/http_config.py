"""Settings that the HTTP reporters share."""

from __future__ import annotations

import dataclasses
import re
from urllib.parse import urlsplit

from spark_events.config import Kind, Secret, option, text
from spark_events.config.value_kinds import PATHS


def _url(value: str) -> Secret:
    try:
        parts = urlsplit(value)
        known = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        # Do not quote httpx's message, because it contains a part of the secret value.
        known = False
    if not known or re.search(r"\s", value):
        raise ValueError
    return Secret(value)


#: Type of a setting that contains a URL. Confidential, because anyone who knows a webhook's URL can post to it.
web_url: Kind[Secret] = Kind("a URL that begins with https:// or http://", _url, Secret.reveal, True)


#: Headers that describe the length of the body; httpx sets them.
_OURS = ("content-length", "transfer-encoding")


def _headers(value: str) -> tuple[tuple[str, Secret], ...]:
    pairs = []
    for line in value.split(";"):
        name, separator, content = line.partition(":")
        if not separator or not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name.strip()):
            raise ValueError
        if name.strip().lower() in _OURS:
            raise ValueError
        if not re.fullmatch(r"[\x20-\x7e\x80-\xff\t]*", content.strip()):
            raise ValueError
        pairs.append((name.strip(), Secret(content.strip())))
    return tuple(pairs)


#: Request headers. Confidential, because most of them are credentials.
header_pairs: Kind[tuple[tuple[str, Secret], ...]] = Kind(
    "name: value, several separated by ; and none of them Content-Length or Transfer-Encoding",
    _headers,
    lambda pairs: "; ".join(f"{name}: {value.reveal()}" for name, value in pairs),
    True,
)
#: Type of a setting that contains the path of a PEM file.
pem_file = text("the path of a PEM file", PATHS)


@dataclasses.dataclass(frozen=True, slots=True)
class HttpConfig:
    """Settings of a connection to one URL."""

    url: Secret = option("url", web_url, doc="Address of the receiver; treated as a secret.")
    headers: tuple[tuple[str, Secret], ...] = option(
        "headers", header_pairs, (), doc="Headers of every request; never shown."
    )
    tls_ca: str | None = option(
        "tls.ca",
        pem_file,
        None,
        doc="PEM file of the trusted certificate authorities; default: SSL_CERT_FILE, otherwise the package certifi.",
    )
    proxy: Secret | None = option(
        "proxy", web_url, None, doc="Address of the proxy; default: from HTTPS_PROXY, HTTP_PROXY and NO_PROXY."
    )
