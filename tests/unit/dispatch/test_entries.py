"""What is held is bounded by its size, too."""

from __future__ import annotations

import pytest

from spark_events.dispatch.entries import WEIGHT_BYTES, weight_for


@pytest.mark.parametrize(
    ("size", "weight"),
    [(0, 1), (1, 1), (WEIGHT_BYTES - 1, 1), (WEIGHT_BYTES, 2), (2 * WEIGHT_BYTES, 3), (20 * WEIGHT_BYTES + 1, 21)],
)
def test_an_event_takes_a_place_and_another_for_each_so_many_bytes(size: int, weight: int) -> None:
    """As documented: one, and another one for each 32 KB."""
    assert WEIGHT_BYTES == 32 * 1024
    assert weight_for(size) == weight
