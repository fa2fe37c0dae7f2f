"""The benchmarks take long and are not tests, but what they are made of must be there."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

_ALL = sorted(path.stem for path in Path(__file__).parents[2].glob("benchmarks/[a-z]*.py"))


@pytest.mark.parametrize("name", _ALL)
def test_every_benchmark_finds_what_it_measures(name: str) -> None:
    """A name that has moved breaks it here, and not when somebody wants a figure."""
    assert callable(importlib.import_module(f"benchmarks.{name}").run)
