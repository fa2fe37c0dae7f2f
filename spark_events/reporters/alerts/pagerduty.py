"""Requests of PagerDuty's Events API v2, with one PagerDuty alert per incident."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from spark_events.event import AttributeValue, Event, Severity
from spark_events.event.stack_traces import without_repeats
from spark_events.event.text import on_one_line, rfc3339
from spark_events.reporters.alerts.alert_requests import AlertFormat, AlertRequest
from spark_events.reporters.alerts.card import Card, card_of, tags_of
from spark_events.reporters.alerts.incident import about
from spark_events.reporters.alerts.store import Notice

__all__ = ["pagerduty"]

#: Limits of the API, in characters.
_SUMMARY = 1_024
_KEY = 255
#: A text that contains this many characters of the stack trace is left out.
_REPEATED = 80
#: Attributes that have a field of their own in the payload: ``class`` and ``component``.
_FIELDS = frozenset(("error.type", "spark.streaming.query.name"))
_SEVERITIES = {Severity.WARN: "warning", Severity.ERROR: "error", Severity.FATAL: "critical"}


def pagerduty(routing_key: str) -> AlertFormat:
    """Return the format; a recovery is one request per key, known open alerts first."""

    def request(key: str, action: str) -> dict[str, Any]:
        return {"routing_key": routing_key, "event_action": action, "dedup_key": _shortened(f"spark-events:{key}")}

    def requests(notice: Notice) -> list[AlertRequest]:
        if notice.is_recovery:
            return [AlertRequest((key,), request(key, "resolve")) for key in notice.keys]
        event, card = notice.event, card_of(notice, with_tags=False)
        details = {**card.facts, "event_id": event.event_id, **_other_attributes(event, card)}
        payload = {
            "summary": card.title[:_SUMMARY] or event.name,
            "source": str(event.attributes.get("host.name") or event.attributes.get("spark.app.id") or "spark"),
            "severity": _SEVERITIES.get(event.severity, "info"),
            "timestamp": rfc3339(event.observed_ts_millis),
            "component": about(event),
            "class": str(event.attributes.get("error.type") or event.name),
            "custom_details": {**tags_of(event.attributes, details), **details},
        }
        made = {**request(notice.keys[0], "trigger"), "client": "spark-events", "payload": payload}
        return [
            AlertRequest(
                notice.keys, {**made, "links": [{"href": url, "text": text} for text, url in card.links.items()]}
            )
        ]

    return AlertFormat(requests)


def _other_attributes(event: Event, card: Card) -> dict[str, AttributeValue]:
    """Return the attributes that neither the card, nor another field, nor the stack trace contains.

    An identifier may stand in a sentence by chance, so only sentences are compared with other texts. The stack trace
    contains each traceback once.
    """
    attributes = event.attributes
    stack = str(attributes.get("exception.stacktrace", ""))
    said = (card.title, *card.facts.values(), on_one_line(stack))

    def is_repeated(name: str, value: AttributeValue) -> bool:
        if name in card.shown or name in _FIELDS:
            return True
        if name == "exception.stacktrace" or not isinstance(value, str):
            return False
        if name == "exception.type" and value == attributes.get("error.type"):
            return True
        text = on_one_line(value.strip())
        return bool(stack and stack[:_REPEATED] in value) or (" " in text and any(text in one for one in said))

    others = {name: value for name, value in attributes.items() if not is_repeated(name, value)}
    if stack:
        others["exception.stacktrace"] = "\n".join(without_repeats(stack.splitlines()))
    return others


def _shortened(key: str) -> str:
    """Shorten a key to 255 characters, so that different keys stay different."""
    if len(key) <= _KEY:
        return key
    digest = blake2b(key.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{key[: _KEY - len(digest) - 1]}~{digest}"
