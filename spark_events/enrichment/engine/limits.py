"""Attempts a second."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

__all__ = ["RateLimit"]


class RateLimit:
    """Spaces attempts evenly, and lets no second hold more of them than the rate.

    Each attempt reserves the next free moment and sleeps until then (the generic cell rate algorithm without a burst).
    Sleeps that end late, on a busy machine, would bunch attempts; so the moments at which they really began are kept
    for a second, and whoever would be one too many waits on. It is kept from task to task: the moments that a task had
    reserved and did not use when it ended are given back, so that the next one does not wait for nobody.

    A rate is of one place in the cluster, where tasks run one after the other, each in whichever worker process is
    free. What the task before has done may have been done in another one, that nobody here has heard of. Therefore a
    task waits out an interval from its own beginning: every attempt of the task before was made until then.

    Args:
        rate: attempts a second, above 0; may be a fraction.
        clock: seconds, monotonic.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        most = max(1, int(rate))
        self._interval = 1.0 / rate
        self._window = most / rate
        self._clock = clock
        self._free = clock()
        self._began: deque[float] = deque([self._free - self._window] * most, maxlen=most)

    def begin(self, moment: float) -> None:
        """A task has begun, at this moment of ``clock``: its first attempt comes an interval later, if not after that.

        Each task must say so, or its first attempt follows the last one of the task before at once.
        """
        self._free = max(self._free, moment + self._interval)

    async def wait(self) -> None:
        """Until the next attempt may be made; it counts as begun when this returns."""
        now = self._clock()
        mine = max(self._free, now)
        self._free = mine + self._interval
        try:
            while (due := max(mine, self._began[0] + self._window)) > now:
                await asyncio.sleep(due - now)
                now = self._clock()
        except asyncio.CancelledError:
            self._free -= self._interval
            raise
        self._began.append(now)
