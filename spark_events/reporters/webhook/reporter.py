"""Reporter that posts events to an HTTP address."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from spark_events import _version
from spark_events.config import Secret
from spark_events.event import Event, without_surrogates
from spark_events.reporters.extras import load_extra
from spark_events.reporters.progress import BatchProgress
from spark_events.reporters.reporter import REQUEST_LINGER, Reporter
from spark_events.reporters.webhook.answers import RefusedError, TooLargeError, verdict
from spark_events.reporters.webhook.config import WebhookConfig
from spark_events.reporters.webhook.formats import (
    CLOUDEVENTS,
    CLOUDEVENTS_BATCH,
    JSON_ARRAY,
    JSON_EACH,
    SLACK,
    Format,
    pagerduty,
)
from spark_events.reporters.webhook.signature import sign
from spark_events.reporters.webhook.sizes import Sizes
from spark_events.reporters.webhook.template import read_template

if TYPE_CHECKING:
    from spark_events.reporters.webhook.post import Post

__all__ = ["WebhookReporter"]

_FORMATS = {
    "json": JSON_ARRAY,
    "json-each": JSON_EACH,
    "slack": SLACK,
    "cloudevents": CLOUDEVENTS,
    "cloudevents-batch": CLOUDEVENTS_BATCH,
}


class WebhookReporter(Reporter):
    """Posts requests one at a time, in order.

    If the receiver refuses a batch, the reporter halves it until it finds the refused event. The dispatcher cancels an
    attempt that exceeds the timeout, which closes the connection. Events that were accepted before are not sent again.
    """

    Config: ClassVar[type[WebhookConfig]] = WebhookConfig

    def __init__(self, config: WebhookConfig) -> None:
        load_extra("httpx", "webhook")
        from spark_events.reporters.webhook.post import Post

        self._format = _format_of(config)
        self._secret: Secret | None = config.signature_secret
        self._signature = config.signature_header
        self._post: Post = Post(
            config,
            {
                "Content-Type": self._format.content_type,
                "User-Agent": f"spark-events/{_version.__version__}",
            },
        )
        self._sizes = Sizes(self._format.most)
        # One call is one request, so timeout, result and counters apply to one request.
        self.max_batch_size = self._sizes.next
        # A format with one event a request gains nothing by waiting for a second one.
        self.linger = 0.0 if self._format.most == 1 else REQUEST_LINGER
        self._progress = BatchProgress()

    async def report(self, events: Sequence[Event]) -> None:
        progress = self._progress
        progress.begin(events)
        while not progress.is_done:
            chunk = events[progress.answered : progress.answered + self._sizes.next]
            try:
                await self._send(chunk)
            except RefusedError as error:
                if len(chunk) == 1:
                    progress.refuse(1, str(error))
                self._sizes.refused(len(chunk), too_large=isinstance(error, TooLargeError))
            else:
                progress.take(len(chunk))
                self._sizes.taken()
            self.max_batch_size = self._sizes.next
        progress.end()

    async def _send(self, events: Sequence[Event]) -> None:
        try:
            body = self._format.body(events)
        except UnicodeEncodeError:
            body = self._format.body([without_surrogates(event) for event in events])
        headers = {}
        if self._secret is not None:
            headers[self._signature] = sign(self._secret.reveal(), body, time.time())
        answer = await self._post(body, headers)
        if (error := verdict(answer.status, answer.retry_after, answer.said, time.time())) is not None:
            raise error

    async def close(self) -> None:
        await self._post.close()


def _format_of(config: WebhookConfig) -> Format:
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
            raise ValueError(f"{key}: {there}, with format={config.format}; this key is for format={needed}")
    if config.template is not None:
        return read_template(config.template)
    if config.routing_key is not None:
        return pagerduty(config.routing_key.reveal())
    return _FORMATS[config.format]
