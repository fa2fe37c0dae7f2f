"""Tests of settings: each error message contains the full key, the value and the allowed values."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_events.config import (
    Kind,
    Setting,
    Settings,
    boolean,
    choice,
    duration,
    integer,
    names,
    number,
    option,
    options,
    text,
)
from spark_events.errors import ConfigError


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    path: str = option("path", text("the path of a file"), doc="Where.")
    size: int = option("batch.size", integer(1, 100), 10, doc="How many.")
    timeout: float = option("timeout", duration, 5.0, doc="How long.")
    strict: bool = option("strict", boolean, False, doc="Whether.")


def problems(values: dict[str, str]) -> tuple[str, ...]:
    settings = Settings.of(values, "spark-defaults.conf")
    settings.read(Section, "events.thing")
    with pytest.raises(ConfigError) as caught:
        settings.check()
    return caught.value.problems


@pytest.mark.parametrize(
    ("kind", "given_text", "value"),
    [
        (integer(1, 100), "1", 1),
        (integer(1, 100), "100", 100),
        (integer(-5), "-5", -5),
        (boolean, "true", True),
        (boolean, "FALSE", False),
        (duration, "500ms", 0.5),
        (duration, "10 s", 10.0),
        (duration, "5min", 300.0),
        (duration, "5m", 300.0),
        (duration, "2h", 7200.0),
        (duration, "1d", 86400.0),
        (duration, "0s", 0.0),
        (text(), "a b", "a b"),
        (choice("sync", "async-queued"), "async-queued", "async-queued"),
        (names, "audit, console", ("audit", "console")),
        (names, "a_1,B-2", ("a_1", "B-2")),
    ],
)
def test_a_valid_value_is_parsed(kind: Kind[Any], given_text: str, value: object) -> None:
    assert kind.parse(given_text) == value


@pytest.mark.parametrize(
    ("kind", "given_text"),
    [
        (integer(1, 100), "0"),
        (integer(1, 100), "101"),
        (integer(1, 100), "ten"),
        (integer(1, 100), "1.0"),
        (integer(1, 100), ""),
        (integer(1, 100), "1_0"),
        (integer(1, 100), "\N{ARABIC-INDIC DIGIT ONE}"),
        (duration, "\N{ARABIC-INDIC DIGIT ONE}s"),
        (integer(1, 100), "9" * 5000),
        (boolean, "yes"),
        (boolean, "1"),
        (duration, "10"),
        (duration, "-1s"),
        (duration, "1.5s"),
        (duration, "10 sec"),
        (duration, "10s\n"),
        (duration, "36501d"),
        (duration, "999999999h"),
        (text(), ""),
        (choice("sync", "async-queued"), "async"),
        (choice("sync"), "SYNC"),
        (names, ""),
        (names, "a,,b"),
        (names, "a b"),
        (names, "a, a"),
    ],
)
def test_an_invalid_value_raises_value_error(kind: Kind[Any], given_text: str) -> None:
    """An invalid value raises ValueError, and no other error."""
    with pytest.raises(ValueError):  # noqa: PT011 - Settings creates the message
        kind.parse(given_text)


def _defect(value: str) -> int:
    return {"one": 1}[value]


def _exit(value: str) -> int:
    sys.exit(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Own:
    """Config dataclass of a user-defined reporter."""

    size: int = option("size", Kind("one", _defect), 1, doc="How many.")
    count: int = option("count", Kind("one", _exit), 1, doc="How many.")
    word: str = option("word", Kind("a word", _defect, confidential=True), "", doc="Which.")
    colour: str = option("colour", text(), "red", doc="Of what.")
    password: str = option("password", text(), "", doc="Whose.")

    def __post_init__(self) -> None:
        if self.colour == "blue":
            raise ValueError(f"blue is not for {self.password}")
        if self.colour == "green":
            raise KeyError(self.password)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": "two"}, "own.size: given a value that is not shown (KeyError), expected one; set in a test"),
        ({"count": "two"}, "own.count: given a value that is not shown (SystemExit), expected one; set in a test"),
        ({"word": "s3cret"}, "own.word: given a value that is not shown (KeyError), expected a word; set in a test"),
        ({"colour": "blue", "password": "s3cret"}, "own: these keys cannot be used together: blue is not for ***"),
        ({"colour": "green", "password": "s3cret"}, "own: these keys cannot be used together: KeyError: '***'"),
    ],
)
def test_an_error_in_a_parser_is_reported_with_its_key(values: dict[str, str], message: str) -> None:
    """If a user's parser raises an error, the message contains the key but no secret, and the process continues."""
    settings = Settings.of({f"own.{key}": value for key, value in values.items()}, "a test")
    assert settings.read(Own, "own") is None
    with pytest.raises(ConfigError) as caught:
        settings.check()
    assert caught.value.problems == (message,)


MOST = {"ms": 999_999_999, "s": 999_999_999, "m": 52_560_000, "min": 52_560_000, "h": 876_000, "d": 36_500}


@given(st.sampled_from(sorted(MOST)).flatmap(lambda unit: st.tuples(st.integers(0, MOST[unit]), st.just(unit))))
def test_a_formatted_duration_parses_to_the_same_value(given_duration: tuple[int, str]) -> None:
    """Parsing a formatted duration returns the same duration, so that a template shows the exact default."""
    count, unit = given_duration
    seconds = duration.parse(f"{count}{unit}")
    assert duration.parse(duration.format(seconds)) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        (duration, 0.1, "100ms"),
        (duration, 10.0, "10s"),
        (duration, 90.0, "90s"),
        (duration, 120.0, "2min"),
        (duration, 0.0, "0ms"),
        (boolean, False, "false"),
        (integer(0), 512, "512"),
        (names, ("a", "b"), "a, b"),
    ],
)
def test_values_are_formatted_as_users_write_them(kind: Kind[Any], value: object, written: str) -> None:
    assert kind.format(value) == written


