"""Tests of events: they are immutable and complete, and reject invalid values."""

from __future__ import annotations

import copy
import enum
import math
import pickle
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from spark_events import Event, EventBuilder, InvalidEventError, Severity
from spark_events.event import Attributes


class Shop:
    class Till:
        pass


def test_a_builder_has_defaults() -> None:
    """By default, an event has the severity INFO, its name as body, the current time, and a new id."""
    before = time.time_ns() // 1_000_000
    event = EventBuilder("shop.orders", "OrderImported").build()
    assert (event.severity, event.body, event.attributes) == (Severity.INFO, "OrderImported", {})
    assert before <= event.observed_ts_millis <= time.time_ns() // 1_000_000
    assert len(event.event_id) == 32


def test_a_builder_keeps_all_values() -> None:
    event = (
        Event.builder("shop", "Opened")
        .set_body("The shop is open")
        .set_severity("WARN")
        .set_observed_ts_millis(42)
        .set_attribute("door", "left")
        .set_attributes({"door": "right", "people": 3, "warm": True, "degrees": 21.5})
        .build()
    )
    assert (event.class_scope, event.name, event.body) == ("shop", "Opened", "The shop is open")
    assert (event.severity, event.observed_ts_millis) == (Severity.WARN, 42)
    assert event.attributes == {"door": "right", "people": 3, "warm": True, "degrees": 21.5}


def test_a_class_stands_for_its_dotted_name() -> None:
    """If the scope is a class, the event contains the dotted name of the class with its module, as in Flink."""
    assert EventBuilder(Shop.Till, "Opened").build().class_scope == f"{__name__}.Shop.Till"


def test_events_of_one_builder_are_independent() -> None:
    """Two events of one builder share no mutable state."""
    builder = EventBuilder("shop", "Opened")
    first = builder.build()
    second = builder.set_attribute("door", "left").build()
    assert first.event_id != second.event_id
    assert first.attributes == {}


def test_each_event_of_a_builder_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, an event's timestamp is the time of the build() call."""
    builder = EventBuilder("shop", "Opened")
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000)
    first = builder.build()
    monkeypatch.setattr(time, "time_ns", lambda: 2_000_000)
    assert (first.observed_ts_millis, builder.build().observed_ts_millis) == (1, 2)


def test_an_event_is_immutable() -> None:
    """No method of dict can change fields or attributes of an event."""
    event = EventBuilder("shop", "Opened").set_attribute("door", "left").build()
    with pytest.raises(AttributeError):
        event.body = "other"  # type: ignore[misc]
    changes: list[Callable[[Any], object]] = [
        lambda a: a.__setitem__("door", "x"),
        lambda a: a.__delitem__("door"),
        lambda a: a.update(door="x"),
        lambda a: a.setdefault("window", "x"),
        lambda a: a.pop("door"),
        lambda a: a.popitem(),
        lambda a: a.clear(),
        lambda a: a.__ior__({"door": "x"}),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="are immutable"):
            change(event.attributes)
    assert event.attributes == {"door": "left"}


@pytest.mark.parametrize("value", [None, b"x", [1], {"a": 1}, (1,), {1}, object(), 1j, Severity.INFO])
def test_an_attribute_of_an_invalid_type_is_rejected_by_name(value: object) -> None:
    with pytest.raises(InvalidEventError, match=r"attribute 'door': given .* of type \w+, expected str, int, float"):
        EventBuilder("shop", "Opened").set_attribute("door", value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinities_are_rejected(value: float) -> None:
    """An attribute must not be NaN or infinite, because JSON has no such values."""
    with pytest.raises(InvalidEventError, match=r"attribute 'door': .*finite"):
        EventBuilder("shop", "Opened").set_attribute("door", value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_an_int_beyond_64_bits_is_rejected(value: int) -> None:
    """An integer beyond 64 bits is rejected, because OTLP and most databases support at most 64 bits."""
    with pytest.raises(InvalidEventError, match=r"attribute 'door': .*64 bits"):
        EventBuilder("shop", "Opened").set_attribute("door", value)


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 0, True, False, "", 1e308])
def test_a_value_at_the_limit_is_accepted(value: object) -> None:
    """A value at the limit is accepted, and its type does not change; a bool stays a bool."""
    kept = EventBuilder("shop", "Opened").set_attribute("door", value).build().attributes["door"]  # type: ignore[arg-type]
    assert kept == value
    assert type(kept) is type(value)


