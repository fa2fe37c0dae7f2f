"""Conversion of alerts to requests, and the facts that every format contains."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from spark_events.event import Event
from spark_events.reporters.webhook.alerts.incident import ENVIRONMENT, TAG, kind_of
from spark_events.reporters.webhook.alerts.states import Alert
from spark_events.reporters.webhook.alerts.store import Notice

__all__ = ["AlertFormat", "AlertRequest", "facts_of", "links_of", "tags_of", "title_of"]


#: Names of the facts about incidents that last, by kind.
_LASTING = {"overdue": "Overdue", "reporter": "Unavailable"}


class AlertRequest(NamedTuple):
    """Body of one request, a JSON-serializable value, and the keys of the alerts that it opens or closes."""

    keys: tuple[str, ...]
    body: Any


class AlertFormat(NamedTuple):
    """Conversion of events to requests.

    Attributes:
        requests: converts one alert or recovery.
        plain: converts events that are not alerts; None if the format sends every event as an alert.
        most: maximum number of events per request of ``plain``.
    """

    requests: Callable[[Notice], Sequence[AlertRequest]]
    plain: Callable[[Sequence[Event]], Any] | None = None
    most: int = 1


def title_of(event: Event) -> str:
    """Return the event's body, preceded by the application's name."""
    name = str(event.attributes.get("spark.app.name", ""))
    return event.body if name in event.body else f"{name}: {event.body}"


def facts_of(notice: Notice) -> dict[str, str]:
    """Return names and values of the attributes that an operator needs first."""
    attributes, was = notice.event.attributes, notice.was
    found: dict[str, object] = {}
    if not notice.is_recovery:
        found["Cause"] = attributes.get("failure.root_cause")
        found["Code"] = attributes.get("failure.location") or attributes.get("spark.deadline.location")
    if was is not None:
        name, text = _extent(was, notice.minutes, notice.is_recovery)
        found[name] = text
    return {name: str(value) for name, value in found.items() if value}


def _extent(alert: Alert, minutes: int, is_recovery: bool) -> tuple[str, str]:
    """Return how often the problem occurred, or how long it lasts, as the name and the value of a fact."""
    kind = kind_of(alert.key)
    name = _LASTING.get(kind, "Failures" if kind == "failure" else "Events")
    if kind in _LASTING and alert.count == 1:
        return name, f"{'for' if is_recovery else 'since'} {minutes:,} min" if minutes else ""
    if alert.count == 1 and not is_recovery:
        return name, ""
    times = " times" if kind in _LASTING else ""
    within = f" in {minutes:,} min" if minutes else ""
    return name, f"{alert.count:,}{times}{within}{', flapping' if alert.flaps else ''}"


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
    ("spark.ui.url", "Spark UI"),
    ("spark.history.url", "History"),
    ("spark.yarn.tracking_url", "YARN"),
)


def links_of(event: Event) -> dict[str, str]:
    """Return the URLs of an event's links, by link text."""
    found = {text: str(event.attributes.get(key, "")) for key, text in _LINKS}
    return {text: url for text, url in found.items() if url.startswith(("http://", "https://"))}
