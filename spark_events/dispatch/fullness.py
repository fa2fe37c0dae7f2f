"""Warnings about a reporter's queue that is nearly full."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: Share of the queue's capacity that causes a warning, and the lower share at which the warning is over. A queue that
#: varies around the first number causes one warning.
NEARLY_FULL, HALF_FULL = 0.9, 0.5


class Fullness:
    """Notice when a queue becomes nearly full, and when it is half empty again.

    Each put and each settled batch decides, so that the time of a check does not matter.

    Args:
        measure: returns the share of the capacity that is in use; may exceed 1.
        on_change: called with the share when the queue has become nearly full (True), and when that is over (False).
    """

    def __init__(self, measure: Callable[[], float], on_change: Callable[[bool, float], None]) -> None:
        self._measure = measure
        self._on_change = on_change
        self._lock = threading.Lock()
        self.is_nearly_full = False

    def note(self) -> None:
        """Compare the queue with the limits; any thread may call this method."""
        share = self._measure()
        if (share > HALF_FULL) if self.is_nearly_full else (share < NEARLY_FULL):
            return
        with self._lock:
            share = self._measure()
            was, self.is_nearly_full = (
                self.is_nearly_full,
                share > HALF_FULL and (self.is_nearly_full or share >= NEARLY_FULL),
            )
            if was != self.is_nearly_full:
                self._on_change(self.is_nearly_full, share)
