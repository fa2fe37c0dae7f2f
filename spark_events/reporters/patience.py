"""Waiting for what another holds, without blocking the thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["until"]

#: How long to wait before it is tried again, in seconds: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


async def until(done: Callable[[], bool]) -> None:
    """Tries until it is done, with growing pauses; whoever awaits this sets the limit."""
    pause = _FIRST_PAUSE
    while not done():
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
