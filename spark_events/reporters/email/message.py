"""Text of the e-mails: an alert, its recovery, and a digest of other events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_events.event import Event
from spark_events.event.stack_traces import without_repeats
from spark_events.event.text import on_one_line, utc
from spark_events.reporters.alerts.alert_requests import AlertFormat, AlertRequest
from spark_events.reporters.alerts.card import card_of, cut
from spark_events.reporters.alerts.chats import headline, item, several_headline
from spark_events.reporters.alerts.store import Notice

__all__ = ["EMAIL", "digest_of"]

_SUBJECT = 200
_LINE = 2_000
_STACK = 20_000


def _alert(notice: Notice) -> list[AlertRequest]:
    card = card_of(notice)
    subject = headline(notice, card.title)
    # The subject contains the title, unless the title is too long for it.
    lines = [card.title, ""] if len(subject) > _SUBJECT else []
    lines += [f"{name}: {cut(on_one_line(text), _LINE)}" for name, text in card.facts.items()]
    lines += ["", *(f"{text}: {url}" for text, url in card.links.items())] if card.links else []
    lines += ["", f"Time: {_time(notice.event)} UTC", f"Event: {notice.event.event_id}"]
    stack = str(notice.event.attributes.get("exception.stacktrace", ""))
    if stack and not notice.is_recovery:
        lines += ["", cut("\n".join(without_repeats(stack.splitlines())), _STACK)]
    return [AlertRequest(notice.keys, _mail(subject, lines))]


def _several(notices: Sequence[Notice]) -> Any:
    titles = [f"- {cut(item(notice), _LINE)}" for notice in notices]
    return _mail(several_headline(notices), titles)


def digest_of(events: Sequence[Event], more: int = 0) -> dict[str, str]:
    """Return the e-mail with one line per event.

    Args:
        events: the events, oldest first.
        more: number of further events that were not kept.
    """
    count = len(events) + more
    lines = [f"{_time(one)} {one.severity.value:5} {cut(on_one_line(one.body), _LINE)}" for one in events]
    lines += [f"… and {more:,} earlier events, which are not listed"] if more else []
    return _mail(f"Digest: {count:,} event{'s' if count != 1 else ''}", ["Times are UTC.", "", *lines])


def _time(event: Event) -> str:
    return utc(event.observed_ts_millis, "%Y-%m-%d %H:%M:%S")


def _mail(subject: str, lines: Sequence[str]) -> dict[str, str]:
    return {"subject": cut(on_one_line(subject), _SUBJECT), "text": "\n".join(lines) + "\n"}


EMAIL = AlertFormat(_alert, None, _several)
