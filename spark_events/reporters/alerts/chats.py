"""Words that all chats share."""

from __future__ import annotations

from collections.abc import Sequence

from spark_events.event import Event
from spark_events.event.text import on_one_line
from spark_events.reporters.alerts.card import cut, extent_of, times_of, title_of
from spark_events.reporters.alerts.store import Notice

__all__ = ["headline", "item", "plain", "several_headline"]

#: Characters of a title in a list, with what follows it.
_TITLE = 270


def headline(notice: Notice, title: str) -> str:
    """Return the title of a message about an alert or its recovery."""
    return f"{'Recovered' if notice.is_recovery else notice.event.severity.value}: {title}"


def item(notice: Notice) -> str:
    """Return the line of an alert in a list of several alerts, with the number of failures and of openings."""
    title, was = title_of(notice.event), notice.was
    if was is None:
        return headline(notice, title)
    name, extent = extent_of(was, notice.minutes, notice.is_recovery)
    often = ", ".join(filter(None, (extent and f"{name.lower()}: {extent}", times_of(was))))
    return headline(notice, f"{cut(title, _TITLE - len(often))} ({often})" if often else title)


def several_headline(notices: Sequence[Notice]) -> str:
    """Return the title of a message about several alerts."""
    return f"{max(notice.event.severity for notice in notices).value}: {len(notices)} failures"


def plain(event: Event) -> str:
    """Return the text of an event that is not an alert."""
    return f"{event.severity.value}: {on_one_line(event.body)}"
