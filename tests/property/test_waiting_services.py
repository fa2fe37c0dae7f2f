"""Tests of the pace at services that say when to come back, that have little capacity, or that are slow."""

from __future__ import annotations

import pytest
from waiting_services import CASES


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_the_pace_is_close_to_that_of_the_best_fixed_setting(name: str, seed: int) -> None:
    """No row is lost, few calls are rejected, and the goodput is close to that of the best fixed setting."""
    case = CASES[name]
    ratio, found = case.run(seed)
    assert ratio >= case.least
    assert found.calls <= case.most_calls
    assert found.failed == 0
