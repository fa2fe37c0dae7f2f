"""Tests of the warning about a queue that is nearly full."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spark_events.dispatch.fullness import Fullness
from spark_events.dispatch.tally import Tally

_QUICK, _SLOW = 0.001, 1.0


@pytest.mark.parametrize(
    ("checks", "changes"),
    [
        ([(0.89, [])], []),
        ([(0.9, [])], [True]),
        ([(1.3, []), (0.95, []), (0.51, []), (0.9, [])], [True]),
        ([(0.9, []), (0.5, []), (0.89, [])], [True, False]),
        ([(0.9, []), (0.5, []), (0.9, [])], [True, False, True]),
        ([(1.0, [_QUICK]), (1.0, [_QUICK])], []),
        ([(1.0, [_QUICK]), (1.0, [])], [True]),
        ([(1.0, [_SLOW])], [True]),
        ([(1.0, [_SLOW]), (1.0, [_QUICK]), (0.6, [_QUICK])], [True]),
    ],
    ids=[
        "below the limit",
        "at the limit",
        "above half",
        "at half",
        "twice",
        "a fast reporter keeps up",
        "a fast reporter hangs",
        "a slow reporter",
        "over only at half",
    ],
)
def test_a_queue_is_nearly_full(checks: Sequence[tuple[float, Sequence[float]]], changes: Sequence[bool]) -> None:
    """A queue is nearly full from 90 % down to 50 %, unless its reporter keeps up.

    Each check has the share in use, and the durations of the batches that were settled before it.
    """
    tally, share, seen = Tally(), 0.0, list[bool]()
    fullness = Fullness(lambda: share, tally, lambda is_full, _: seen.append(is_full))
    for share, batches in checks:  # noqa: B007
        for seconds in batches:
            tally.settled(seconds)
        fullness.check()
    assert seen == changes


def test_the_quantiles_of_the_latency() -> None:
    """The median and the 99th percentile cover the last 512 batches."""
    tally = Tally()
    assert tally.quantiles() == (0.0, 0.0)
    for number in range(1000):
        tally.settled(0.0 if number < 488 else (number - 487) / 512)
    assert tally.quantiles() == pytest.approx((257 / 512, 507 / 512))
