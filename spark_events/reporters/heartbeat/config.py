"""Settings of the reporter ``heartbeat``."""

from __future__ import annotations

import dataclasses

from spark_events.config import Secret, choice, option, text
from spark_events.reporters.webhook.config import WebhookConfig, header_pairs, web_url


@dataclasses.dataclass(frozen=True, slots=True)
class HeartbeatReporterConfig:
    """Settings below ``events.reporter.<name>.`` for type ``heartbeat``."""

    url: Secret = option("url", web_url, doc="Address of the monitor; treated as a secret.")
    format: str = option(
        "format",
        choice("healthchecks", "pushgateway", "alertmanager"),
        "healthchecks",
        doc="Kind of monitor.",
    )
    headers: tuple[tuple[str, Secret], ...] = option(
        "headers", header_pairs, (), doc="Headers of every request; never shown."
    )
    tls_ca: str | None = option(
        "tls.ca",
        text("the path of a PEM file"),
        None,
        doc="PEM file of the trusted certificate authorities, instead of the system's authorities.",
    )
    proxy: Secret | None = option(
        "proxy", web_url, None, doc="Address of the proxy; default: from HTTPS_PROXY, HTTP_PROXY and NO_PROXY."
    )

    def to(self, url: str) -> WebhookConfig:
        """Return the settings of an HTTP connection to the monitor."""
        return WebhookConfig(url=Secret(url), headers=self.headers, tls_ca=self.tls_ca, proxy=self.proxy)
