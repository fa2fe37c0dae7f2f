"""User templates: JSON files whose strings contain ``${…}`` placeholders for parts of the event."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_events.event import Event
from spark_events.reporters.webhook.body_formats import Format, one_each, timestamp

_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
_ATTRIBUTE = "attributes."
_PARTS: dict[str, Callable[[Event], Any]] = {
    "name": lambda event: event.name,
    "class_scope": lambda event: event.class_scope,
    "body": lambda event: event.body,
    "severity": lambda event: event.severity.value,
    "severity_number": lambda event: event.severity.number,
    "observed_ts_millis": lambda event: event.observed_ts_millis,
    "timestamp": timestamp,
    "event_id": lambda event: event.event_id,
    "sequence": lambda event: event.sequence,
    "attributes": lambda event: event.attributes,
}


def read_template(path: str) -> Format:
    """Return a format that renders the template file for each event.

    The file is parsed as JSON before placeholders are replaced, so an event's text cannot break the structure. If a
    string consists of a single placeholder, the value itself replaces the string: for example a number, or ``null`` if
    the event lacks the value. In a longer string, a missing value is empty.

    Raises:
        ValueError: the file cannot be read, is not JSON, or has an unknown placeholder.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"template: {path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    try:
        template = json.loads(text)
    except ValueError as error:
        raise ValueError(f"template: {path} is not JSON: {error}") from None
    for name in _PLACEHOLDER.findall(text):
        if name not in _PARTS and not name.startswith(_ATTRIBUTE):
            known = ", ".join(_PARTS)
            raise ValueError(f"template: {path}: given ${{{name}}}, expected {known} and attributes.<key>")
    return one_each(lambda event: _filled(template, event))


def _filled(template: Any, event: Event) -> Any:
    if isinstance(template, dict):
        return {key: _filled(value, event) for key, value in template.items()}
    if isinstance(template, list):
        return [_filled(value, event) for value in template]
    if not isinstance(template, str):
        return template
    if (whole := _PLACEHOLDER.fullmatch(template)) is not None:
        return _part(whole[1], event)
    return _PLACEHOLDER.sub(lambda found: _text(_part(found[1], event)), template)


def _part(name: str, event: Event) -> Any:
    if name.startswith(_ATTRIBUTE):
        return event.attributes.get(name.removeprefix(_ATTRIBUTE))
    return _PARTS[name](event)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
