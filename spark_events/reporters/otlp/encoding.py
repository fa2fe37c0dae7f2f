"""Events as OTLP has them: an ExportLogsServiceRequest, in bytes.

It is built from OTLP's own messages, not by way of the SDK's LogRecords and their encoder: that takes about
four times as long, which is more than an event may take (docs/decisions/0015).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from spark_events._version import __version__
from spark_events.event import AttributeValue, Event

__all__ = ["Encoder", "event_name"]

_INT64 = 1 << 63
_MOST_NANOS = (1 << 64) - 1
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OURS = frozenset({"spark", "spark_events"})
#: Attributes that every record has; an event's own of that name give way.
_FIELDS = frozenset({"event_id", "sequence"})


@lru_cache(maxsize=1024)
def event_name(class_scope: str, name: str) -> str:
    """OTLP's ``EventName``: ``JobFailureEvent`` is ``spark.job_failure``.

    Events of the user's own are named after their scope: ``shop.orders.order_imported``.
    """
    snake = _WORD.sub("_", name.removesuffix("Event") or name).lower()
    return f"{'spark' if class_scope.partition('.')[0] in _OURS else class_scope}.{snake}"


class Encoder:
    """Makes requests of events.

    Args:
        now: nanoseconds since the epoch, for ``ObservedTimestamp``.
        longest: texts of more characters are cut.
        resource: attributes of every resource.
    """

    def __init__(self, now: Callable[[], int], longest: int, resource: Mapping[str, str]) -> None:
        self._now = now
        self._longest = longest
        self._resource = resource

    def encode(self, events: Sequence[Event]) -> bytes:
        """The request with all of these events, in their order."""
        request = ExportLogsServiceRequest()
        observed = self._now()
        # A scope that comes again is told again: to put all of a scope together would lose the order.
        for source, of_source in groupby(events, _source):
            of_resource = request.resource_logs.add()
            for key, value in self._resource_of(*source):
                of_resource.resource.attributes.add(key=key).value.string_value = value
            for scope, of_scope in groupby(of_source, _scope):
                scope_logs = of_resource.scope_logs.add()
                scope_logs.scope.name = _sound(scope)
                scope_logs.scope.version = __version__
                add = scope_logs.log_records.add
                for event in of_scope:
                    self._fill(add, event, observed)
        return bytes(request.SerializeToString())

    def _resource_of(self, name: str, version: str, instance: str) -> Iterator[tuple[str, str]]:
        own = {"service.name": name, "service.version": version, "service.instance.id": instance}
        known = {key: _sound(value) for key, value in own.items() if value}
        yield from {**known, **self._resource}.items()

    def _fill(self, add: Callable[..., Any], event: Event, observed: int) -> None:
        nanos = event.observed_ts_millis * 1_000_000
        record = add(
            time_unix_nano=nanos if 0 <= nanos <= _MOST_NANOS else _MOST_NANOS if nanos > 0 else 0,
            observed_time_unix_nano=observed,
            severity_number=event.severity.number,
            severity_text=event.severity.value,
            event_name=_sound(event_name(event.class_scope, event.name)),
        )
        record.body.string_value = self._text(event.body)
        attribute = record.attributes.add
        attribute(key="event_id").value.string_value = _sound(event.event_id)
        attribute(key="sequence").value.int_value = event.sequence
        longest = self._longest
        for key, value in event.attributes.items():
            if key in _FIELDS:
                continue
            if type(value) is str and len(value) <= longest and value.isascii() and key.isascii():
                attribute(key=key).value.string_value = value
            else:
                self._attribute(attribute(key=_sound(key)).value, value)

    def _attribute(self, target: Any, value: AttributeValue) -> None:
        if isinstance(value, bool):
            target.bool_value = value
        elif isinstance(value, int) and -_INT64 <= value < _INT64:
            target.int_value = value
        elif isinstance(value, float):
            target.double_value = value
        else:
            target.string_value = self._text(str(value))

    def _text(self, text: str) -> str:
        if len(text) > self._longest:
            mark = f"… (cut, it had {len(text)} characters)"
            text = text[: self._longest - len(mark)] + mark
        return text if text.isascii() else _sound(text)


def _sound(text: str) -> str:
    """Without the lone surrogates, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def _scope(event: Event) -> str:
    return event.class_scope


def _source(event: Event) -> tuple[str, str, str]:
    """Name, version and instance of the service: the application, its Spark, and which run of it."""
    attributes = event.attributes
    name = attributes.get("spark.app.name", "unknown_service:spark")
    instance = attributes.get("spark.app.id", "")
    if attempt := attributes.get("spark.app.attempt_id"):
        instance = f"{instance}/{attempt}"
    return str(name), str(attributes.get("spark.version", "")), str(instance)
