"""Warnings about a reporter's queue that is nearly full."""

from __future__ import annotations

from collections.abc import Callable

from spark_events.dispatch.tally import Tally

#: Fraction of the queue's capacity that causes a warning, and the lower one at which the warning is over. A queue that
#: varies around the first number causes one warning.
NEARLY_FULL, HALF_FULL = 0.9, 0.5


class Fullness:
    """Notice when a queue becomes nearly full, and when it is half empty again.

    A burst may fill the queue of a fast reporter for a moment. The dispatcher then waits for this reporter and drops
    nothing, so the queue counts as nearly full only if the reporter has settled no batch since the last check, or was
    not fast.

    Args:
        measure: returns the fraction of the capacity that is in use; may exceed 1.
        tally: counts the reporter's batches.
        on_change: called with the fraction when the queue has become nearly full (True), and when that is over (False).
    """

    def __init__(self, measure: Callable[[], float], tally: Tally, on_change: Callable[[bool, float], None]) -> None:
        self._measure = measure
        self._tally = tally
        self._on_change = on_change
        self._batches = 0
        self._is_nearly_full = False

    def check(self) -> None:
        """Compare the queue with the limits; called on the watch thread."""
        fraction, batches = self._measure(), self._tally.batches
        keeps_up = self._tally.is_quick and batches > self._batches
        self._batches = batches
        if fraction <= HALF_FULL if self._is_nearly_full else fraction >= NEARLY_FULL and not keeps_up:
            self._is_nearly_full = not self._is_nearly_full
            self._on_change(self._is_nearly_full, fraction)
