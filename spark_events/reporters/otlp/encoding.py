"""Encoding of events as the bytes of an ExportLogsServiceRequest.

The SDK's LogRecords and encoder are too slow (docs/decisions/0015). This module encodes the parts of OTLP's protobuf
messages separately and concatenates the bytes. Protobuf allows this: concatenated messages are read as one merged
message. An attribute that repeats in every event of an application is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

from spark_events._version import __version__
from spark_events.event import AttributeValue, Event, snake_case
from spark_events.reporters.otlp.resources import OF_RESOURCE, SCHEMA_URL, SCOPE, Source, resource_of, source_of

#: Attribute names for the event's own fields. The semantic convention ``log.record.uid`` is not stable yet, so the SDK
#: has no public constant for it.
EVENT_ID, CLASS_SCOPE, SEQUENCE = "log.record.uid", "spark.events.class_scope", "spark.events.sequence"

_INT64 = 1 << 63
_MOST_NANOS = (1 << 64) - 1
_OURS = frozenset({"spark", "spark_events"})
#: Attributes of an event that do not become LogRecord attributes: resource attributes, and names of the event's own
#: fields.
_ELSEWHERE = frozenset({EVENT_ID, CLASS_SCOPE, SEQUENCE, *OF_RESOURCE})
#: Maximum number of applications whose encoded resource is cached.
_MOST_SOURCES = 64
#: Maximum length of strings whose encoding is cached, because short strings often repeat. ``max-value-length`` must not
#: be smaller.
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
        longest: maximum length of a string in characters; longer strings are cut.
        settings: attributes of every resource; they override all other attributes.
        ids: returns the trace id and span id of an event; None: records contain no ids.
    """

    def __init__(
        self,
        now: Callable[[], int],
        longest: int,
        settings: Mapping[str, str],
        ids: Callable[[Event], tuple[int, int | None]] | None = None,
    ) -> None:
        self._ids = ids
        self._now = now
        self._longest = longest
        self._settings = settings
        self._resources: dict[Source, bytes] = {}

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the encoded request for these events, in their order."""
        observed = self._now()
        # Group only adjacent events; grouping all events of an application would change their order.
        return b"".join(
            _field(_RESOURCE_LOGS, self._of_resource(source, of_source, observed))
            for source, of_source in groupby(events, source_of)
        )

    def _of_resource(self, source: Source, events: Iterable[Event], observed: int) -> bytes:
        records = b"".join(_field(_LOG_RECORDS, self._record(event, observed)) for event in events)
        return self._encoded_resource(source) + _field(_SCOPE_LOGS, _ENCODED_SCOPE + records)

    def _encoded_resource(self, source: Source) -> bytes:
        known = self._resources.get(source)
        if known is None:
            resource = resource_of(source, self._settings)
            logs = ResourceLogs(schema_url=resource.schema_url)
            for key, value in resource.attributes.items():
                logs.resource.attributes.add(key=_without_surrogates(key)).value.CopyFrom(_any(value))
            if len(self._resources) >= _MOST_SOURCES:
                self._resources.clear()
            known = self._resources[source] = bytes(logs.SerializeToString())
        return known

    def _record(self, event: Event, observed: int) -> bytes:
        record = LogRecord(
            time_unix_nano=max(0, min(event.observed_ts_millis * 1_000_000, _MOST_NANOS)),
            observed_time_unix_nano=observed,
            severity_number=event.severity.number,  # type: ignore[arg-type] # an int, of a type that exists for checkers only
            severity_text=event.severity.value,
            event_name=_without_surrogates(event_name(event.class_scope, event.name)),
        )
        if self._ids is not None:
            trace, span = self._ids(event)
            record.trace_id = trace.to_bytes(16, "big")
            if span is not None:
                record.span_id = span.to_bytes(8, "big")
        record.body.string_value = self._text(event.body)
        record.attributes.add(key=EVENT_ID).value.string_value = _without_surrogates(event.event_id)
        record.attributes.add(key=CLASS_SCOPE).value.string_value = _without_surrogates(event.class_scope)
        record.attributes.add(key=SEQUENCE).value.int_value = event.sequence
        parts: list[bytes] = [record.SerializeToString()]
        for key, value in event.attributes.items():
            if key in _ELSEWHERE:
                continue
            if type(value) is not str or len(value) <= _SHORT:
                parts.append(_cached(key, value))
            else:
                parts.append(_encoded(key, self._text(value)))
        return b"".join(parts)

    def _text(self, text: str) -> str:
        if len(text) > self._longest:
            mark = f"… (cut, it had {len(text)} characters)"
            text = text[: self._longest - len(mark)] + mark
        return text if text.isascii() else _without_surrogates(text)


def _encoded(key: str, value: AttributeValue) -> bytes:
    """Encode one attribute as a LogRecord without other fields."""
    record = LogRecord()
    record.attributes.add(key=_without_surrogates(key)).value.CopyFrom(_any(value))
    return bytes(record.SerializeToString())


def _any(value: object) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int) and -_INT64 <= value < _INT64:
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=_without_surrogates(str(value)))


#: Cached version of ``_encoded``. The cache distinguishes types, because 1, 1.0 and True are equal but have different
#: encodings.
_cached = lru_cache(maxsize=4096, typed=True)(_encoded)


def _field(tag: int, message: bytes) -> bytes:
    """Encode an embedded message: tag, length as a varint, content."""
    length, head = len(message), bytearray((tag,))
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + message


def _without_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _encode_scope() -> bytes:
    logs = ScopeLogs(schema_url=SCHEMA_URL)
    logs.scope.name, logs.scope.version = SCOPE, __version__
    return bytes(logs.SerializeToString())


_ENCODED_SCOPE = _encode_scope()
