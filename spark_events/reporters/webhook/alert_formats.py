"""Request bodies of alerts for PagerDuty, Alertmanager, Slack and Teams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from spark_events.event import Event, Severity
from spark_events.event.text import rfc3339
from spark_events.reporters.webhook.alerts import Notice
from spark_events.reporters.webhook.formats import about, timestamp

__all__ = ["SLACK", "TEAMS", "AlertFormat", "alertmanager", "pagerduty"]


class AlertFormat(NamedTuple):
    """Conversion of events to requests; each request is a JSON-serializable value.

    Attributes:
        requests: converts one alert or recovery.
        plain: converts events that are not alerts; None if the format sends every event as an alert.
        most: maximum number of events per request of ``plain``.
    """

    requests: Callable[[Notice], Sequence[Any]]
    plain: Callable[[Sequence[Event]], Any] | None = None
    most: int = 1


#: Limits of PagerDuty's Events API v2, in characters.
_PAGERDUTY_SUMMARY = 1_024
_PAGERDUTY_KEY = 255
_PAGERDUTY_SEVERITY = {Severity.WARN: "warning", Severity.ERROR: "error", Severity.FATAL: "critical"}


def pagerduty(routing_key: str) -> AlertFormat:
    """Return the format of PagerDuty's Events API v2, with one alert per incident."""

    def request(key: str, action: str) -> dict[str, Any]:
        return {"routing_key": routing_key, "event_action": action, "dedup_key": _shortened(f"spark-events:{key}")}

    def requests(notice: Notice) -> list[Any]:
        if notice.is_recovery:
            return [request(key, "resolve") for key in notice.keys]
        event, links = notice.event, _links(notice.event)
        payload = {
            "summary": _title(event)[:_PAGERDUTY_SUMMARY] or event.name,
            "source": str(event.attributes.get("host.name") or event.attributes.get("spark.app.id") or "spark"),
            "severity": _PAGERDUTY_SEVERITY.get(event.severity, "info"),
            "timestamp": timestamp(event),
            "component": about(event),
            "class": str(event.attributes.get("error.type") or event.name),
            "custom_details": {**_facts(notice), "event_id": event.event_id, **event.attributes},
        }
        made = {**request(notice.keys[0], "trigger"), "client": "spark-events", "payload": payload}
        return [{**made, "links": [{"href": url, "text": text} for text, url in links.items()]}]

    return AlertFormat(requests)


