"""Characters that not every destination can hold."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from spark_events.event import Attributes, Event, encode_event

__all__ = ["encodable", "mapped", "to_json"]


def encodable(text: str) -> str:
    """The text with a question mark for each lone surrogate, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def mapped(event: Event, change: Callable[[str], str]) -> Event:
    """The event with ``change`` applied to all of its texts."""
    attributes = {
        change(key): change(value) if isinstance(value, str) else value for key, value in event.attributes.items()
    }
    return msgspec.structs.replace(
        event,
        name=change(event.name),
        class_scope=change(event.class_scope),
        body=change(event.body),
        event_id=change(event.event_id),
        attributes=Attributes(attributes),
    )


def to_json(event: Event) -> bytes:
    """The event as one JSON object, in UTF-8, whatever is in its texts.

    :class:`~spark_events.event.EventBuilder` lets no lone surrogate in; an ``Event`` made by hand may have one.
    """
    try:
        return encode_event(event)
    except UnicodeEncodeError:
        return encode_event(mapped(event, encodable))
