"""Requests of PagerDuty's Events API v2, with one PagerDuty alert per incident."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from spark_events.event import Severity
from spark_events.reporters.webhook.alerts.formats import (
    AlertFormat,
    AlertRequest,
    facts_of,
    links_of,
    tags_of,
    title_of,
)
from spark_events.reporters.webhook.alerts.store import Notice
from spark_events.reporters.webhook.formats import about, timestamp

__all__ = ["pagerduty"]

#: Limits of the API, in characters.
_SUMMARY = 1_024
_KEY = 255
_SEVERITIES = {Severity.WARN: "warning", Severity.ERROR: "error", Severity.FATAL: "critical"}


def pagerduty(routing_key: str) -> AlertFormat:
    """Return the format; a recovery is one request per key, known open alerts first."""

    def request(key: str, action: str) -> dict[str, Any]:
        return {"routing_key": routing_key, "event_action": action, "dedup_key": _shortened(f"spark-events:{key}")}

    def requests(notice: Notice) -> list[AlertRequest]:
        if notice.is_recovery:
            return [AlertRequest((key,), request(key, "resolve")) for key in notice.keys]
        event, links, facts = notice.event, links_of(notice.event), facts_of(notice)
        details = {**facts, "event_id": event.event_id, **event.attributes}
        payload = {
            "summary": title_of(event)[:_SUMMARY] or event.name,
            "source": str(event.attributes.get("host.name") or event.attributes.get("spark.app.id") or "spark"),
            "severity": _SEVERITIES.get(event.severity, "info"),
            "timestamp": timestamp(event),
            "component": about(event),
            "class": str(event.attributes.get("error.type") or event.name),
            "custom_details": {**tags_of(event.attributes, details), **details},
        }
        made = {**request(notice.keys[0], "trigger"), "client": "spark-events", "payload": payload}
        return [
            AlertRequest(notice.keys, {**made, "links": [{"href": url, "text": text} for text, url in links.items()]})
        ]

    return AlertFormat(requests)


def _shortened(key: str) -> str:
    """Shorten a key to 255 characters, so that different keys stay different."""
    if len(key) <= _KEY:
        return key
    digest = blake2b(key.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{key[: _KEY - len(digest) - 1]}~{digest}"
