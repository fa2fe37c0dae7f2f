"""Tests that the pages of the configuration, the reporters' pages and the keys in README agree with the code."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from fakes import ROOT

from spark_events.config import Option, options
from spark_events.reporters.reporter_types import BUILT_IN, factory
from unit.declared_keys import default_of, of_every_reporter, of_the_driver

DOCS = ROOT / "docs"
ALL = DOCS / "configuration.md"
CONTENT = DOCS / "configuration" / "event-content.md"
_NAMED = "events.reporter.<name>."
_ROW = re.compile(r"\| (`[a-z.][^|]*`) \| ([^|]*) \| [^|]*\|")


def rows(page: Path) -> list[tuple[str, str]]:
    """Return the keys of the page's tables with their defaults."""
    found: list[tuple[str, str]] = []
    is_table = False
    for line in page.read_text(encoding="utf-8").splitlines():
        is_table = line.startswith("| key | default |") or (is_table and line.startswith("|"))
        if is_table and (match := _ROW.fullmatch(line)):
            keys = [key.strip("`").removeprefix("spark.") for key in match[1].split(" / ")]
            defaults = match[2].split(" / ")
            found += zip(keys, defaults * len(keys) if len(defaults) == 1 else defaults, strict=True)
    return found


def declared() -> dict[str, Option]:
    """Return the keys of every configuration by the names that the documents use."""
    return {**dict(of_the_driver()), **{_NAMED + key: option for key, option in of_every_reporter().items()}}


def wrong_default(shown: str, option: Option) -> bool:
    """Return whether a documented default is wrong: pages quote the default, or explain that the key has none."""
    if option.default is dataclasses.MISSING:
        return shown != "required"
    default = default_of(option)
    return shown == "required" if default is None else shown != f"`{default}`"


def page_of(type_name: str) -> Path:
    """Return the page that documents the keys of a reporter type."""
    own = DOCS / "reporters" / f"{type_name}.md"
    return own if own.is_file() else ALL


def test_exactly_the_declared_keys_are_documented_once() -> None:
    shown = [key for key, _ in (*rows(ALL), *rows(CONTENT)) if not key.startswith(".")]
    assert sorted(shown) == sorted(declared())


@pytest.mark.parametrize("page", [ALL, CONTENT, ROOT / "README.md"], ids=lambda page: page.name)
def test_documented_defaults_match_the_code(page: Path) -> None:
    """The keys on a page exist and have the documented defaults; this also applies to README."""
    known = declared()
    shown = [(key, default) for key, default in rows(page) if not key.startswith(".")]
    assert len(shown) >= 5
    assert [key for key, default in shown if key not in known or wrong_default(default, known[key])] == []


@pytest.mark.parametrize("type_name", BUILT_IN)
def test_the_page_of_a_type_has_its_keys_and_defaults(type_name: str) -> None:
    own = {f".{option.key}": option for option in options(factory(type_name).Config)}
    shown = {key: default for key, default in rows(page_of(type_name)) if key.startswith(".")}
    assert [key for key in shown if key not in own or wrong_default(shown[key], own[key])] == []
    assert own.keys() - shown.keys() <= {f".{key}" for key in of_every_reporter()}
