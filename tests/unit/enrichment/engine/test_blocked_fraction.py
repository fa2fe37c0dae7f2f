"""Tests of the fraction of time for which calls block the event loop."""

from __future__ import annotations

import pytest

from spark_events.enrichment.engine.blocked_fraction import BlockedFraction, BlockedFractionTuning


@pytest.mark.parametrize(
    ("samples", "seconds", "found"),
    [
        (["a"] * 20, 0.1, "a"),
        (["a", "b", "a"] * 7, 0.1, "a"),
        (["a", None, "a"] * 7, 0.1, "a"),
        ([None] * 20, 0.1, None),
        (["a", None] * 10, 0.1, None),
        (["a"] * 19, 0.1, None),
        # A process that takes few samples has no evidence.
        (["a"] * 9, 1.0, None),
    ],
)
def test_the_line_that_blocks_most(samples: list[str | None], seconds: float, found: str | None) -> None:
    """A line is named if calls blocked the loop for more than half of a window with enough samples."""
    fraction = BlockedFraction(BlockedFractionTuning())
    named = [line for sample in samples if (line := fraction.add(seconds, sample)) is not None]
    assert named == ([found] if found else [])


@pytest.mark.parametrize(("lasting", "found"), [(10, "a"), (8, "a"), (7, None), (0, None)])
def test_short_calls_count_if_some_calls_last(lasting: int, found: str | None) -> None:
    """Calls of 20 ms last in half of the samples; calls that only wait for the GIL never last."""
    fraction = BlockedFraction(BlockedFractionTuning())
    named = [fraction.add(0.1, "a", lasts=number < lasting) for number in range(20)]
    assert named == [None] * 19 + [found]


def test_each_window_is_judged_by_itself() -> None:
    fraction = BlockedFraction(BlockedFractionTuning(period_seconds=3.0, least_samples=3))
    given = ["a", "a", "a", None, None, None, "b", "b", None]
    assert [fraction.add(1.0, one) for one in given] == [None, None, "a", None, None, None, None, None, "b"]
