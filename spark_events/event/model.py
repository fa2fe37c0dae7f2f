"""Event, builder and severity, modelled on Flink's FLIP-481."""

from __future__ import annotations

import enum
import math
import secrets
import time
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

import msgspec

from spark_events.errors import InvalidEventError
from spark_events.event.text import as_card, as_line, plain

_INT64 = 1 << 63

AttributeValue: TypeAlias = str | int | float | bool


class Severity(enum.Enum):
    """Severity, with the names and numbers of the OpenTelemetry log data model."""

    TRACE = "TRACE"
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"
    FATAL = "FATAL"

    number: int
    """OpenTelemetry's SeverityNumber: 1 for TRACE to 21 for FATAL."""

    def __init__(self, _: object) -> None:
        # Store the number as an attribute, because every event reads it and a dictionary lookup is slower.
        self.number = 1 + 4 * len(type(self).__members__)

    def __ge__(self, other: object) -> bool:
        return self.number >= other.number if isinstance(other, Severity) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.number < other.number if isinstance(other, Severity) else NotImplemented


class Attributes(dict[str, AttributeValue]):
    """Immutable dictionary of attributes; several reporters share one object."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("an event's attributes are immutable; build a new event")

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __reduce__(self) -> tuple[type[Attributes], tuple[dict[str, AttributeValue]]]:
        return Attributes, (dict(self),)


# gc=False: events are never part of a reference cycle.
class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Immutable fact for an operator.

    Attributes:
        name: kind of fact, such as ``BatchCommitEvent``.
        class_scope: dotted name of the part of Spark, or of the user's program, that the event is about.
        body: one sentence that is understandable without the other fields.
        severity: severity of the fact.
        observed_ts_millis: the time of the fact (not of the delivery), in milliseconds since the epoch.
        event_id: identifier of the fact; repeated deliveries have the same identifier.
        sequence: number within the application, increasing in the order of events.
        attributes: machine-readable details.
    """

    name: str
    class_scope: str
    body: str
    severity: Severity
    observed_ts_millis: int
    event_id: str
    sequence: int = 0
    attributes: Attributes = msgspec.field(default_factory=Attributes)

    def __hash__(self) -> int:
        return hash(self.event_id)

    @staticmethod
    def builder(class_scope: str | type, name: str) -> EventBuilder:
        """Return ``EventBuilder(class_scope, name)``."""
        return EventBuilder(class_scope, name)

    def __repr__(self) -> str:
        return f"<Event {as_line(self.observed_ts_millis, self.severity.value, self.name, self.body)}>"

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook."""
        facts = {"class_scope": self.class_scope, "event_id": self.event_id, "sequence": self.sequence}
        moment = self.observed_ts_millis
        return as_card(moment, self.severity.value, self.name, self.body, {**facts, **self.attributes})


class EventBuilder:
    """Builder of an :class:`Event`, as in FLIP-481; each setter rejects an invalid value.

    >>> EventBuilder("shop.orders", "OrderImported").set_attribute("orders", 12).build().attributes
    {'orders': 12}

    Args:
        class_scope: a dotted name, or the class that emits the event.
        name: kind of fact.

    Raises:
        InvalidEventError: for an empty name, an attribute that is not a ``str``, ``int``, ``float`` or ``bool``, or a
            number that JSON or 64 bits cannot represent.
    """

    def __init__(self, class_scope: str | type, name: str) -> None:
        if isinstance(class_scope, type):
            class_scope = f"{class_scope.__module__}.{class_scope.__qualname__}"
        self._class_scope = _text("class_scope", class_scope)
        self._name = _text("name", name)
        self._body: str | None = None
        self._severity = Severity.INFO
        self._observed_ts_millis: int | None = None
        self._attributes: dict[str, AttributeValue] = {}

    def set_body(self, body: str) -> EventBuilder:
        """Set the sentence that describes the fact; the default is the event's name."""
        if not isinstance(body, str):
            raise InvalidEventError(f"body: given {body!r}, expected a str")
        self._body = plain(body)
        return self

    def set_severity(self, severity: Severity | str) -> EventBuilder:
        """Set the severity, by member or case-insensitive name; the default is INFO."""
        try:
            self._severity = Severity(severity.upper() if isinstance(severity, str) else severity)
        except ValueError:
            allowed = ", ".join(s.value for s in Severity)
            raise InvalidEventError(f"severity: given {severity!r}, expected one of {allowed}") from None
        return self

    def set_observed_ts_millis(self, observed_ts_millis: int) -> EventBuilder:
        """Set the time of the fact in milliseconds since the epoch; the default is now."""
        if type(observed_ts_millis) is not int or not 0 <= observed_ts_millis < _INT64:
            raise InvalidEventError(
                f"observed_ts_millis: given {observed_ts_millis!r}, expected an int, in milliseconds since the epoch"
            )
        self._observed_ts_millis = observed_ts_millis
        return self

    def set_attribute(self, key: str, value: AttributeValue) -> EventBuilder:
        """Add an attribute, or replace an attribute with the same key."""
        self._attributes[_text("attribute key", key)] = _attribute(key, value)
        return self

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> EventBuilder:
        """Add several attributes."""
        for key, value in attributes.items():
            self.set_attribute(key, value)
        return self

    def build(self) -> Event:
        """Return the event with a new identifier.

        When the event is reported, it receives its sequence number and its final identifier.
        """
        now = time.time_ns() // 1_000_000
        return Event(
            name=self._name,
            class_scope=self._class_scope,
            body=self._name if self._body is None else self._body,
            severity=self._severity,
            observed_ts_millis=now if self._observed_ts_millis is None else self._observed_ts_millis,
            event_id=secrets.token_hex(16),
            attributes=Attributes(self._attributes),
        )


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidEventError(f"{what}: given {value!r}, expected a non-empty str")
    return plain(value)


def _attribute(key: str, value: Any) -> AttributeValue:
    # Convert subclasses such as numpy.float64 to the plain type, which every encoder supports.
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, int):
        if -_INT64 <= value < _INT64:
            return int(value)
        raise InvalidEventError(f"attribute {key!r}: given {value!r}, expected an int of 64 bits")
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        raise InvalidEventError(f"attribute {key!r}: given {value!r}, expected a finite float")
    raise InvalidEventError(
        f"attribute {key!r}: given {value!r} of type {type(value).__name__}, expected str, int, float or bool"
    )
