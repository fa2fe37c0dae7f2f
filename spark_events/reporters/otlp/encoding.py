"""Encoding of events as the bytes of an ExportLogsServiceRequest.

The SDK's LogRecords and encoder are too slow (docs/decisions/0015). This module encodes the messages of OTLP's
protocol package piece by piece and concatenates them: in protobuf, concatenated messages merge. An attribute that
repeats in every event of an application is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TypeAlias

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

from spark_events._version import __version__
from spark_events.event import AttributeValue, Event, snake_case

#: Attributes that identify a resource.
_Source: TypeAlias = tuple[AttributeValue | None, ...]

_INT64 = 1 << 63
_MOST_NANOS = (1 << 64) - 1
_OURS = frozenset({"spark", "spark_events"})
#: Attributes of every record; they override attributes of the event with the same name.
_FIELDS = frozenset({"event_id", "sequence"})
#: Cache the encoding of texts up to this length, which are likely to repeat. No limit to texts may be smaller.
_SHORT = 64
#: Protobuf tags of the embedded messages.
_RESOURCE_LOGS, _SCOPE_LOGS, _LOG_RECORDS = (number << 3 | 2 for number in (1, 2, 2))


@lru_cache(maxsize=1024)
def event_name(class_scope: str, name: str) -> str:
    """Return OTLP's ``EventName``: ``JobFailureEvent`` becomes ``spark.job_failure``.

    The name of a user's own event starts with its scope: ``shop.orders.order_imported``.
    """
    snake = snake_case(name.removesuffix("Event") or name)
    return f"{'spark' if class_scope.partition('.')[0] in _OURS else class_scope}.{snake}"


class Encoder:
    """Encoder of events as OTLP requests.

    Args:
        now: returns nanoseconds since the epoch, for ``ObservedTimestamp``.
        longest: maximum length of a text in characters; longer texts are cut.
        resource: attributes added to every resource.
    """

    def __init__(self, now: Callable[[], int], longest: int, resource: Mapping[str, str]) -> None:
        self._now = now
        self._longest = longest
        self._resource = resource

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the request for these events, in their order."""
        observed = self._now()
        # Group adjacent events only: merging all events of a scope would change their order.
        return b"".join(
            _field(_RESOURCE_LOGS, self._of_resource(source, of_source, observed))
            for source, of_source in groupby(events, _source)
        )

    def _of_resource(self, source: _Source, events: Iterable[Event], observed: int) -> bytes:
        logs = ResourceLogs()
        for key, value in {**_service(source), **self._resource}.items():
            logs.resource.attributes.add(key=_sound(key)).value.string_value = _sound(value)
        parts = (
            _field(_SCOPE_LOGS, self._of_scope(scope, of_scope, observed))
            for scope, of_scope in groupby(events, _scope)
        )
        return bytes(logs.SerializeToString()) + b"".join(parts)

    def _of_scope(self, scope: str, events: Iterable[Event], observed: int) -> bytes:
        logs = ScopeLogs()
        logs.scope.name, logs.scope.version = _sound(scope), __version__
        return bytes(logs.SerializeToString()) + b"".join(
            _field(_LOG_RECORDS, self._record(event, observed)) for event in events
        )

    def _record(self, event: Event, observed: int) -> bytes:
        record = LogRecord(
            time_unix_nano=max(0, min(event.observed_ts_millis * 1_000_000, _MOST_NANOS)),
            observed_time_unix_nano=observed,
            severity_number=event.severity.number,  # type: ignore[arg-type] # an int, of a type that exists for checkers only
            severity_text=event.severity.value,
            event_name=_sound(event_name(event.class_scope, event.name)),
        )
        record.body.string_value = self._text(event.body)
        record.attributes.add(key="event_id").value.string_value = _sound(event.event_id)
        record.attributes.add(key="sequence").value.int_value = event.sequence
        parts: list[bytes] = [record.SerializeToString()]
        for key, value in event.attributes.items():
            if key in _FIELDS:
                continue
            if type(value) is not str or len(value) <= _SHORT:
                parts.append(_often(key, value))
            else:
                parts.append(_encoded(key, self._text(value)))
        return b"".join(parts)

    def _text(self, text: str) -> str:
        if len(text) > self._longest:
            mark = f"… (cut, it had {len(text)} characters)"
            text = text[: self._longest - len(mark)] + mark
        return text if text.isascii() else _sound(text)


def _encoded(key: str, value: AttributeValue) -> bytes:
    """Encode one attribute, as a LogRecord without other fields."""
    record = LogRecord()
    encoded_value = record.attributes.add(key=_sound(key)).value
    if isinstance(value, bool):
        encoded_value.bool_value = value
    elif isinstance(value, int) and -_INT64 <= value < _INT64:
        encoded_value.int_value = value
    elif isinstance(value, float):
        encoded_value.double_value = value
    else:
        encoded_value.string_value = _sound(str(value))
    return bytes(record.SerializeToString())


#: Cached ``_encoded``. typed: 1, 1.0 and True are equal, but have different encodings.
_often = lru_cache(maxsize=4096, typed=True)(_encoded)


def _field(tag: int, message: bytes) -> bytes:
    """Encode an embedded message: tag, length as a varint, content."""
    length, head = len(message), bytearray((tag,))
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + message


def _sound(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _scope(event: Event) -> str:
    return event.class_scope


def _source(event: Event) -> _Source:
    get = event.attributes.get
    return get("spark.app.name"), get("spark.version"), get("spark.app.id"), get("spark.app.attempt_id")


def _service(source: _Source) -> dict[str, str]:
    """Return the service attributes of an application: name, Spark version, instance."""
    name, version, instance, attempt = (None if one is None else str(one) for one in source)
    attributes = {"service.name": name or "unknown_service:spark"}
    if version:
        attributes["service.version"] = version
    if instance:
        attributes["service.instance.id"] = f"{instance}/{attempt}" if attempt else instance
    return attributes
