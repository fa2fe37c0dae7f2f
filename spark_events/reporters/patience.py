"""Polling for a busy resource without blocking the thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["until"]

#: Seconds before the first retry, and the longest pause between retries.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


async def until(done: Callable[[], bool]) -> None:
    """Call ``done`` with growing pauses until it returns True.

    There is no timeout: the caller limits the time.
    """
    pause = _FIRST_PAUSE
    while not done():
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
