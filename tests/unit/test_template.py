"""conf/spark-defaults.conf.template has every key there is, once, commented out, with its default."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from fakes import ROOT

from spark_events.config import Option, Settings, options
from spark_events.pipeline import build
from spark_events.reporters.registry import BUILT_IN, factory
from unit.declared_keys import SECTIONS_OF_ALL, default_of, of_a_reporter, of_the_driver

TEMPLATE = ROOT / "conf" / "spark-defaults.conf.template"
_KEY = re.compile(r"# ((?:spark\.)?events\.[A-Za-z0-9.-]+)(?:\s+(\S.*))?")
_REPORTER = re.compile(r"events\.reporter\.([^.]+)\.(.+)")
_NO_DEFAULT = "# (no default)"
#: Examples that name files or variables of a machine that is not this one, or go with another choice than the default.
_ELSEWHERE = re.compile(
    r"\.(template|routing-key|password|signature\.secret|headers|proxy|tls\.\w+|sasl\.\w+|ssl\.[a-z.]+)$"
)


class Line(NamedTuple):
    """A key of the template, its value, and whether it is marked to have no default."""

    key: str
    value: str
    is_example: bool


def lines() -> list[Line]:
    text = TEMPLATE.read_text(encoding="utf-8").splitlines()
    found = []
    for before, line in zip(["", *text], text, strict=False):
        if match := _KEY.fullmatch(line):
            found.append(Line(match[1], match[2] or "", before == _NO_DEFAULT))
    return found


def reporter_types() -> dict[str, str]:
    """The reporters of the template and their types."""
    found = {}
    for line in lines():
        match = _REPORTER.fullmatch(line.key)
        if match and match[2] == "type":
            found[match[1]] = line.value
    return found


def declared_for(line: Line) -> Option | None:
    match = _REPORTER.fullmatch(line.key)
    if match is None:
        return dict(of_the_driver()).get(line.key)
    type_name = reporter_types().get(match[1])
    return None if type_name is None else of_a_reporter(type_name).get(match[2])


def test_everything_is_commented_out() -> None:
    """Copied as it is, the template changes nothing."""
    active = [line for line in TEMPLATE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert active == []


def test_no_key_stands_there_twice() -> None:
    """In a properties file the last one wins, silently."""
    keys = [line.key for line in lines()]
    assert sorted({key for key in keys if keys.count(key) > 1}) == []


def test_no_key_is_one_that_does_not_exist() -> None:
    """A key that was renamed is renamed here, too."""
    assert [line.key for line in lines() if declared_for(line) is None] == []


def test_every_key_of_the_driver_is_there() -> None:
    """Events, dispatcher and translation: nothing that can be set is hidden."""
    there = {line.key for line in lines()}
    assert [key for key, _ in of_the_driver() if key not in there] == []


@pytest.mark.parametrize("type_name", BUILT_IN)
def test_every_type_of_reporter_is_shown_once_with_its_own_keys(type_name: str) -> None:
    """One reporter of each type, with all keys that its type alone has."""
    names = [name for name, shown in reporter_types().items() if shown == type_name]
    assert len(names) == 1
    there = {line.key for line in lines()}
    own = [declared.key for declared in options(factory(type_name).Config)]
    assert [key for key in own if f"events.reporter.{names[0]}.{key}" not in there] == []


def test_the_keys_that_all_reporters_have_are_shown() -> None:
    """Delivery and selection are explained with one reporter at least."""
    shown = {match[2] for line in lines() if (match := _REPORTER.fullmatch(line.key))}
    every = [declared.key for section in SECTIONS_OF_ALL for declared in options(section)]
    assert [key for key in every if key not in shown] == []


@pytest.mark.parametrize("line", lines(), ids=lambda line: line.key)
def test_a_value_is_the_default_or_marked_as_an_example(line: Line) -> None:
    """What stands there is what happens without it; where nothing would, it says so."""
    declared = declared_for(line)
    assert declared is not None, f"{line.key} does not exist"
    default = default_of(declared)
    assert line.is_example is (default is None)
    if default is not None:
        assert line.value == default
    declared.kind.parse(line.value)


def test_the_whole_template_is_a_valid_configuration() -> None:
    """With every comment sign taken away it is accepted as it is, but for what only the user's machine has."""
    settings = Settings.of({line.key: line.value for line in lines() if not _ELSEWHERE.search(line.key)}, str(TEMPLATE))
    made = build(settings)
    assert {delivery.name for delivery in made.deliveries} <= set(reporter_types())
