"""Request bodies: JSON and CloudEvents."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from spark_events.event import Event, encode_event
from spark_events.event.text import rfc3339
from spark_events.reporters.alerts.incident import about

_ENCODER = msgspec.json.Encoder()
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]+")
_ALL = 100_000


class Format(NamedTuple):
    """Conversion of events to a request body.

    Attributes:
        body: converts events to bytes; raises ``UnicodeEncodeError`` for lone surrogates.
        most: maximum number of events per request.
        content_type: MIME type of the body.
    """

    body: Callable[[Sequence[Event]], bytes]
    most: int
    content_type: str = "application/json"


def one_each(make: Callable[[Event], Any], content_type: str = "application/json") -> Format:
    """Return a format with one request per event, whose body is ``make(event)`` as JSON."""
    return Format(lambda events: _ENCODER.encode(make(events[0])), 1, content_type)


def _cloudevent(event: Event) -> dict[str, Any]:
    """Return a structured CloudEvent 1.0 whose data is the whole event."""
    made = {
        "specversion": "1.0",
        "id": event.event_id,
        "source": f"/spark/{quote(str(event.attributes.get('spark.app.id') or event.class_scope), safe='')}",
        "type": f"io.sparkevents.{event.name}",
        "time": timestamp(event),
        "datacontenttype": "application/json",
        # Extension attributes defined by the CloudEvents project.
        "severitytext": event.severity.value,
        "severitynumber": event.severity.number,
        "sequence": f"{event.sequence:020d}",
        "data": event,
    }
    subject = _CONTROL.sub(" ", about(event)).strip()
    return {**made, "subject": subject} if subject else made


def timestamp(event: Event) -> str:
    """Return the event's time in RFC 3339."""
    return rfc3339(event.observed_ts_millis)


#: Format with an array of events, each as JSON of the ``file`` reporter.
JSON_ARRAY = Format(lambda events: _ENCODER.encode(list(events)), _ALL)
#: Format with one event per request, as JSON of the ``file`` reporter.
JSON_EACH = Format(lambda events: encode_event(events[0]), 1)
CLOUDEVENTS = one_each(_cloudevent, "application/cloudevents+json")
CLOUDEVENTS_BATCH = Format(
    lambda events: _ENCODER.encode([_cloudevent(event) for event in events]), _ALL, "application/cloudevents-batch+json"
)
