"""Tests of the search for reporter classes, and of its error messages."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_events import Event, Reporter
from spark_events.config import integer, option
from spark_events.reporters.file import FileReporter
from spark_events.reporters.reporter_types import factory

HERE = __name__


class Good(Reporter):
    def report(self, events: Sequence[Event]) -> None: ...


class NotAReporter:
    def report(self, events: Sequence[Event]) -> None: ...


class WithoutReport(Reporter):
    async def open(self) -> None: ...


class ReportsOneByOne(Reporter):
    def report(self) -> None: ...  # type: ignore[override]


class OpensSomething(Reporter):
    def open(self, url: str) -> None: ...  # type: ignore[override]

    def report(self, events: Sequence[Event]) -> None: ...


class TakesNothing(Reporter):
    def __init__(self) -> None: ...

    def report(self, events: Sequence[Event]) -> None: ...


class LooseConfig(Reporter):
    Config = dict

    def report(self, events: Sequence[Event]) -> None: ...


@dataclasses.dataclass(frozen=True)
class _HalfDeclared:
    size: int = option("size", integer(1), 1, doc="How many.")
    url: str = "http://127.0.0.1"


class HalfDeclared(Reporter):
    Config = _HalfDeclared

    def report(self, events: Sequence[Event]) -> None: ...


def make_without_config(config: Any) -> Reporter:
    return Good(config)


NUMBER = 7


def test_built_in_and_user_types_are_found() -> None:
    """Reporter types are found by short name and by package.module:Class."""
    assert factory("file") is FileReporter
    assert factory(f"{HERE}:Good") is Good


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NotAReporter", "NotAReporter is not a subclass of spark_events.Reporter"),
        ("WithoutReport", "WithoutReport does not define report"),
        ("ReportsOneByOne", "ReportsOneByOne cannot be used: its method report() must accept one argument, the events"),
        ("OpensSomething", "OpensSomething cannot be used: its method open() must not require arguments"),
        (
            "TakesNothing",
            "TakesNothing cannot be created: the constructor must accept one argument, an instance of Config",
        ),
        ("LooseConfig", "LooseConfig cannot be configured: its Config is not a dataclass"),
        (
            "HalfDeclared",
            "HalfDeclared cannot be configured: url of its Config is not declared with spark_events.config.option",
        ),
        (
            "make_without_config",
            "make_without_config has no attribute Config, the dataclass that declares its settings",
        ),
        ("NUMBER", "NUMBER is not a Reporter class or a function that returns one"),
        ("Missing", f"{HERE} has no Missing"),
    ],
)
def test_a_malformed_reporter_class_is_rejected_with_the_reason(name: str, message: str) -> None:
    """A class that is not a valid reporter is rejected before the first event, with the setting and the reason."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        factory(f"{HERE}:{name}")


def test_a_package_registers_types_by_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package adds types through entry points. An unknown type is rejected with a list of known types."""
    about = tmp_path / "acme_events-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-events\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[spark_events.reporters]\nacme = {HERE}:Good\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert factory("acme") is Good
    with pytest.raises(ValueError, match="no such type; installed are also acme"):
        factory("acne")
    with pytest.raises(ValueError, match="no such type"):
        factory("")