def _shortened(key: str) -> str:
    """Shorten a key to 255 characters, so that different keys stay different."""
    if len(key) <= _PAGERDUTY_KEY:
        return key
    digest = blake2b(key.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{key[: _PAGERDUTY_KEY - len(digest) - 1]}~{digest}"


#: How far a driver's clock may be ahead of Alertmanager's clock, in milliseconds.
_MOST_AHEAD = 3_600_000
_ALERT_NAMES = {"failure": "SparkFailure", "reporter": "SparkReporter"}


def alertmanager(expires_after: float) -> AlertFormat:
    """Return the format of Alertmanager's API v2.

    Alertmanager expects alerts to be repeated, but a failed application cannot repeat its alert. Therefore the alert
    has an end time in the future. An alert that no event will close has no end time; Alertmanager closes such an alert
    after its ``resolve_timeout``.

    Args:
        expires_after: seconds until the end time of an alert that is not closed.
    """

    def alert(event: Event, key: str, severity: str) -> dict[str, Any]:
        kind = key.rpartition("/")[2]
        name = "SparkDeadline" if kind.startswith("deadline-") else _ALERT_NAMES.get(kind, "SparkEvent")
        application = str(event.attributes.get("spark.app.name") or event.attributes.get("spark.app.id") or "")
        return {"labels": {"alertname": name, "severity": severity, "incident_key": key, "spark_app_name": application}}

    def requests(notice: Notice) -> list[Any]:
        event, links = notice.event, _links(notice.event)
        if notice.is_recovery:
            # These annotations replace those of the open alert.
            end = {"annotations": {"summary": _title(event), **_named(_facts(notice))}}
            return [
                [
                    {**alert(event, key, severity), **end, "endsAt": rfc3339(ended)}
                    for key in notice.keys
                    # End an unknown alert in the past: if Alertmanager's clock had not reached the end time, it would
                    # open a new alert.
                    for ended in [event.observed_ts_millis - (0 if key in notice.known else _MOST_AHEAD)]
                    # Close the alerts of both severities: severity is a label, and the recovery does not know the
                    # alert's severity.
                    for severity in ("warning", "critical")
                ]
            ]
        severity = "critical" if event.severity >= Severity.ERROR else "warning"
        facts = _facts(notice)
        annotations = {
            "summary": _title(event),
            "description": "\n".join(f"{name}: {value}" for name, value in facts.items()),
            "runbook_url": links.pop("Runbook", ""),
            "event_id": event.event_id,
            **_named(facts | links),
        }
        made = {
            **alert(event, notice.keys[0], severity),
            "annotations": {name: value for name, value in annotations.items() if value},
            "startsAt": timestamp(event),
            "generatorURL": next(iter(links.values()), ""),
        }
        if notice.can_close:
            made["endsAt"] = rfc3339(event.observed_ts_millis + round(expires_after * 1000))
        return [[made]]

    return AlertFormat(requests)


def _named(texts: Mapping[str, str]) -> dict[str, str]:
    return {name.lower().replace(" ", "_"): value for name, value in texts.items()}


#: Slack's limit of characters per string. A message with twenty lines stays below the limit of 40,000 characters.
_SLACK_TEXT = 3_000
_SLACK_EVENTS = 20
_SLACK_LINE = 1_500
_SLACK_COLOURS = {Severity.WARN: "warning", Severity.ERROR: "danger", Severity.FATAL: "danger"}


def _slack_alert(notice: Notice) -> list[Any]:
    event, links = notice.event, _links(notice.event)
    lines = [f"*{name}:* {_slack_text(value)}" for name, value in _facts(notice).items()]
    lines.append(" · ".join(f"<{_slack_text(url)}|{text}>" for text, url in links.items()))
    attachment = {
        "color": "good" if notice.is_recovery else _SLACK_COLOURS.get(event.severity, "good"),
        "text": "\n".join(filter(None, lines)),
        "footer": _slack_text(about(event)),
        "ts": event.observed_ts_millis // 1000,
    }
    return [{"text": _slack_text(_headline(notice)), "attachments": [attachment]}]


def _slack_events(events: Sequence[Event]) -> Any:
    """Return a message with one line per event."""
    return {"text": "\n".join(_slack_text(_cut(_plain(event), _SLACK_LINE)) for event in events)}


def _slack_text(text: str) -> str:
    """Escape Slack's control characters, so that an event's text cannot create links or mentions."""
    return _cut(text, _SLACK_TEXT).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


SLACK = AlertFormat(_slack_alert, _slack_events, _SLACK_EVENTS)

#: Teams refuses messages above 28 KB.
_TEAMS_TEXT = 2_000


def _teams_alert(notice: Notice) -> list[Any]:
    event, links = notice.event, _links(notice.event)
    facts = {**_facts(notice), "Application": about(event), "Time": timestamp(event)}
    colour = "good" if notice.is_recovery else "attention" if event.severity >= Severity.ERROR else "warning"
    style = {"weight": "bolder", "color": colour} if not notice.is_recovery else {"color": colour}
    body: list[dict[str, Any]] = [
        {"type": "TextBlock", "text": _teams_text(_headline(notice)), "wrap": True, **style},
        {"type": "FactSet", "facts": [{"title": name, "value": _teams_text(text)} for name, text in facts.items()]},
    ]
    actions = [{"type": "Action.OpenUrl", "title": text, "url": url} for text, url in links.items()]
    return [_teams_message(body, actions)]


def _teams_events(events: Sequence[Event]) -> Any:
    texts = [_teams_text(_plain(event)) for event in events]
    return _teams_message([{"type": "TextBlock", "text": text, "wrap": True} for text in texts], [])


def _teams_message(body: list[dict[str, Any]], actions: list[dict[str, Any]]) -> Any:
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "actions": actions,
    }
    return {
        "type": "message",
        "attachments": [
            {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        ],
    }


def _teams_text(text: str) -> str:
    """Escape Markdown links, so that an event's text cannot create links."""
    return _cut(text, _TEAMS_TEXT).replace("](", "] (")


TEAMS = AlertFormat(_teams_alert, _teams_events, 5)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _plain(event: Event) -> str:
    """Return the text of an event that is not an alert."""
    return f"{event.severity.value}: {event.body}"


def _headline(notice: Notice) -> str:
    """Return the title of a chat message about an alert."""
    return f"{'Recovered' if notice.is_recovery else notice.event.severity.value}: {_title(notice.event)}"


def _title(event: Event) -> str:
    """Return the event's body, preceded by the application's name."""
    name = str(event.attributes.get("spark.app.name", ""))
    return event.body if name in event.body else f"{name}: {event.body}"


def _facts(notice: Notice) -> dict[str, str]:
    """Return names and values of the attributes that an operator needs first."""
    attributes, was = notice.event.attributes, notice.was
    found: dict[str, object] = {}
    if not notice.is_recovery:
        found["Cause"] = attributes.get("failure.root_cause")
        found["Code"] = attributes.get("failure.location") or attributes.get("spark.deadline.location")
    if was is not None and (was.count > 1 or notice.is_recovery):
        minutes = (notice.event.observed_ts_millis - was.since) // 60_000
        found["Failures"] = f"{was.count:,}{f' in {minutes:,} min' if minutes > 0 else ''}"
    return {name: str(value) for name, value in found.items() if value}


#: Attributes that contain links, and the link texts; the most useful link comes first.
_LINKS = (
    ("incident.runbook_url", "Runbook"),
    ("spark.ui.url", "Spark UI"),
    ("spark.history.url", "History"),
    ("spark.yarn.tracking_url", "YARN"),
)


def _links(event: Event) -> dict[str, str]:
    """Return the URLs of an event's links, by link text."""
    found = {text: str(event.attributes.get(key, "")) for key, text in _LINKS}
    return {text: url for text, url in found.items() if url.startswith(("http://", "https://"))}
