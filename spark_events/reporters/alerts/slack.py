"""Messages for Slack, as blocks.

Limits of Slack: 3,000 characters in the text of a section, 2,000 in a field, 10 fields in a section, 25 buttons in a
row, 3,000 characters in the URL of a button, 40,000 in a message. Text is escaped first and cut afterwards, because
escaping makes it up to five times as long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from spark_events.event import Event, Severity
from spark_events.reporters.alerts.alert_requests import AlertFormat, AlertRequest
from spark_events.reporters.alerts.card import card_of, cut
from spark_events.reporters.alerts.chats import headline, item, listed, plain, several_headline
from spark_events.reporters.alerts.store import Notice

__all__ = ["SLACK"]

_TITLE = 1_500
#: Less than Slack allows, so that a message with many tags stays below its limit.
_FIELD = 800
#: Further tags are left out.
_MOST_FIELDS = 40
_FIELDS = 10
_URL = 3_000
_EVENTS = 20
#: Twenty lines of this length stay below the limit of a message.
_LINE = 1_500
#: Characters of all lines of a list.
_LIST = 30_000
_COLOURS = {Severity.WARN: "warning", Severity.ERROR: "danger", Severity.FATAL: "danger"}
#: The beginning of an escaped character at the end of a text that was cut.
_HALF = re.compile(r"&[a-z]{0,3}…$")


def _alert(notice: Notice) -> list[AlertRequest]:
    card = card_of(notice)
    fields = [
        {"type": "mrkdwn", "text": _escaped(f"*{_name(name)}*\n{text}", _FIELD)}
        for name, text in list(card.facts.items())[:_MOST_FIELDS]
    ]
    blocks: list[dict[str, Any]] = [
        {"type": "section", "fields": fields[first : first + _FIELDS]} for first in range(0, len(fields), _FIELDS)
    ]
    buttons = [
        {"type": "button", "text": {"type": "plain_text", "text": text}, "url": url, "action_id": f"link-{number}"}
        for number, (text, url) in enumerate(card.links.items())
        if len(url) <= _URL
    ]
    if buttons:
        blocks.append({"type": "actions", "elements": buttons})
    title = _escaped(headline(notice, card.title), _TITLE)
    message: dict[str, Any] = {"text": title}
    if blocks:
        colour = "good" if notice.is_recovery else _COLOURS.get(notice.event.severity, "good")
        message["attachments"] = [{"color": colour, "fallback": title, "blocks": blocks}]
    return [AlertRequest(notice.keys, message)]


def _events(events: Sequence[Event]) -> Any:
    """Return a message with one line per event."""
    return {"text": "\n".join(_escaped(plain(event), _LINE) for event in events)}


def _several(notices: Sequence[Notice]) -> Any:
    """Return a message with one line per alert."""
    lines = listed(notices, lambda notice: _escaped(f"• {item(notice)}", _LINE), lambda line: len(line) + 1, _LIST)
    return {"text": "\n".join((several_headline(notices), *lines))}


def _name(name: str) -> str:
    return name.replace("*", "")


def _escaped(text: str, most: int) -> str:
    """Escape Slack's control characters, so that an event's text cannot create links or mentions; then cut it."""
    whole = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _HALF.sub("…", cut(whole, most))


SLACK = AlertFormat(_alert, _events, _several, _EVENTS)
