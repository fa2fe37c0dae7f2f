"""Event, builder and severity, modelled on Flink's FLIP-481."""

from spark_events.event.codec import decode_event, encode_event, encode_lines, without_surrogates
from spark_events.event.model import Attributes, AttributeValue, Event, EventBuilder, Severity
from spark_events.event.text import snake_case

__all__ = [
    "AttributeValue",
    "Attributes",
    "Event",
    "EventBuilder",
    "Severity",
    "decode_event",
    "encode_event",
    "encode_lines",
    "snake_case",
    "without_surrogates",
]
