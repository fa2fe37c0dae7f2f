"""docs/configuration.md, the pages of the reporters and README's few keys agree with the code, both ways."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from fakes import ROOT

from spark_events.config import Option, options
from spark_events.reporters.registry import BUILT_IN, factory
from unit.declared_keys import default_of, of_every_reporter, of_the_driver

DOCS = ROOT / "docs"
ALL = DOCS / "configuration.md"
_NAMED = "events.reporter.<name>."
_ROW = re.compile(r"\| (`[a-z.][^|]*`) \| ([^|]*) \| [^|]*\|")


def rows(page: Path) -> list[tuple[str, str]]:
    """Keys as they are written there, and their defaults; only tables of keys are looked at."""
    found: list[tuple[str, str]] = []
    is_table = False
    for line in page.read_text(encoding="utf-8").splitlines():
        is_table = line.startswith("| key | default |") or (is_table and line.startswith("|"))
        if is_table and (match := _ROW.fullmatch(line)):
            keys = [key.strip("`") for key in match[1].split(" / ")]
            defaults = match[2].split(" / ")
            found += zip(keys, defaults * len(keys) if len(defaults) == 1 else defaults, strict=True)
    return found


def declared() -> dict[str, Option]:
    """What every configuration may have, by the name that the texts use."""
    return {**dict(of_the_driver()), **{_NAMED + key: option for key, option in of_every_reporter().items()}}


def wrong_default(shown: str, option: Option) -> bool:
    """A default is quoted as it would be written; where there is none, words say what happens."""
    if option.default is dataclasses.MISSING:
        return shown != "required"
    default = default_of(option)
    return shown == "required" if default is None else shown != f"`{default}`"


def page_of(type_name: str) -> Path:
    """Where the keys of a type are explained."""
    own = DOCS / "reporters" / f"{type_name}.md"
    return own if own.is_file() else ALL


def test_every_key_stands_there_once_and_no_other_does() -> None:
    """What can be set can be looked up; what is gone from the code is gone from there."""
    shown = [key for key, _ in rows(ALL) if not key.startswith(".")]
    assert sorted(shown) == sorted(declared())


@pytest.mark.parametrize("page", [ALL, ROOT / "README.md"], ids=lambda page: page.name)
def test_a_default_that_is_shown_is_the_one_that_holds(page: Path) -> None:
    """And nothing else is shown: README names few keys, but none that does not exist."""
    known = declared()
    shown = [(key, default) for key, default in rows(page) if not key.startswith(".")]
    assert len(shown) >= 5
    assert [key for key, default in shown if key not in known or wrong_default(default, known[key])] == []


@pytest.mark.parametrize("type_name", BUILT_IN)
def test_the_keys_of_a_type_are_on_its_page_with_their_defaults(type_name: str) -> None:
    """All that it has beside those of every reporter, and no other."""
    own = {f".{option.key}": option for option in options(factory(type_name).Config)}
    shown = {key: default for key, default in rows(page_of(type_name)) if key.startswith(".")}
    assert [key for key in shown if key not in own or wrong_default(shown[key], own[key])] == []
    assert own.keys() - shown.keys() <= {f".{key}" for key in of_every_reporter()}
