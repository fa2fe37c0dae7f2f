"""Tests that docs/architecture.md names existing classes, and that a record's path has a limited number of steps."""

from __future__ import annotations

import re

from fakes import ROOT

_TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
_STEP = re.compile(r"^\| \d+ \| ([^|]+) \|", re.MULTILINE)


def test_every_class_on_a_record_s_path_exists() -> None:
    """Every class that the page lists on the path of a record exists in Java or in Python."""
    sources = [*ROOT.glob("jvm-shim/src/**/*.java"), *ROOT.glob("spark_events/**/*.py")]
    defined = set(re.findall(r"\bclass (\w+)", "\n".join(path.read_text(encoding="utf-8") for path in sources)))
    named = [name for step in _STEP.findall(_TEXT) for name in re.findall(r"`(\w+)`", step)]
    assert len(named) >= 25
    assert [name for name in named if name not in defined] == []


def test_a_record_passes_at_most_20_steps() -> None:
    """A record passes through at most 20 steps. A step is one class or one of several alternative classes."""
    assert len(_STEP.findall(_TEXT)) <= 20
