"""From an event to its row."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec

from spark_events.event import Attributes, AttributeValue, Event, without_surrogates

__all__ = ["MOST_INDEXED", "row_of"]

#: Characters of a text that is indexed; PostgreSQL's indexes take no more than about 2,700 bytes.
MOST_INDEXED = 255

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_INT64 = 1 << 63
_ENCODER = msgspec.json.Encoder()
_TEXTS = {
    "app_id": "spark.app.id",
    "app_attempt_id": "spark.app.attempt_id",
    "app_name": "spark.app.name",
    "query_id": "spark.streaming.query.id",
    "query_run_id": "spark.streaming.query.run_id",
    "query_name": "spark.streaming.query.name",
    "entity": "spark.entity",
    "status": "status.new",
    "error_type": "error.type",
}
_NUMBERS = {
    "batch_id": "spark.streaming.batch.id",
    "batches": "batches",
    "input_rows": "rows.input",
    "duration_ms": "duration.triggerExecution_ms",
}


def row_of(event: Event) -> dict[str, Any]:
    """The columns of an event: its fields, all attributes as JSON, and those that the views are made of.

    No database can hold lone surrogates, PostgreSQL no NUL: they are replaced, by ``?`` and by the symbol ␀. A text
    that is too long for an index is cut, with a mark; it is whole in ``attributes``.
    """
    try:
        attributes = _ENCODER.encode(event.attributes).decode()
        # Text about a NUL looks like one in JSON, and line breaks are not printable: both only cost the longer way.
        texts = f"{event.body}{event.event_id}{event.name}{event.class_scope}"
        is_plain = "\\u0000" not in attributes and texts.isprintable()
    except UnicodeEncodeError:
        is_plain = False
    if not is_plain:
        event = _storable(event)
        attributes = _ENCODER.encode(event.attributes).decode()
    known = event.attributes
    return {
        "event_id": _identifier(_visible(event.event_id)),
        "sequence": event.sequence,
        "observed_ts_millis": event.observed_ts_millis,
        "observed_at": _moment(event.observed_ts_millis),
        "name": _short(_visible(event.name)),
        "class_scope": _short(_visible(event.class_scope)),
        "severity": event.severity.value,
        "severity_number": event.severity.number,
        "body": event.body,
        **{column: _text(known.get(key)) for column, key in _TEXTS.items()},
        **{column: _number(known.get(key)) for column, key in _NUMBERS.items()},
        "attributes": attributes,
    }


def _storable(event: Event) -> Event:
    event = without_surrogates(event)
    attributes = {
        _visible(key): _visible(value) if isinstance(value, str) else value for key, value in event.attributes.items()
    }
    return msgspec.structs.replace(event, body=_visible(event.body), attributes=Attributes(attributes))


def _visible(text: str) -> str:
    return text.replace("\0", "␀")


def _identifier(text: str) -> str:
    """As short as a text may be that is indexed, and still a different one for each."""
    if len(text) <= MOST_INDEXED:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[: MOST_INDEXED - 1 - len(digest)]}…{digest}"


def _moment(millis: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        # Beyond the years that a calendar has; the number is there all the same.
        return None


def _text(value: AttributeValue | None) -> str | None:
    return None if value is None else _short(value if isinstance(value, str) else str(value))


def _short(text: str) -> str:
    return text if len(text) <= MOST_INDEXED else f"{text[: MOST_INDEXED - 1]}…"


def _number(value: AttributeValue | None) -> int | None:
    """A whole number of 64 bits; what is none has no place in a column of numbers."""
    return value if type(value) is int and -_INT64 <= value < _INT64 else None
