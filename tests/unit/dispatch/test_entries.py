"""Tests of the weight of events, which depends on their size."""

from __future__ import annotations

import pytest

from spark_events.dispatch.entries import WEIGHT_BYTES, weight_for


@pytest.mark.parametrize(
    ("size", "weight"),
    [(0, 1), (1, 1), (WEIGHT_BYTES - 1, 1), (WEIGHT_BYTES, 2), (2 * WEIGHT_BYTES, 3), (20 * WEIGHT_BYTES + 1, 21)],
)
def test_the_weight_grows_with_the_size(size: int, weight: int) -> None:
    """The weight of an event is 1, plus 1 for each additional 32 KB, as documented."""
    assert WEIGHT_BYTES == 32 * 1024
    assert weight_for(size) == weight
