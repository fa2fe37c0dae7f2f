"""Attempts a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["RateLimit"]


class RateLimit:
    """Spaces attempts evenly: the generic cell rate algorithm without a burst, so that any second holds the rate.

    Each attempt reserves the next free moment and sleeps until then. A sleep that ends late delays its own attempt,
    not the ones behind it.

    Args:
        rate: attempts a second.
        clock: seconds, monotonic.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1.0 / rate
        self._clock = clock
        self._free = clock()

    async def wait(self) -> None:
        """Until the next attempt may be made."""
        now = self._clock()
        mine = max(self._free, now)
        self._free = mine + self._interval
        if mine > now:
            await asyncio.sleep(mine - now)
