"""Places of the window, each of which allows one call in flight."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from spark_events.enrichment.engine.back_off import spread
from spark_events.enrichment.engine.shared_window import SharedWindow
from spark_events.enrichment.engine.timeouts import Runner
from spark_events.enrichment.engine.window import Window

__all__ = ["Places"]


class Places:
    """Runners of a pool that hold a place; used by the loop's thread only.

    A runner whose row waits because of ``Retry-After`` lends its place to another runner. Afterwards, it takes the next
    place that becomes free, before new rows.

    Args:
        window: the number of places.
        most_lent: maximum number of lent places, which bounds the number of runners.
        jitter: fraction by which the time that a runner keeps its place differs from the latency, at random.

    Attributes:
        runners: all runners.
        surplus: number of runners that must end after their row, because there are not enough places.
    """

    def __init__(self, window: Window | SharedWindow, most_lent: int, jitter: float) -> None:
        self.runners: set[Runner] = set()
        self.surplus = 0
        self._window = window
        self._most_lent = most_lent
        self._jitter = jitter
        self._lent = 0
        self._returning: deque[asyncio.Future[None]] = deque()
        self._on_free: Callable[[], None] = lambda: None

    def on_free(self, listener: Callable[[], None]) -> None:
        """Call a function when a runner has lent its place."""
        self._on_free = listener

    @property
    def taken(self) -> int:
        """Number of runners that hold a place."""
        return len(self.runners) - self._lent

    @property
    def free(self) -> int:
        """Number of further runners that may start."""
        return self._window.size - self.taken - len(self._returning)

    def update(self) -> None:
        """Give free places to runners that have lent theirs, and count the surplus; after each change."""
        while self._returning and self.taken < self._window.size:
            waiting = self._returning.popleft()
            if not waiting.done():
                self._lent -= 1
                waiting.set_result(None)
        self.surplus = max(0, -self.free)

    async def lend(self, seconds: float) -> None:
        """Wait for a number of seconds, and then for a place.

        The runner keeps its place for the latency of a call. Otherwise, a call that the destination rejects at once
        would start the next one at once.
        """
        kept = min(seconds, spread(self._window.latency, self._jitter))
        await asyncio.sleep(kept)
        if kept == seconds or self._lent >= self._most_lent:
            await asyncio.sleep(seconds - kept)
            return
        self._lent += 1
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.update()
        self._on_free()
        try:
            await asyncio.sleep(seconds - kept)
            self._returning.append(waiting)
            self.update()
            await waiting
        finally:
            if not waiting.done() or waiting.cancelled():
                waiting.cancel()
                self._lent -= 1
                self.update()
