"""What is held is bounded by its size, too."""

from __future__ import annotations

import pytest

from spark_events.dispatch.entries import PLACE_BYTES, places_for


@pytest.mark.parametrize(
    ("size", "places"),
    [(0, 1), (1, 1), (PLACE_BYTES - 1, 1), (PLACE_BYTES, 2), (2 * PLACE_BYTES, 3), (20 * PLACE_BYTES + 1, 21)],
)
def test_an_event_takes_a_place_and_another_for_each_so_many_bytes(size: int, places: int) -> None:
    """As documented: one, and another one for each 32 KB."""
    assert PLACE_BYTES == 32 * 1024
    assert places_for(size) == places
