"""Conversion of an event to a database row."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec

from spark_events.event import Attributes, AttributeValue, Event, without_surrogates

#: Maximum length of an indexed string, in characters; PostgreSQL indexes at most about 2,700 bytes.
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
    "status": "spark.status.new",
    "error_type": "error.type",
}
_NUMBERS = {
    "batch_id": "spark.batch.id",
    "batches": "spark.batch.count",
    "input_rows": "spark.batch.rows_input",
    "duration_ms": "spark.batch.duration.trigger_execution_ms",
}


def row_of(event: Event) -> dict[str, Any]:
    """Return the columns of an event: its fields, view columns and all attributes as JSON.

    Lone surrogates become ``?`` and NUL becomes ``␀``, because databases cannot store these characters. A long indexed
    string is cut to :data:`MOST_INDEXED` characters and ends with ``…``. The column ``attributes`` contains the whole
    string.
    """
    event = _storable(event)
    known = event.attributes
    return {
        "event_id": event.event_id,
        "sequence": event.sequence,
        "observed_ts_millis": event.observed_ts_millis,
        "observed_at": _moment(event.observed_ts_millis),
        "name": shortened(event.name),
        "class_scope": shortened(event.class_scope),
        "severity": event.severity.value,
        "severity_number": event.severity.number,
        "body": event.body,
        **{column: _text(known.get(key)) for column, key in _TEXTS.items()},
        **{column: _number(known.get(key)) for column, key in _NUMBERS.items()},
        "attributes": _ENCODER.encode(event.attributes).decode(),
    }


def _storable(event: Event) -> Event:
    event = without_surrogates(event)
    attributes = {
        _visible(key): _visible(value) if isinstance(value, str) else value for key, value in event.attributes.items()
    }
    return msgspec.structs.replace(
        event,
        event_id=_visible(event.event_id),
        name=_visible(event.name),
        class_scope=_visible(event.class_scope),
        body=_visible(event.body),
        attributes=Attributes(attributes),
    )


def _visible(text: str) -> str:
    return text.replace("\0", "␀")


def _moment(millis: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        # The year is outside the range of ``datetime``; ``observed_ts_millis`` contains the time.
        return None


def _text(value: AttributeValue | None) -> str | None:
    return None if value is None else shortened(value if isinstance(value, str) else str(value))


def shortened(text: str) -> str:
    """Return an indexed string as it is stored in its column."""
    return text if len(text) <= MOST_INDEXED else f"{text[: MOST_INDEXED - 1]}…"


def _number(value: AttributeValue | None) -> int | None:
    """Return a 64-bit integer, or None if the value does not fit a numeric column."""
    return value if type(value) is int and -_INT64 <= value < _INT64 else None