class Metres(float):
    """Subclass of float, like numpy.float64."""


class Word(str):
    __slots__ = ()


class Colour(str, enum.Enum):
    RED = "red"


class Count(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("value", "plain"), [(Metres(1.5), 1.5), (Word("x"), "x"), (Colour.RED, "red"), (Count.ONE, 1)]
)
def test_a_subclass_becomes_the_plain_value(value: object, plain: object) -> None:
    """An event converts subclasses of float and str to float and str, because encoders reject subclasses."""
    event = EventBuilder("shop", "Opened").set_attribute("door", value).build()  # type: ignore[arg-type]
    assert type(event.attributes["door"]) is type(plain)
    assert msgspec.json.decode(msgspec.json.encode(event))["attributes"] == {"door": plain}


def test_lone_surrogates_are_replaced() -> None:
    """An event replaces lone surrogates, which occur in file names, because no reporter could write them."""
    event = EventBuilder("shop", "Opened\udcff").set_body("\ud800!").set_attribute("file", "a\udc80b").build()
    assert (event.name, event.body, event.attributes["file"]) == ("Opened?", "?!", "a?b")
    assert msgspec.json.encode(event)


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_an_empty_or_non_text_name_is_rejected(name: object) -> None:
    """Names, scopes and attribute keys must be non-empty strings."""
    with pytest.raises(InvalidEventError, match="name: given"):
        EventBuilder("shop", name)  # type: ignore[arg-type]
    with pytest.raises(InvalidEventError, match="class_scope: given"):
        EventBuilder(name, "Opened")  # type: ignore[arg-type]
    with pytest.raises(InvalidEventError, match="attribute key: given"):
        EventBuilder("shop", "Opened").set_attribute(name, 1)  # type: ignore[arg-type]


def test_other_fields_are_validated() -> None:
    """The message about an invalid severity, body or time contains the name of the field."""
    builder = EventBuilder("shop", "Opened")
    with pytest.raises(InvalidEventError, match="severity: given 'LOUD', expected one of TRACE, DEBUG, INFO, WARN"):
        builder.set_severity("LOUD")
    with pytest.raises(InvalidEventError, match="body: given 3"):
        builder.set_body(3)  # type: ignore[arg-type]
    assert builder.set_severity("warn").build().severity is Severity.WARN
    for moment in (-1, 1.5, True, 2**63, "now"):
        with pytest.raises(InvalidEventError, match="observed_ts_millis: given"):
            builder.set_observed_ts_millis(moment)  # type: ignore[arg-type]


def test_an_event_survives_pickling_and_copying_unchanged() -> None:
    event = EventBuilder("shop", "Opened").set_attribute("door", "left").build()
    for again in (pickle.loads(pickle.dumps(event)), copy.deepcopy(event)):
        assert again == event
        assert {event, again} == {event}
        assert type(again.attributes) is Attributes


def test_severities_have_opentelemetry_s_order_and_numbers() -> None:
    """Severities have OpenTelemetry's numbers: TRACE is 1, FATAL is 21, and each level adds 4."""
    assert [severity.number for severity in Severity] == [1, 5, 9, 13, 17, 21]
    assert sorted([Severity.FATAL, Severity.TRACE, Severity.WARN]) == [Severity.TRACE, Severity.WARN, Severity.FATAL]
    assert Severity.ERROR >= Severity.ERROR
    assert Severity.FATAL > Severity.WARN
    with pytest.raises(TypeError, match="not supported between instances of 'Severity' and 'str'"):
        assert Severity.FATAL > "WARN"  # type: ignore[operator]
