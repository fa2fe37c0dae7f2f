"""Import the benchmarks, which are too slow to run as tests."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

_ALL = sorted(path.stem for path in Path(__file__).parents[2].glob("benchmarks/[a-z]*.py"))


@pytest.mark.parametrize("name", _ALL)
def test_every_benchmark_can_be_imported(name: str) -> None:
    """Every benchmark can be imported, so a renamed function is noticed before the next benchmark run."""
    assert callable(importlib.import_module(f"benchmarks.{name}").run)
