"""Request bodies: JSON, Slack, PagerDuty, CloudEvents."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from spark_events.event import Event, Severity, encode_event

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ENCODER = msgspec.json.Encoder()
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]+")
_ALL = 100_000
#: Slack's limits: attachments per message, characters per text.
_SLACK_ATTACHMENTS = 20
_SLACK_TEXT = 3_000
_SLACK_COLOURS = {Severity.WARN: "warning", Severity.ERROR: "danger", Severity.FATAL: "danger"}
#: Limits of PagerDuty's Events API v2, in characters.
_PAGERDUTY_SUMMARY = 1_024
_PAGERDUTY_KEY = 255
_PAGERDUTY_SEVERITY = {Severity.WARN: "warning", Severity.ERROR: "error", Severity.FATAL: "critical"}


class Format(NamedTuple):
    """Conversion of events to a request body.

    Attributes:
        body: converts events to bytes; raises ``UnicodeEncodeError`` for lone surrogates.
        most: maximum number of events per request.
        content_type: MIME type of the body.
    """

    body: Callable[[Sequence[Event]], bytes]
    most: int
    content_type: str = "application/json"


def one_each(make: Callable[[Event], Any], content_type: str = "application/json") -> Format:
    """Return a format with one request per event, whose body is ``make(event)`` as JSON."""
    return Format(lambda events: _ENCODER.encode(make(events[0])), 1, content_type)


def _slack(events: Sequence[Event]) -> bytes:
    """Return a message with one attachment per event; the notification shows the most severe event."""
    worst = max(events, key=lambda event: event.severity.number)
    more = f" (and {len(events) - 1} more)" if len(events) > 1 else ""
    return _ENCODER.encode(
        {
            "text": _escaped(f"{worst.severity.value}: {worst.body}{more}"),
            "attachments": [
                {
                    "color": _SLACK_COLOURS.get(event.severity, "good"),
                    "title": _escaped(f"{event.severity.value} {event.name}"),
                    "text": _escaped(event.body),
                    "footer": _escaped(_about(event)),
                    "ts": event.observed_ts_millis // 1000,
                }
                for event in events
            ],
        }
    )


def _escaped(text: str) -> str:
    """Escape Slack's control characters, so that an event's text cannot create links or mentions."""
    cut = text if len(text) <= _SLACK_TEXT else f"{text[: _SLACK_TEXT - 1]}…"
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def pagerduty(routing_key: str) -> Format:
    """Return the Events API v2 format, with one alert per query, else per application."""

    def make(event: Event) -> dict[str, Any]:
        subject = _first(event, "spark.streaming.query.id", "spark.app.id") or event.event_id
        return {
            "routing_key": routing_key,
            "event_action": "trigger",
            "dedup_key": f"spark-events:{subject}"[:_PAGERDUTY_KEY],
            "client": "spark-events",
            "payload": {
                "summary": event.body[:_PAGERDUTY_SUMMARY] or event.name,
                "source": _first(event, "host.name", "spark.app.id") or "spark",
                "severity": _PAGERDUTY_SEVERITY.get(event.severity, "info"),
                "timestamp": timestamp(event),
                "component": _about(event),
                "class": event.name,
                "custom_details": {"event_id": event.event_id, **event.attributes},
            },
        }

    return one_each(make)


def _cloudevent(event: Event) -> dict[str, Any]:
    """Return a structured CloudEvent 1.0 whose data is the whole event."""
    made = {
        "specversion": "1.0",
        "id": event.event_id,
        "source": f"/spark/{quote(_first(event, 'spark.app.id') or event.class_scope, safe='')}",
        "type": f"io.sparkevents.{event.name}",
        "time": timestamp(event),
        "datacontenttype": "application/json",
        # Extension attributes defined by the CloudEvents project.
        "severitytext": event.severity.value,
        "severitynumber": event.severity.number,
        "sequence": f"{event.sequence:020d}",
        "data": event,
    }
    subject = _CONTROL.sub(" ", _about(event)).strip()
    return {**made, "subject": subject} if subject else made


def timestamp(event: Event) -> str:
    """Return the event's time in RFC 3339; years after 9999 become the last moment of 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=event.observed_ts_millis)
    except OverflowError:
        moment = datetime.max.replace(tzinfo=timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _about(event: Event) -> str:
    """Return the name of the query or application that the event concerns."""
    keys = ("spark.app.name", "spark.streaming.query.name")
    return " / ".join(str(event.attributes[key]) for key in keys if key in event.attributes)


def _first(event: Event, *keys: str) -> str:
    return next((str(event.attributes[key]) for key in keys if event.attributes.get(key)), "")


#: An array of events, each in the ``file`` reporter's JSON.
JSON_ARRAY = Format(lambda events: _ENCODER.encode(list(events)), _ALL)
#: One event per request.
JSON_EACH = Format(lambda events: encode_event(events[0]), 1)
SLACK = Format(_slack, _SLACK_ATTACHMENTS)
CLOUDEVENTS = one_each(_cloudevent, "application/cloudevents+json")
CLOUDEVENTS_BATCH = Format(
    lambda events: _ENCODER.encode([_cloudevent(event) for event in events]), _ALL, "application/cloudevents-batch+json"
)
