"""Messages for Slack and Teams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_events.event import Event, Severity
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

__all__ = ["SLACK", "TEAMS"]

#: Slack's limit of characters per string. A message with twenty lines stays below the limit of 40,000 characters.
_SLACK_TEXT = 3_000
_SLACK_EVENTS = 20
_SLACK_LINE = 1_500
_SLACK_COLOURS = {Severity.WARN: "warning", Severity.ERROR: "danger", Severity.FATAL: "danger"}


def _slack_alert(notice: Notice) -> list[AlertRequest]:
    event, links, facts = notice.event, links_of(notice.event), facts_of(notice)
    facts |= tags_of(event.attributes, facts)
    lines = [f"*{_slack_text(name)}:* {_slack_text(value)}" for name, value in facts.items()]
    lines.append(" · ".join(f"<{_slack_text(url)}|{text}>" for text, url in links.items()))
    attachment = {
        "color": "good" if notice.is_recovery else _SLACK_COLOURS.get(event.severity, "good"),
        "text": "\n".join(filter(None, lines)),
        "footer": _slack_text(about(event)),
        "ts": event.observed_ts_millis // 1000,
    }
    return [AlertRequest(notice.keys, {"text": _slack_text(_headline(notice)), "attachments": [attachment]})]


def _slack_events(events: Sequence[Event]) -> Any:
    """Return a message with one line per event."""
    return {"text": "\n".join(_slack_text(_cut(_plain(event), _SLACK_LINE)) for event in events)}


def _slack_text(text: str) -> str:
    """Escape Slack's control characters, so that an event's text cannot create links or mentions."""
    return _cut(text, _SLACK_TEXT).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


SLACK = AlertFormat(_slack_alert, _slack_events, _SLACK_EVENTS)

#: Teams refuses messages above 28 KB.
_TEAMS_TEXT = 2_000


def _teams_alert(notice: Notice) -> list[AlertRequest]:
    event, links = notice.event, links_of(notice.event)
    facts = {**facts_of(notice), "Application": about(event), "Time": timestamp(event)}
    facts |= tags_of(event.attributes, facts)
    colour = "good" if notice.is_recovery else "attention" if event.severity >= Severity.ERROR else "warning"
    style = {"weight": "bolder", "color": colour} if not notice.is_recovery else {"color": colour}
    body: list[dict[str, Any]] = [
        {"type": "TextBlock", "text": _teams_text(_headline(notice)), "wrap": True, **style},
        {
            "type": "FactSet",
            "facts": [{"title": _teams_text(name), "value": _teams_text(text)} for name, text in facts.items()],
        },
    ]
    actions = [{"type": "Action.OpenUrl", "title": text, "url": url} for text, url in links.items()]
    return [AlertRequest(notice.keys, _teams_message(body, actions))]


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
    return f"{'Recovered' if notice.is_recovery else notice.event.severity.value}: {title_of(notice.event)}"
