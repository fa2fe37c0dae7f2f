"""Settings of the reporter ``webhook``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from spark_events.config import Secret, choice, duration, option, path, positive_duration, secret, state_folder, text
from spark_events.config.value_kinds import PATHS
from spark_events.event import Severity
from spark_events.reporters.http.http_config import HttpConfig, pem_file
from spark_events.reporters.reporter import severity, short_duration

#: Formats with alerts, which events open and close.
ALERTS = ("pagerduty", "alertmanager", "slack", "teams")
FORMATS = ("json", "json-each", *ALERTS, "cloudevents", "cloudevents-batch", "template")


@dataclasses.dataclass(frozen=True, slots=True)
class WebhookConfig(HttpConfig):
    """Settings below ``events.reporter.<name>.`` for type ``webhook``."""

    format: str = option(
        "format",
        choice(*FORMATS),
        "json",
        doc="Format of the request: an array of events, one event, or the format of another system.",
    )
    template: str | None = option(
        "template",
        text("the path of a JSON file", PATHS),
        None,
        doc="With format=template: the JSON to post for each event.",
    )
    routing_key: Secret | None = option(
        "routing-key", secret, None, doc="With format=pagerduty: the routing key of the integration (Events API v2)."
    )
    group_wait: float = option(
        "group-wait",
        short_duration,
        5.0,
        doc="Slack and Teams: time for which a failure waits for others, so that one message lists them all.",
    )
    cooldown: float = option(
        "cooldown",
        duration,
        600.0,
        doc="Time after a message during which further failures of the incident are only counted; if an alert opens "
        "again within this time, its recovery waits until the work was quiet for this time.",
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
    signature_secret: Secret | None = option(
        "signature.secret", secret, None, doc="Secret that signs requests. If unset, requests are not signed."
    )
    signature_header: str = option(
        "signature.header",
        text("the name of a header"),
        "X-Spark-Events-Signature",
        doc="Header for the signature.",
    )
    tls_certificate: str | None = option(
        "tls.certificate",
        pem_file,
        None,
        doc="PEM file of the client certificate; tls.key sets its key unless this file contains it.",
    )
    tls_key: str | None = option("tls.key", pem_file, None, doc="PEM file of the client certificate's key.")

    @property
    def wants_recoveries(self) -> bool:
        """Whether the reporter receives events that close an alert, whatever their severity."""
        return self.format in ALERTS

    @property
    def notifies(self) -> bool:
        """Whether the receiver notifies people; a template usually makes messages for people."""
        return self.format in ALERTS or self.format == "template"

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
