"""Tests of the window's reaction to a jump of the latency; the simulations of `test_adaptive` test its course."""

from __future__ import annotations

import pytest

from spark_events.enrichment.engine.window import Window
from spark_events.enrichment.settings import Auto


def after_rounds(*rounds: float) -> list[int]:
    """Return the sizes of a window with a first size of 200 after rounds whose calls have these latencies."""
    window, now, sizes = Window(Auto(max=200, initial=200)), 0.0, []
    for latency in rounds:
        window.begin(now)
        window.latencies += [latency] * window.need
        now += latency
        window.turn()
        sizes.append(window.size)
    return sizes


@pytest.mark.parametrize(("jump", "size"), [(90, 21), (26, 39), (5, 89), (3, 127)])
def test_a_jump_of_the_latency_shrinks_the_window(jump: float, size: int) -> None:
    """After a large jump, the window shrinks by the square root of the jump; after a smaller jump, by one step."""
    assert after_rounds(0.03, 0.03, 0.03) == [200, 100, 200]
    assert after_rounds(0.03, 0.03, 0.03, 0.03 * jump)[-1] == size


def test_the_next_trial_compares_with_the_latency_after_a_large_jump() -> None:
    """The calls of the smaller window are as fast as before the jump, so a smaller window is tried against them."""
    assert after_rounds(0.03, 0.03, 0.03, 2.7, 0.03)[3:] == [21, 13]


def test_a_trial_is_as_long_as_the_round_before_it() -> None:
    """A round of one window of calls favors fast calls, so a trial after two windows also needs two."""
    window = Window(Auto(max=40, initial=40))
    for windows in (1, 2):
        window.begin(0)
        window.latencies += [0.03] * (windows * window.size)
        window.turn()
    assert window.size < 40
    assert window.need == 2 * window.size
