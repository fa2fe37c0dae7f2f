"""Encoding of events as an ExportLogsServiceRequest.

The SDK's LogRecords and encoder are too slow (docs/decisions/0015), so this module fills OTLP's protobuf messages
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs

from spark_events._version import __version__
from spark_events.event import Event, snake_case, without_surrogates
from spark_events.event.text import plain
from spark_events.reporters.otlp.otlp_resources import OF_RESOURCE, SCHEMA_URL, SCOPE, Source, resource_of, source_of

#: Attribute names for the event's own fields. The semantic convention ``log.record.uid`` is not stable yet, so the SDK
#: has no public constant for it.
EVENT_ID, CLASS_SCOPE, SEQUENCE = "log.record.uid", "spark.events.class_scope", "spark.events.sequence"

_INT64 = 1 << 63
_MOST_NANOS = (1 << 64) - 1
_OURS = frozenset({"spark", "spark_events"})
#: Attributes of an event that do not become LogRecord attributes: resource attributes, and names of the event's own
#: fields.
_ELSEWHERE = frozenset({EVENT_ID, CLASS_SCOPE, SEQUENCE, *OF_RESOURCE})
#: Maximum number of applications whose resource is cached.
_MOST_SOURCES = 64


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
        self._resource = lru_cache(maxsize=_MOST_SOURCES)(self._new_resource)

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the encoded request for these events, in their order."""
        try:
            request = self._request(events)
        except ValueError:
            # UTF-8 cannot encode lone surrogates.
            request = self._request([without_surrogates(event) for event in events])
        return bytes(request.SerializeToString())

    def _request(self, events: Sequence[Event]) -> ExportLogsServiceRequest:
        request, observed = ExportLogsServiceRequest(), self._now()
        # Group only adjacent events; grouping all events of an application would change their order.
        for source, of_source in groupby(events, source_of):
            logs = request.resource_logs.add()
            logs.CopyFrom(self._resource(source))
            of_scope = logs.scope_logs.add(schema_url=SCHEMA_URL)
            of_scope.scope.name, of_scope.scope.version = SCOPE, __version__
            for event in of_source:
                self._fill(of_scope.log_records.add(), event, observed)
        return request

    def _new_resource(self, source: Source) -> ResourceLogs:
        resource = resource_of(source, self._settings)
        made = ResourceLogs(schema_url=resource.schema_url)
        for key, value in resource.attributes.items():
            _set(made.resource.attributes.add(key=plain(key)).value, plain(value) if isinstance(value, str) else value)
        return made

    def _fill(self, record: LogRecord, event: Event, observed: int) -> None:
        record.time_unix_nano = max(0, min(event.observed_ts_millis * 1_000_000, _MOST_NANOS))
        record.observed_time_unix_nano = observed
        record.severity_number = event.severity.number  # type: ignore[assignment] # an int, of a type for checkers only
        record.severity_text = event.severity.value
        record.event_name = event_name(event.class_scope, event.name)
        if self._ids is not None:
            trace, span = self._ids(event)
            record.trace_id = trace.to_bytes(16, "big")
            if span is not None:
                record.span_id = span.to_bytes(8, "big")
        record.body.string_value = self._cut(event.body)
        add = record.attributes.add
        add(key=EVENT_ID).value.string_value = event.event_id
        add(key=CLASS_SCOPE).value.string_value = event.class_scope
        add(key=SEQUENCE).value.int_value = event.sequence
        for key, value in event.attributes.items():
            if key not in _ELSEWHERE:
                _set(add(key=key).value, self._cut(value) if isinstance(value, str) else value)

    def _cut(self, text: str) -> str:
        if len(text) <= self._longest:
            return text
        mark = f"… (cut, it had {len(text)} characters)"
        return text[: self._longest - len(mark)] + mark


def _set(field: AnyValue, value: object) -> None:
    if isinstance(value, bool):
        field.bool_value = value
    elif isinstance(value, int) and -_INT64 <= value < _INT64:
        field.int_value = value
    elif isinstance(value, float):
        field.double_value = value
    else:
        field.string_value = str(value)
