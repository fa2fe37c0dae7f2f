"""The clocks of this process, which tests replace, and the start of the machine.

Durations are differences of the monotonic clock. The wall clock is for times that people read: it may be set back or
ahead at any moment, and the wall clocks of other machines may differ by any amount.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Clocks(NamedTuple):
    """Wall clock, in seconds since the epoch, and monotonic clock, in seconds."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic

    def wall_millis(self) -> int:
        """Return the wall clock in milliseconds since the epoch, as in events."""
        return round(self.wall() * 1000)


#: The clocks of this machine.
SYSTEM = Clocks()


class UnjumpedWall:
    """Wall clock that no jump sets ahead: at most its first value, plus the monotonic time since then.

    Args:
        clocks: the clocks of this process.
    """

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._origin = clocks.wall() - clocks.monotonic()

    def millis(self) -> int:
        """Return milliseconds since the epoch."""
        return round(min(self._clocks.wall(), self._origin + self._clocks.monotonic()) * 1000)


#: A smaller difference is the drift of the wall clock, or the time between two readings.
_STEP_SECONDS = 1.0


class ClockSteps:
    """Detects that the wall clock was set, by the monotonic clock.

    Args:
        clocks: the clocks of this process.
    """

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._offset = clocks.wall() - clocks.monotonic()

    def take(self) -> int:
        """Return by how many milliseconds the wall clock was set ahead since the last call; negative: back; 0: not."""
        offset = self._clocks.wall() - self._clocks.monotonic()
        step, self._offset = offset - self._offset, offset
        return round(step * 1000) if abs(step) >= _STEP_SECONDS else 0


def boot() -> str:
    """Identify the start of this machine, from which its monotonic clock counts; '' if unknown.

    Containers on one machine have the same value.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