def test_a_section_has_given_values_and_defaults() -> None:
    settings = Settings.of({"events.thing.path": "/x", "events.thing.timeout": "2min"})
    assert settings.read(Section, "events.thing") == Section(path="/x", timeout=120.0)
    settings.check()


@pytest.mark.parametrize("key", ["events.thing.batch.size", "spark.events.thing.batch.size"])
def test_an_invalid_value_is_reported_with_the_key_as_written(key: str) -> None:
    """The message about an invalid value contains the key as written, the value, the allowed values, and the origin."""
    (problem,) = problems({"events.thing.path": "/x", key: "many"})
    assert problem == f"{key}: given 'many', expected a whole number from 1 to 100; set in spark-defaults.conf"


def test_a_missing_value_is_reported_with_the_allowed_values() -> None:
    """The message about a missing required key contains the allowed values."""
    assert problems({}) == ("events.thing.path: required, but not set; expected the path of a file",)


def test_a_kind_s_reason_is_part_of_the_message() -> None:
    """If a value's parser provides a reason, the message about an invalid value contains this reason."""
    (problem,) = problems({"events.thing.path": ""})
    assert problem.startswith("events.thing.path: given '' (nothing), expected the path of a file")


@pytest.mark.parametrize("prefix", ["", "spark."])
def test_an_unknown_key_gets_a_suggestion(prefix: str) -> None:
    """The message about an unknown key quotes only the key, and suggests the nearest key with its prefix."""
    (problem,) = problems({"events.thing.path": "/x", f"{prefix}events.thing.batch.sise": "3"})
    assert problem.startswith(f"{prefix}events.thing.batch.sise: unknown key; set in spark-defaults.conf")
    assert problem.endswith(f"did you mean {prefix}events.thing.batch.size?")


def test_an_unknown_key_without_a_similar_key_gets_the_list() -> None:
    (problem,) = problems({"events.thing.path": "/x", "events.thing.zzzzzzzzzzzz": "3"})
    assert problem.endswith("known here: events.thing.path, events.thing.strict, events.thing.timeout")


def test_all_problems_are_reported_together() -> None:
    """Invalid, missing and unknown keys are reported together."""
    found = problems({"events.thing.timeout": "10", "events.thing.strict": "yes", "events.other": "x"})
    assert [problem.partition(":")[0] for problem in found] == [
        "events.thing.path",
        "events.thing.timeout",
        "events.thing.strict",
        "events.other",
    ]


def test_a_config_error_has_all_problems() -> None:
    """The message of a ConfigError contains all problems, and its attribute ``problems`` lists them."""
    error = ConfigError(["first", "second"])
    assert str(error) == "first; second"
    assert error.problems == ("first", "second")


@pytest.mark.parametrize("order", [1, -1])
def test_the_spark_prefix_has_precedence(order: int) -> None:
    """A key with the prefix spark.events overrides the same key with the prefix events, in either order."""
    given = [
        Setting("events.thing.path", "/file", "spark-defaults.conf"),
        Setting("spark.events.thing.path", "/conf", "Spark's configuration"),
    ]
    settings = Settings(given[::order])
    assert settings.read(Section, "events.thing") == Section(path="/conf")
    settings.check()


def test_names_below_a_prefix_are_distinct_and_ordered() -> None:
    settings = Settings.of(
        {"events.reporter.b.type": "x", "spark.events.reporter.a.type": "y", "events.reporter.b.z": ""}
    )
    assert settings.names_below("events.reporter") == ["b", "a"]


def test_options_are_listed_in_declaration_order() -> None:
    declared = options(Section)
    assert [o.key for o in declared] == ["path", "batch.size", "timeout", "strict"]
    assert declared[0].default is dataclasses.MISSING
    assert declared[2].doc == "How long."


@pytest.mark.parametrize(
    ("kind", "allowed", "refused"),
    [
        (integer(1, 3), [1, 3], [0, 4, True, 2.0, "2", None]),
        (integer(1, None), [1, 10**30], [0]),
        (number("above 0", above=0), [0.5, 3], [0, -1, True, float("nan"), float("inf"), "1"]),
        (number("a ratio", at_least=0, at_most=1), [0, 1.0], [-0.1, 1.1]),
        (number("above 0", above=0).or_none(), [None, 1], [0]),
        (boolean, [True, False], [0, "true", None]),
        (text(), ["a"], ["", 3]),
        (choice("a", "b"), ["a"], ["c", ["a"], None]),
        (choice("a").or_else("or 7", lambda value: value == 7), ["a", 7], ["b", 8]),
        (names, [], ["a", ("a",)]),
    ],
)
def test_kinds_check_arguments(kind: Any, allowed: list[Any], refused: list[Any]) -> None:
    """The kinds of settings also check Python arguments, so that both have the same limits."""
    assert [value for value in allowed if not kind.holds(value)] == []
    assert [value for value in refused if kind.holds(value)] == []


@pytest.mark.parametrize("value", ["0", "nan", "inf", "x", ""])
def test_numbers_are_parsed_within_their_limits(value: str) -> None:
    kind = number("above 0", above=0)
    assert kind.parse("1.5") == 1.5
    with pytest.raises(ValueError, match=r"^(could not convert.*)?$"):
        kind.parse(value)
