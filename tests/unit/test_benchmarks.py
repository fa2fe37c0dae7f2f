"""Import the benchmarks, which are too slow to run as tests."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import pytest

from benchmarks import drops, endings, frameworks, otlp_outage, peers

_ALL = sorted(path.stem for path in Path(__file__).parents[2].glob("benchmarks/[a-z]*.py"))


@pytest.mark.parametrize("name", _ALL)
def test_every_benchmark_can_be_imported(name: str) -> None:
    """Every benchmark can be imported. If a function that a benchmark uses is renamed, this test fails."""
    assert callable(importlib.import_module(f"benchmarks.{name}").run)


def test_an_overhead_is_a_median_of_ratios_of_the_same_round() -> None:
    """A round that slows both variants keeps its ratio. The table says "at least" only if a run reached the limit."""
    base = [
        peers.Measured(1, 1, 1, 100, 10, 1),
        peers.Measured(4, 4, 4, 100, 40, 1),
        peers.Measured(1, 1, 1, 100, 10, 1),
    ]
    slower = [one._replace(jobs=one.jobs * 1.5, stop=2.0) for one in base]
    stuck = [one._replace(run=peers._SECONDS, stop=90.0) for one in base]
    cut = peers.Measured(math.nan, math.nan, math.nan, math.nan, peers._SECONDS, math.nan)
    cases = {"no listener": base, "slower": slower, "stuck": stuck, "unfinished": [base[0], base[1], cut]}
    _, _, *rows = peers._table(cases)
    assert rows[0] == "| no listener | 1.0 s | 1.0 s | 1.0 s | 100 MB | 10.0 s | 1.0 s |"
    assert rows[1].startswith("| slower | × 1.50 | × 1.00 | ")
    assert rows[1].endswith(" | 2.0 s |")
    assert rows[2].endswith(" | at least 90.0 s |")
    assert rows[3] == f"| unfinished | {'not ended | ' * 4}at least {peers._SECONDS} s | – |"


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


def test_a_ratio_to_enrich_is_a_median_over_rounds() -> None:
    """A run that reached the time limit is marked, and rows without an answer are listed."""

    def runs(*goodputs: float, is_cut: bool = False) -> list[frameworks.Result]:
        return [frameworks.Result(goodput, 3, 20, is_cut) for goodput in goodputs]

    _, _, ours, other = frameworks._table({"tail": {"enrich": runs(100, 50, 100), "x": runs(50, 50, 60, is_cut=True)}})
    assert ours.startswith("| tail | enrich | 100 | 1.00 |")
    assert other.startswith("| tail | x | 50 | 0.60 (0.50 to 1.00) | 3 of 1,000, not ended after 20 s |")


def test_a_variant_that_drops_failures_shows_it() -> None:
    """Delivered events are counted relative to the wanted events: with a filter, only failures are wanted."""
    rows = drops._table({"sync": [drops.Found(3000, 59, 1.5, 4.0)], "filter=WARN": [drops.Found(60, 60, 0.0, 3.0)]})
    assert rows[2] == "| sync | 50% of 6,000 | 3,000 | 59 of 60 | 1.5 s | 4.0 s |"
    assert rows[3] == "| filter=WARN | 100% of 60 | 0 | 60 of 60 | 0.0 s | 3.0 s |"


def test_a_shutdown_at_the_limit_is_a_lower_bound() -> None:
    lost = {(side, rate): [(100, 7)] for side in otlp_outage._SIDES for rate in otlp_outage._RATES}
    took = {side: [10.0] for side in otlp_outage._SIDES} | {otlp_outage._SDK: [otlp_outage._LIMIT]}
    _, _, ours, _, sdk = otlp_outage._table(lost, took)
    assert ours == "| spark-events | 7 of 100 | 7 of 100 | 10.0 s | 0.08 |"
    assert sdk.endswith(" | at least 120.0 s | 1.00 |")
