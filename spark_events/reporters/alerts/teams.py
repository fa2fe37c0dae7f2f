"""Messages for Teams, as adaptive cards. Teams refuses messages above 28 KB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from spark_events.event import Event, Severity
from spark_events.event.text import rfc3339
from spark_events.reporters.alerts.alert_requests import AlertFormat, AlertRequest
from spark_events.reporters.alerts.card import card_of, cut
from spark_events.reporters.alerts.chats import headline, item, listed, plain, several_headline
from spark_events.reporters.alerts.store import Notice

__all__ = ["TEAMS"]

_TITLE = 1_000
_TEXT = 400
_LINE = 300
#: Bytes of all lines of a list, or of all facts.
_LIST = 20_000
_EVENTS = 5


def _alert(notice: Notice) -> list[AlertRequest]:
    event, card = notice.event, card_of(notice)
    facts = {"Time": rfc3339(event.observed_ts_millis), **card.facts}
    colour = "good" if notice.is_recovery else "attention" if event.severity >= Severity.ERROR else "warning"
    style = {"weight": "bolder", "color": colour} if not notice.is_recovery else {"color": colour}
    shown = [{"title": _escaped(name, _TEXT), "value": _escaped(text, _TEXT)} for name, text in facts.items()]
    # The tags come last, so a card that is too large lacks tags.
    while len(msgspec.json.encode(shown)) > _LIST:
        shown.pop()
    body: list[dict[str, Any]] = [
        {"type": "TextBlock", "text": _escaped(headline(notice, card.title), _TITLE), "wrap": True, **style},
        {"type": "FactSet", "facts": shown},
    ]
    actions = [{"type": "Action.OpenUrl", "title": text, "url": url} for text, url in card.links.items()]
    return [AlertRequest(notice.keys, _message(body, actions))]


def _several(notices: Sequence[Notice]) -> Any:
    """Return a message with one line per alert."""
    items = listed(notices, lambda notice: _escaped(f"- {item(notice)}", _LINE), _size, _LIST)
    body: list[dict[str, Any]] = [
        {
            "type": "TextBlock",
            "text": several_headline(notices),
            "wrap": True,
            "weight": "bolder",
            "color": "good" if notices[0].is_recovery else "attention",
        },
        *({"type": "TextBlock", "text": item, "wrap": True} for item in items),
    ]
    return _message(body, [])


def _events(events: Sequence[Event]) -> Any:
    texts = [_escaped(plain(event), _TITLE) for event in events]
    return _message([{"type": "TextBlock", "text": text, "wrap": True} for text in texts], [])


def _message(body: list[dict[str, Any]], actions: list[dict[str, Any]]) -> Any:
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


def _size(line: str) -> int:
    return len(msgspec.json.encode({"type": "TextBlock", "text": line, "wrap": True})) + 1


def _escaped(text: str, most: int) -> str:
    """Escape Markdown links, so that an event's text cannot create links; then cut it."""
    return cut(text.replace("](", "] ("), most)


TEAMS = AlertFormat(_alert, _events, _several, _EVENTS)
