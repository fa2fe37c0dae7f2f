"""Reporter that posts events to an HTTP URL."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit, urlunsplit

from spark_events.config import Secret
from spark_events.event import Event, Severity, without_surrogates
from spark_events.reporters.alerts.alert_files import AlertFiles
from spark_events.reporters.alerts.alert_memory import AlertMemory
from spark_events.reporters.alerts.alert_requests import AlertFormat
from spark_events.reporters.alerts.alertmanager import ALERTMANAGER
from spark_events.reporters.alerts.pagerduty import pagerduty
from spark_events.reporters.alerts.sender import AlertSender, SenderConfig
from spark_events.reporters.alerts.slack import SLACK
from spark_events.reporters.alerts.states import AlertsConfig
from spark_events.reporters.alerts.store import Alerts
from spark_events.reporters.alerts.teams import TEAMS
from spark_events.reporters.batch_progress import BatchProgress
from spark_events.reporters.reporter import REQUEST_LINGER, Reporter, Rest, load_extra
from spark_events.reporters.webhook.body_formats import CLOUDEVENTS, CLOUDEVENTS_BATCH, JSON_ARRAY, JSON_EACH, Format
from spark_events.reporters.webhook.template import read_template
from spark_events.reporters.webhook.webhook_config import WebhookConfig

if TYPE_CHECKING:
    from spark_events.reporters.http.post import Post

_FORMATS: dict[str, Format | AlertFormat] = {
    "json": JSON_ARRAY,
    "json-each": JSON_EACH,
    "alertmanager": ALERTMANAGER,
    "slack": SLACK,
    "teams": TEAMS,
    "cloudevents": CLOUDEVENTS,
    "cloudevents-batch": CLOUDEVENTS_BATCH,
}


#: Path of Alertmanager's API; appended if ``url`` contains only the server's address.
_ALERTS_PATH = "/api/v2/alerts"


class WebhookReporter(Reporter):
    """Post requests one at a time, in order.

    If the receiver refuses a batch, the reporter halves the batch until it finds the refused event. If an attempt
    exceeds the timeout, the dispatcher cancels it and thereby closes the connection. Events that the receiver has
    accepted are not sent again.
    """

    Config: ClassVar[type[WebhookConfig]] = WebhookConfig

    def __init__(self, config: WebhookConfig) -> None:
        load_extra("httpx", "webhook")
        from spark_events.reporters.http.post import post_to, trust

        form = _format_of(config)
        self._plain = None if isinstance(form, AlertFormat) else form
        self._alerts = _sender(form, config, self._request) if isinstance(form, AlertFormat) else None
        self._secret: Secret | None = config.signature_secret
        self._signature = config.signature_header
        if config.format == "alertmanager":
            parts = urlsplit(config.url.reveal())
            whole = parts._replace(path=f"{parts.path.rstrip('/').removesuffix(_ALERTS_PATH)}{_ALERTS_PATH}")
            config = dataclasses.replace(config, url=Secret(urlunsplit(whole)))
        headers = [("Content-Type", "application/json" if self._plain is None else self._plain.content_type)]
        if config.tls_key is not None and config.tls_certificate is None:
            raise ValueError("tls.key: set without tls.certificate; set both")
        context = trust(config.tls_ca, config.tls_certificate, config.tls_key)
        secrets = [secret for secret in (config.signature_secret, config.routing_key) if secret]
        self._post: Post = post_to(config, context, headers, secrets)
        if isinstance(form, AlertFormat) and form.several is not None:
            self.max_batch_size = form.batch_size
            self.linger, self.lingers_through = config.group_wait, Severity.FATAL
        else:
            # Limit a call to the events of one request, so that timeout, result and counters apply to a single request.
            self.max_batch_size = form.most
            # Do not wait for more events if the format has one event per request.
            self.linger = 0.0 if form.most == 1 else REQUEST_LINGER
        self._batch = BatchProgress()

    def open(self) -> None:
        if self._alerts is not None:
            self._alerts.open()

    async def report(self, events: Sequence[Event]) -> None:
        batch = self._batch.of(events)
        if batch is not self._batch and self._alerts is not None:
            batch.left = self._alerts.parts(events)
        self._batch = batch
        try:
            await batch.deliver(self._send)
        finally:
            self.rest = Rest() if self._alerts is None else self._alerts.rest

    async def _send(self, events: Sequence[Event]) -> tuple[int, str]:
        if self._alerts is not None:
            await self._alerts.send(events)
        elif self._plain is not None:
            try:
                body = self._plain.body(events)
            except UnicodeEncodeError:
                body = self._plain.body([without_surrogates(event) for event in events])
            await self._request(body)
        return 0, ""

    async def _request(self, body: bytes) -> None:
        headers = {}
        if self._secret is not None:
            headers[self._signature] = sign(self._secret.reveal(), body, time.time())
        await self._post.deliver(body, headers)

    async def close(self) -> None:
        if self._alerts is not None:
            await self._alerts.close()
        await self.release()

    async def release(self) -> None:
        if self._alerts is not None:
            await self._alerts.release()
        await self._post.close()


def _sender(form: AlertFormat, config: WebhookConfig, post: Callable[[bytes], Awaitable[None]]) -> AlertSender:
    destination = f"{config.url.reveal()} {config.routing_key.reveal() if config.routing_key else ''}"
    files = None if config.folder is None else AlertFiles(destination, config.folder)
    limits = AlertsConfig(cooldown=config.cooldown, expires_after=config.alerts_expire_after)
    return AlertSender(form, Alerts(AlertMemory(files, limits), limits), post, SenderConfig(config.least_severity))


def _format_of(config: WebhookConfig) -> Format | AlertFormat:
    """Return the configured format.

    Raises:
        ValueError: a key is missing for this format, or belongs to another format.
    """
    for key, value, needed in (
        ("template", config.template, "template"),
        ("routing-key", config.routing_key, "pagerduty"),
    ):
        if (value is not None) is not (config.format == needed):
            there = "set" if value is not None else "not set"
            raise ValueError(f"{key}: {there} with format={config.format}; this key applies only to format={needed}")
    if config.template is not None:
        return read_template(config.template)
    if config.routing_key is not None:
        return pagerduty(config.routing_key.reveal())
    return _FORMATS[config.format]


def sign(secret: str, body: bytes, now: float) -> str:
    """Sign a body: ``t=<seconds since the epoch>,v1=<HMAC-SHA256 of "t.body", hexadecimal>``.

    Stripe's webhooks use the same scheme. The signature covers the time, so that an old request cannot be sent again.

    Args:
        secret: secret that is shared with the receiver.
        body: request body.
        now: seconds since the epoch.
    """
    stamp = str(int(now))
    digest = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={stamp},v1={digest}"
