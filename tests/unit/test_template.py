"""Tests that conf/spark-defaults.conf.template contains every key once, as a comment, with its default."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from fakes import ROOT

from spark_events.config import Option, Settings, options
from spark_events.dispatch.pipeline import build
from spark_events.reporters.reporter_types import BUILT_IN, factory
from unit.declared_keys import SECTIONS_OF_ALL, default_of, of_a_reporter, of_the_driver

TEMPLATE = ROOT / "conf" / "spark-defaults.conf.template"
_KEY = re.compile(r"# spark\.(events\.[A-Za-z0-9.-]+)(?:\s+(\S.*))?")
_REPORTER = re.compile(r"events\.reporter\.([^.]+)\.(.+)")
#: Pattern of keys that contain the name of a query or of a tag.
_NAMED = re.compile(r"^(events\.(?:deadline\.query|tags)\.)[^.]+((?:\.\w+)?)$")
_NO_DEFAULT = "# (no default)"
#: Pattern of example keys whose files or variables do not exist on this machine, or which need another setting.
_ELSEWHERE = re.compile(
    r"\.(template|routing-key|password|signature\.secret|headers|proxy|tls\.\w+|sasl\.\w+|ssl\.[a-z.]+)$"
)


class Line(NamedTuple):
    """Key in the template with its value, and whether the template marks it as a key without a default."""

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
    """Return the reporters of the template with their types."""
    found = {}
    for line in lines():
        match = _REPORTER.fullmatch(line.key)
        if match and match[2] == "type":
            found[match[1]] = line.value
    return found


def declared_for(line: Line) -> Option | None:
    match = _REPORTER.fullmatch(line.key)
    if match is None:
        return dict(of_the_driver()).get(_NAMED.sub(r"\1<name>\2", line.key))
    type_name = reporter_types().get(match[1])
    return None if type_name is None else of_a_reporter(type_name).get(match[2])


def test_all_settings_are_commented_out() -> None:
    """All settings in the template are commented out, so a copy of the template changes nothing."""
    active = [line for line in TEMPLATE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert active == []


def test_no_key_occurs_twice() -> None:
    """No key occurs twice, because Java uses the last of several values without a warning."""
    keys = [line.key for line in lines()]
    assert sorted({key for key in keys if keys.count(key) > 1}) == []


def test_every_key_exists() -> None:
    """The template contains no removed or renamed key."""
    assert [line.key for line in lines() if declared_for(line) is None] == []


def test_every_driver_key_is_in_the_template() -> None:
    """The template contains all keys of the driver, of event content, of the dispatcher and of the translation."""
    there = {_NAMED.sub(r"\1<name>\2", line.key) for line in lines()}
    assert [key for key, _ in of_the_driver() if key not in there] == []


@pytest.mark.parametrize("type_name", BUILT_IN)
def test_every_reporter_type_occurs_once_with_its_keys(type_name: str) -> None:
    names = [name for name, shown in reporter_types().items() if shown == type_name]
    assert len(names) == 1
    there = {line.key for line in lines()}
    own = [declared.key for declared in options(factory(type_name).Config)]
    assert [key for key in own if f"events.reporter.{names[0]}.{key}" not in there] == []


def test_the_keys_of_every_reporter_are_documented() -> None:
    """The keys that every reporter has, for delivery and selection, are documented for at least one reporter."""
    shown = {match[2] for line in lines() if (match := _REPORTER.fullmatch(line.key))}
    every = [declared.key for section in SECTIONS_OF_ALL for declared in options(section)]
    assert [key for key in every if key not in shown] == []


@pytest.mark.parametrize("line", lines(), ids=lambda line: line.key)
def test_a_value_is_the_default_or_marked_as_an_example(line: Line) -> None:
    declared = declared_for(line)
    assert declared is not None, f"{line.key} does not exist"
    default = default_of(declared)
    assert line.is_example is (default is None)
    if default is not None:
        assert line.value == default
    declared.kind.parse(line.value)


def test_the_whole_template_is_a_valid_configuration() -> None:
    """If all comment signs are removed, the template is valid, except for files and variables of the user's machine."""
    settings = Settings.of({line.key: line.value for line in lines() if not _ELSEWHERE.search(line.key)}, str(TEMPLATE))
    made = build(settings)
    assert {delivery.name for delivery in made.deliveries} <= {*reporter_types(), "verdict"}
