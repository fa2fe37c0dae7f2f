"""Import the benchmarks, which are too slow to run as tests."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from benchmarks import endings, peers

_ALL = sorted(path.stem for path in Path(__file__).parents[2].glob("benchmarks/[a-z]*.py"))


@pytest.mark.parametrize("name", _ALL)
def test_every_benchmark_can_be_imported(name: str) -> None:
    """Every benchmark can be imported, so that renaming a function it uses fails a test."""
    assert callable(importlib.import_module(f"benchmarks.{name}").run)


def test_an_overhead_is_a_median_of_ratios_of_the_same_round() -> None:
    """A slow round slows down both compared variants. The result says "at least" only if a run reached the limit."""
    base = [
        peers.Measured(1, 1, 1, 100, 10, 1),
        peers.Measured(4, 4, 4, 100, 40, 1),
        peers.Measured(1, 1, 1, 100, 10, 1),
    ]
    slower = [one._replace(jobs=one.jobs * 1.5, stop=2.0) for one in base]
    stuck = [one._replace(run=peers._SECONDS, stop=90.0) for one in base]
    _, _, *rows = peers._table({"no listener": base, "slower": slower, "stuck": stuck})
    assert rows[0] == "| no listener | 1.0 s | 1.0 s | 1.0 s | 100 MB | 10.0 s | 1.0 s |"
    assert rows[1].startswith("| slower | × 1.50 | × 1.00 | ")
    assert rows[1].endswith(" | 2.0 s |")
    assert rows[2].endswith(" | at least 90.0 s |")


@pytest.mark.parametrize(
    ("how", "outcome", "mark"),
    [
        ("success", "finished", "✓"),
        ("caught exception", "failed", "✗"),
        ("exception", "finished", "✗"),
        ("exception", None, "–"),
        ("kill -9", "killed", "✓"),
    ],
)
def test_a_statement_is_right_wrong_or_open(how: str, outcome: str | None, mark: str) -> None:
    assert endings._mark(endings._ENDINGS[how], endings.Statement(outcome, "words", True)) == f"{mark} words; cause"
