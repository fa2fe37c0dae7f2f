"""What a reporter is, and how one is found by its type."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_events import Event, Reporter
from spark_events.reporters.registry import BUILT_IN, factory, reporter_type


class Own(Reporter):
    """A reporter of one's own."""

    async def report(self, events: Sequence[Event]) -> None:
        return None


class NotAReporter:
    Config = object


def without_config(config: object) -> Own:
    return Own(config)


NUMBER = 7


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_types_that_come_with_the_package_are_reporters(name: str) -> None:
    """Every name that the configuration knows leads to a reporter with a configuration of its own."""
    found = factory(name)
    assert isinstance(found, type)
    assert issubclass(found, Reporter)
    assert f"{found.__module__}:{found.__name__}" == BUILT_IN[name]


def test_a_class_of_one_s_own_is_found_by_its_path() -> None:
    """package.module:Class is imported and taken as it is."""
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
        (f"{__name__}:without_config", "without_config has no Config"),
        (f"{__name__}:NUMBER", "NUMBER is not a Reporter class"),
    ],
)
def test_what_is_no_reporter_is_refused_with_the_reason(name: str, reason: str) -> None:
    """The reason is part of the message, so that one need not guess."""
    with pytest.raises(ValueError, match=re.escape(reason)):
        factory(name)


def test_a_module_that_ends_the_program_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may do so where it is not the program."""
    (tmp_path / "a_script.py").write_text('import sys\nsys.exit("usage: a_script FILE")\n', encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"a_script cannot be imported: SystemExit: usage: a_script FILE"):
        factory("a_script:Own")


def test_what_is_allowed_names_every_type() -> None:
    """A user who mistypes a type is shown all of them."""
    assert all(name in reporter_type.allowed for name in (*BUILT_IN, "package.module:Class"))


def test_a_reporter_need_not_open_or_close_and_may_be_async() -> None:
    """Only report() must be there; the others do nothing, and each may be plain or async."""
    own = Own()
    assert (own.open(), own.close(), own.config) == (None, None, None)
    waiting = own.report([])
    assert inspect.isawaitable(waiting)
    assert asyncio.run(waiting) is None
