"""What a person must know first about an alert: every format renders the same card.

The title begins with the cause, because phones and lists of chats show its first 40 characters. No text stands in the
card twice: a format that also shows the event's attributes omits those that the card shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from spark_events.event import Event
from spark_events.event.text import lasting, on_one_line, ordinal, utc
from spark_events.reporters.alerts.incident import ENVIRONMENT, TAG, application_of, kind_of
from spark_events.reporters.alerts.states import Alert
from spark_events.reporters.alerts.store import Notice

__all__ = ["Card", "card_of", "cut", "extent_of", "failure_facts", "links_of", "tags_of", "times_of", "title_of"]

#: Characters of the cause in a title. A longer cause is also a fact.
_CAUSE = 120
_OFFSETS = 300
_SOURCE = 120
#: Characters by which a cause is recognised in the body, which may contain only its beginning.
_KNOWN = 40
#: Package of a Java class, which would fill the beginning of a title.
_PACKAGE = re.compile(r"^(?:[a-z_][\w$]*\.)+(?=[A-Z])")
#: Names of the facts about incidents that last, by kind.
_LASTING = {"overdue": "Overdue", "reporter": "Unavailable"}
_OVER = ("FINISHED", "FAILED", "ENDED", "LOST", "CANCELLED")
#: Attributes with a place in the code; the first that is known is shown.
_PLACES = ("failure.location", "failure.preceding.location", "spark.deadline.location")
#: Attributes that the title, the facts and the links show in their own words.
_SHOWN = (
    *("failure.root_cause", "failure.source_line", "failure.class", "failure.retry_useful", "failure.recommendation"),
    *("spark.batch.id", "spark.streaming.query.committed_offsets"),
    *("spark.app.name", "spark.app.id", "host.name", ENVIRONMENT),
)


class Card(NamedTuple):
    """Content of an alert or of its recovery.

    Attributes:
        title: what happened, on one line; the cause comes first.
        facts: further facts by name, the most useful first.
        links: URLs by text, the most useful first.
        shown: names of the attributes that the card shows.
    """

    title: str
    facts: dict[str, str]
    links: dict[str, str]
    shown: frozenset[str]


def card_of(notice: Notice, with_tags: bool = True, with_name: bool = True) -> Card:
    """Return the card of an alert or of its recovery.

    Args:
        notice: the event and the alerts that it opens or closes.
        with_tags: whether the facts contain the environment and the tags.
        with_name: whether the facts contain the name of the application.
    """
    event, was = notice.event, notice.was
    facts: dict[str, object] = {}
    if not notice.is_recovery:
        facts |= failure_facts(event)
    if was is not None:
        name, text = extent_of(was, notice.minutes, notice.is_recovery)
        facts[name] = text
        if not notice.is_recovery:
            facts["Times"] = times_of(was)
    facts["Application"] = _application(event, with_name)
    if not notice.is_recovery:
        facts["Host"] = event.attributes.get("host.name")
    found = {name: str(value) for name, value in facts.items() if value not in (None, "")}
    if with_tags:
        found |= tags_of(event.attributes, (*found, "Time"))
    return Card(title_of(event), found, links_of(event), _shown(event.attributes))


def _shown(attributes: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the attributes that a card shows. The card alone decides on links."""
    links = (name for name, _ in (*_LINKS, _UI))
    tags = (name for name in attributes if name.startswith(TAG))
    place = next((name for name in _PLACES if attributes.get(name)), "")
    return frozenset((*_SHOWN, *links, *tags, place))


def title_of(event: Event) -> str:
    """Return the cause, if known, and what it struck; otherwise the event's body with the application's name."""
    name = str(event.attributes.get("spark.app.name", ""))
    body = on_one_line(event.body if name in event.body else f"{name}: {event.body}")
    cause = on_one_line(str(event.attributes.get("failure.root_cause", "")))
    if not cause or event.attributes.get("incident.role") == "recovery":
        return body
    begins = body.find(cause[:_KNOWN])
    if begins == 0:
        return body
    if begins > 0:
        rest = body[begins:].removeprefix(cause) if cause in body else ""
        body = f"{body[:begins].rstrip(' :')}{rest}"
    return f"{cut(_PACKAGE.sub('', cause), _CAUSE)} – {body}"


def failure_facts(event: Event) -> dict[str, object]:
    """Return what is known about a failure, by name; None or an empty text if it is unknown."""
    attributes = event.attributes
    cause = on_one_line(str(attributes.get("failure.root_cause", "")))
    batch = attributes.get("spark.batch.id")
    return {
        "Cause": cause if len(cause) > _CAUSE else None,
        "Code": _code(attributes),
        "Rerun": _rerun(attributes),
        "Try": attributes.get("failure.recommendation"),
        "Batch": None if batch is None else f"{batch} was not committed",
        "Committed": cut(str(attributes.get("spark.streaming.query.committed_offsets", "")), _OFFSETS),
    }


