"""The user's rate limit of one task."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from spark_events.enrichment.engine.limiter import PASS, Attempt, Permit

__all__ = ["RateLimit"]


class RateLimit:
    """Limit that spaces attempts evenly and never exceeds the rate within any second.

    Each attempt reserves the next free time and sleeps until then (the generic cell rate algorithm without bursts). On
    a busy machine, sleeps end late, and attempts could bunch. Therefore the limit stores the actual start times of
    the last second, and an attempt that would exceed the rate waits longer. The limit outlives tasks. Times that a task
    has reserved but not used are released when the task ends, so that the next task does not wait for them.

    A rate applies to one task slot of the cluster. The tasks of a slot run one after another, each in any free worker
    process. Therefore this process may not know the previous task's attempts. Each task waits one interval from its own
    start, because the previous task made all its attempts before this start.

    Args:
        rate: attempts per second, above 0; may be a fraction.
        clock: monotonic time in seconds.
    """

    limits, until, is_timed, min_wait = True, 0.0, False, 0.001
    cause = "rate_limit"

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        most = max(1, int(rate))
        self._interval = 1.0 / rate
        self._period = most / rate
        self._clock = clock
        self._free = clock()
        self._began: deque[float] = deque([self._free - self._period] * most, maxlen=most)

    def begin(self, moment: float) -> None:
        """Record the start of a task, in seconds of ``clock``.

        The task's first attempt starts at least one interval later. Each task must call this method; otherwise its
        first attempt may directly follow the last attempt of the previous task.
        """
        self._free = max(self._free, moment + self._interval)

    async def wait(self) -> None:
        """Wait until the next attempt may start; the attempt counts as started when this method returns."""
        now = self._clock()
        mine = max(self._free, now)
        self._free = mine + self._interval
        try:
            while (due := max(mine, self._began[0] + self._period)) > now:
                await asyncio.sleep(due - now)
                now = self._clock()
        except asyncio.CancelledError:
            self._free -= self._interval
            raise
        self._began.append(now)

    async def enter(self, attempt: Attempt) -> Permit:
        """Wait until the attempt may start."""
        await self.wait()
        return PASS
