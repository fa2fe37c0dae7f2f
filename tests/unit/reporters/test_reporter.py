"""Tests of the class Reporter, and of finding a reporter by its type."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_events import Event, Reporter
from spark_events.reporters.reporter_types import BUILT_IN, factory, reporter_type


class Own(Reporter):
    """Minimal user-defined reporter."""

    async def report(self, events: Sequence[Event]) -> None:
        return None


class NotAReporter:
    Config = object


def without_config(config: object) -> Own:
    return Own(config)


NUMBER = 7


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_types_are_reporters(name: str) -> None:
    found = factory(name)
    assert isinstance(found, type)
    assert issubclass(found, Reporter)
    assert f"{found.__module__}:{found.__name__}" == BUILT_IN[name]


def test_a_user_s_class_is_found_by_its_path() -> None:
    """The type package.module:Class imports the user's class."""
    assert factory(f"{__name__}:Own") is Own


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("flie", "no such type"),
        ("", "no such type"),
        (":Own", "no such type"),
        ("module:", "no such type"),
        ("no.such.module:Own", "no.such.module cannot be imported: ModuleNotFoundError: No module named 'no'"),
        (f"{__name__}:Missing", f"{__name__} has no Missing"),
        (f"{__name__}:NotAReporter", "NotAReporter is not a subclass of spark_events.Reporter"),
        (f"{__name__}:without_config", "without_config has no attribute Config"),
        (f"{__name__}:NUMBER", "NUMBER is not a Reporter class"),
    ],
)
def test_an_invalid_reporter_type_is_rejected_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        factory(name)


def test_a_module_that_exits_on_import_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a reporter's module exits on import, like a script with sys.exit(), the type is rejected."""
    (tmp_path / "a_script.py").write_text('import sys\nsys.exit("usage: a_script FILE")\n', encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"a_script cannot be imported: SystemExit: usage: a_script FILE"):
        factory("a_script:Own")


def test_an_unknown_type_is_rejected_with_all_types() -> None:
    assert all(name in reporter_type.allowed for name in (*BUILT_IN, "package.module:Class"))


def test_open_and_close_are_optional_and_may_be_async() -> None:
    """Only report() is required. open(), report() and close() may be plain or async methods."""
    own = Own()
    assert (own.open(), own.close(), own.config) == (None, None, None)
    waiting = own.report([])
    assert inspect.isawaitable(waiting)
    assert asyncio.run(waiting) is None
