"""Test that the name of a module says what it holds, also without its folder."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

import spark_events

pytestmark = pytest.mark.no_cover

PACKAGE = Path(spark_events.__file__).parent
#: Names that several modules may have, with the reason.
SAME = {
    "__init__": "Python's name for a package",
    "main": "the entry point of a process: the command, and the sidecar",
    "replay": "a command, and what an enrichment does with a replayed batch on the driver and in a worker process",
    "report": "a command, and the report of an enrichment's task",
    "run": "a command, and the context of a run of the engine",
    "watch": "a command, and the engine's watch over its event loop",
    "breaker": "the same algorithm's two uses, which share no code: for a reporter, and for an enrichment",
    "settings": "settings as strings, and options as objects for an enrichment",
    "models": "classes as an enrichment's output, on the driver and in the engine",
}


def modules_by_name() -> dict[str, list[str]]:
    modules = defaultdict(list)
    for module in sorted(PACKAGE.rglob("*.py")):
        modules[module.stem].append(module.relative_to(PACKAGE).as_posix())
    return modules


def test_no_two_modules_have_one_name() -> None:
    """A file that is open in an editor, or stands in a stack trace, is known by its name alone."""
    same = {name: modules for name, modules in modules_by_name().items() if len(modules) > 1 and name not in SAME}
    assert same == {}


def test_no_module_is_named_after_its_kind_of_code() -> None:
    """A name such as ``config`` or ``utils`` says of what kind the code is, but not what it is about."""
    kinds = {"config", "reporter", "plans", "utils", "util", "common", "helpers", "helper", "manager", "base", "misc"}
    named = {name: modules for name, modules in modules_by_name().items() if name in kinds}
    assert named == {"reporter": ["reporters/reporter.py"]}  # the interface of all reporters
