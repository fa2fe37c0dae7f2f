"""Words that all chats share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_events.event import Event
from spark_events.event.text import on_one_line
from spark_events.reporters.alerts.card import cut, extent_of, times_of, title_of
from spark_events.reporters.alerts.incident import ENVIRONMENT, kind_of
from spark_events.reporters.alerts.store import Notice

__all__ = ["headline", "item", "listed", "plain", "several_headline"]

#: Characters of a title in a list, with what follows it.
_TITLE = 270
_ENVIRONMENT = 40


def headline(notice: Notice, title: str) -> str:
    """Return the title of a message about an alert or its recovery."""
    return f"{'Recovered' if notice.is_recovery else notice.event.severity.value}: {title}"


def item(notice: Notice) -> str:
    """Return the line of an alert in a list of several alerts, with what a single message has as facts."""
    title, was = title_of(notice.event), notice.was
    name, extent = ("", "") if was is None else extent_of(was, notice.minutes, notice.is_recovery)
    environment = on_one_line(str(notice.event.attributes.get(ENVIRONMENT, "")))
    facts = (
        environment and f"environment: {cut(environment, _ENVIRONMENT)}",
        extent and f"{name.lower()}: {extent}",
        "" if was is None or notice.is_recovery else times_of(was),
    )
    more = ", ".join(filter(None, facts))
    return headline(notice, f"{cut(title, _TITLE - len(more))} ({more})" if more else title)


def several_headline(notices: Sequence[Notice]) -> str:
    """Return the title of a message about several alarms, or about several recoveries."""
    count = len(notices)
    if notices[0].is_recovery:
        return f"Recovered: {count} incidents"
    are_failures = all(kind_of(notice.keys[0]) == "failure" for notice in notices)
    worst = max(notice.event.severity for notice in notices)
    return f"{worst.value}: {count} {'failures' if are_failures else 'alerts'}"


def listed(
    notices: Sequence[Notice], line: Callable[[Notice], str], size: Callable[[str], int], most: int
) -> list[str]:
    """Return the lines of a message about several alerts; the last one states how many do not fit.

    Args:
        notices: the alerts.
        line: makes the line of an alert.
        size: size of a line in the message.
        most: maximum size of all lines together.
    """
    lines: list[str] = []
    for notice in notices:
        text = line(notice)
        most -= size(text)
        if most < 0:
            return [*lines, f"… and {len(notices) - len(lines)} more"]
        lines.append(text)
    return lines


def plain(event: Event) -> str:
    """Return the text of an event that is not an alert."""
    return f"{event.severity.value}: {on_one_line(event.body)}"
