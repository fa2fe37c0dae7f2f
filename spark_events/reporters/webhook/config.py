"""Settings of the reporter ``webhook``."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from urllib.parse import urlsplit

from spark_events.config import (
    Kind,
    Secret,
    choice,
    duration,
    option,
    path,
    positive_duration,
    secret,
    state_folder,
    text,
)
from spark_events.event import Severity
from spark_events.reporters.reporter import severity


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


#: Formats with alerts, which events open and close.
ALERTS = ("pagerduty", "alertmanager", "slack", "teams")
FORMATS = ("json", "json-each", *ALERTS, "cloudevents", "cloudevents-batch", "template")


@dataclasses.dataclass(frozen=True, slots=True)
class WebhookConfig:
    """Settings below ``events.reporter.<name>.`` for type ``webhook``."""

    url: Secret = option("url", web_url, doc="Address to which events are posted; treated as a secret.")
    format: str = option(
        "format",
        choice(*FORMATS),
        "json",
        doc="Format of the request: an array of events, one event, or the format of another system.",
    )
    template: str | None = option(
        "template", text("the path of a JSON file"), None, doc="With format=template: the JSON to post for each event."
    )
    routing_key: Secret | None = option(
        "routing-key", secret, None, doc="With format=pagerduty: the routing key of the integration (Events API v2)."
    )
    cooldown: float = option(
        "cooldown",
        duration,
        600.0,
        doc="Time after an alert during which further failures of the incident are only counted, not sent.",
    )
    alerts_expire_after: float = option(
        "alerts.expire-after",
        positive_duration,
        7 * 86_400.0,
        doc="Time after which an open alert ends if no event closes it.",
    )
    alerts_directory: str | None = option(
        "alerts.directory", path("the path of a directory"), None, doc="Directory of the open alerts."
    )
    min_severity: Severity | None = option(
        "filter.min-severity",
        severity,
        None,
        doc="Lowest severity of posted events; default: ERROR for formats with alerts, else TRACE.",
    )
    headers: tuple[tuple[str, Secret], ...] = option(
        "headers", header_pairs, (), doc="Headers of every request; never shown."
    )
    signature_secret: Secret | None = option(
        "signature.secret", secret, None, doc="Secret that signs requests. If unset, requests are not signed."
    )
    signature_header: str = option(
        "signature.header",
        text("the name of a header"),
        "X-Spark-Events-Signature",
        doc="Header for the signature.",
    )
    tls_ca: str | None = option(
        "tls.ca",
        text("the path of a PEM file"),
        None,
        doc="PEM file of the trusted certificate authorities, instead of the system's authorities.",
    )
    tls_certificate: str | None = option(
        "tls.certificate",
        text("the path of a PEM file"),
        None,
        doc="PEM file of the client certificate; tls.key sets its key unless this file contains it.",
    )
    tls_key: str | None = option(
        "tls.key", text("the path of a PEM file"), None, doc="PEM file of the client certificate's key."
    )
    proxy: Secret | None = option(
        "proxy", web_url, None, doc="Address of the proxy; default: from HTTPS_PROXY, HTTP_PROXY and NO_PROXY."
    )

    @property
    def wants_recoveries(self) -> bool:
        """Whether the reporter receives events that close an alert, whatever their severity."""
        return self.format in ALERTS

    @property
    def least_severity(self) -> Severity:
        """Lowest severity of events to send; events that close an alert are exempt."""
        return self.min_severity or (Severity.ERROR if self.format in ALERTS else Severity.TRACE)

    @property
    def folder(self) -> Path | None:
        """Directory of the open alerts; None without a home directory."""
        if self.format not in ALERTS:
            return None
        try:
            return Path(self.alerts_directory) if self.alerts_directory else state_folder() / "alerts"
        except RuntimeError:
            return None