def _code(attributes: Mapping[str, Any]) -> str:
    """Return the line of code, with its text if Python printed it."""
    location = next((str(attributes[name]) for name in _PLACES if attributes.get(name)), "")
    source = on_one_line(str(attributes.get("failure.source_line", "")))
    return f"{location}: {cut(source, _SOURCE)}" if location and source else location


def _rerun(attributes: Mapping[str, Any]) -> str:
    kind = str(attributes.get("failure.class", ""))
    if not kind:
        return ""
    useful = {"True": "may help", "False": "does not help until the cause is corrected"}
    said = useful.get(str(attributes.get("failure.retry_useful")), "unknown whether it helps")
    return f"{said} ({kind})"


def _application(event: Event, with_name: bool) -> str:
    """Return name and id of the application, and whether it has ended, as far as the event says."""
    attributes = event.attributes
    name, app_id = application_of(attributes), str(attributes.get("spark.app.id", ""))
    who = f"{name} ({app_id})" if app_id not in ("", name) else name
    if not with_name and name != app_id:
        who = app_id
    is_alarm = attributes.get("incident.role") == "alarm"
    state = "ended" if _is_over(event) else "still running" if is_alarm and app_id else ""
    return ", ".join(filter(None, (who, state if name else "")))


def _is_over(event: Event) -> bool:
    """Return whether the event reports the end of the application."""
    if event.class_scope != "spark.application":
        return False
    return event.name == "JobFailureEvent" or event.attributes.get("spark.status.new") in _OVER


def extent_of(alert: Alert, minutes: int, is_recovery: bool) -> tuple[str, str]:
    """Return how often the problem occurred, or how long it lasts, as the name and the value of a fact."""
    kind = kind_of(alert.key)
    name = _LASTING.get(kind, "Failures" if kind == "failure" else "Events")
    if kind in _LASTING and alert.count == 1:
        return name, f"for {lasting(minutes * 60_000)}" if minutes else ""
    if alert.count == 1 and not is_recovery:
        return name, ""
    times = " times" if kind in _LASTING else ""
    within = f" in {lasting(minutes * 60_000)}" if minutes else ""
    return name, f"{alert.count:,}{times}{within}{', flapping' if alert.flaps else ''}"


def times_of(alert: Alert) -> str:
    """Return how often the alert was opened, for example ``3rd time since 2026-11-24 09:12 UTC``; empty for the first.

    A failure of an open alert opens nothing: the alert counts such failures.
    """
    return f"{ordinal(alert.times)} time since {utc(alert.first, '%Y-%m-%d %H:%M')} UTC" if alert.times > 1 else ""


def tags_of(
    attributes: Mapping[str, Any],
    taken: Collection[str] = (),
    environment: str = "Environment",
    name_of: Callable[[str], str] = str,
) -> dict[str, str]:
    """Return the environment and the tags, by names that are not taken.

    Args:
        attributes: attributes of an event.
        taken: names that the result must not contain.
        environment: name of the environment.
        name_of: converts the name of a tag.
    """
    found: dict[str, str] = {}
    for key, value in sorted(attributes.items()):
        if key == ENVIRONMENT or key.startswith(TAG):
            name = environment if key == ENVIRONMENT else name_of(key.removeprefix(TAG))
            found[_free(name, {*taken, *found})] = str(value)
    return found


def _free(name: str, taken: Collection[str]) -> str:
    """Append underscores to a name until it is not taken."""
    while name in taken:
        name += "_"
    return name


#: Attributes that contain links, and the link texts; the most useful link comes first.
_LINKS = (
    ("incident.runbook_url", "Runbook"),
    ("spark.history.url", "History"),
    ("spark.yarn.tracking_url", "YARN"),
    ("spark.log.url", "Log"),
    ("spark.trace.url", "Trace"),
)
_UI = ("spark.ui.url", "Spark UI")


def links_of(event: Event) -> dict[str, str]:
    """Return the URLs of an event's links, by link text; the Spark UI only while the application runs."""
    kinds = _LINKS if _is_over(event) else (*_LINKS, _UI)
    found = {text: str(event.attributes.get(key, "")) for key, text in kinds}
    return {text: url for text, url in found.items() if url.startswith(("http://", "https://"))}


def cut(text: str, most: int) -> str:
    """Return at most so many characters of a text."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
