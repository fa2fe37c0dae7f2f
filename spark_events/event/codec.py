"""Encoding of an event as one line of JSON, and decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from spark_events.event.model import Attributes, Event
from spark_events.event.text import plain


def _attributes(_: type, value: Any) -> Attributes:
    return Attributes(value)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Event, dec_hook=_attributes)


def encode_event(event: Event) -> bytes:
    """Encode an event as one JSON object in UTF-8, without line breaks."""
    try:
        return _ENCODER.encode(event)
    except UnicodeEncodeError:
        return _ENCODER.encode(without_surrogates(event))


def encode_lines(events: Sequence[Event]) -> bytes:
    """Encode events as JSON lines, each with its line break."""
    try:
        return _ENCODER.encode_lines(events)
    except UnicodeEncodeError:
        return b"".join(encode_event(event) + b"\n" for event in events)


def decode_event(data: bytes) -> Event:
    """Decode the JSON of :func:`encode_event`.

    Raises:
        msgspec.MsgspecError: the data is not an event.
        UnicodeDecodeError: the data is not UTF-8.
    """
    try:
        return _DECODER.decode(data)
    except RecursionError:
        raise msgspec.DecodeError("the JSON is nested too deeply") from None


def without_surrogates(event: Event) -> Event:
    """Replace lone surrogates, which only an event created without a builder can contain."""
    attributes = {
        plain(key): plain(value) if isinstance(value, str) else value for key, value in event.attributes.items()
    }
    return Event(
        name=plain(event.name),
        class_scope=plain(event.class_scope),
        body=plain(event.body),
        severity=event.severity,
        observed_ts_millis=event.observed_ts_millis,
        event_id=plain(event.event_id),
        sequence=event.sequence,
        attributes=Attributes(attributes),
    )
