"""Limits on attempts: the gate before a destination, and the rate limit.

The gate stays closed as long as the destination requests (``Retry-After``), and then opens gradually. If hundreds of
calls resumed at once, the destination would reject them again until their attempts are exhausted. Therefore the gate
first admits one call. Each answered call admits two more, up to half of the number that was too high last time; beyond
this, the number grows by one per round. This is TCP's slow start and congestion avoidance. A circuit breaker that
probes with one call works in the same way, so it uses the same gate.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Gate", "RateLimit", "WaitingAttempts"]

T = TypeVar("T")


class WaitingAttempts(Generic[T]):
    """Queue of waiting attempts; retries have priority over first attempts."""

    def __init__(self) -> None:
        self._again: deque[asyncio.Future[T]] = deque()
        self._first: deque[asyncio.Future[T]] = deque()

    def __bool__(self) -> bool:
        return bool(self._again or self._first)

    def add(self, *, again: bool) -> asyncio.Future[T]:
        """Return the future of a new waiting attempt."""
        waiting: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        (self._again if again else self._first).append(waiting)
        return waiting

    async def wait(self, *, again: bool, admit: Callable[[], object], undo: Callable[[T], object]) -> T:
        """Wait until the attempt is admitted, and return the result of its future.

        Args:
            again: whether the attempt is a retry.
            admit: admits waiting attempts, if possible.
            undo: gives an admission back if the attempt was admitted and cancelled at the same time.
        """
        waiting = self.add(again=again)
        admit()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                undo(waiting.result())
            raise

    def pop(self) -> asyncio.Future[T] | None:
        """Remove and return the next attempt that is not cancelled; None if there is none."""
        while queue := self._again or self._first:
            waiting = queue.popleft()
            if not waiting.done():
                return waiting
        return None


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

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        most = max(1, int(rate))
        self._interval = 1.0 / rate
        self._window = most / rate
        self._clock = clock
        self._free = clock()
        self._began: deque[float] = deque([self._free - self._window] * most, maxlen=most)

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
            while (due := max(mine, self._began[0] + self._window)) > now:
                await asyncio.sleep(due - now)
                now = self._clock()
        except asyncio.CancelledError:
            self._free -= self._interval
            raise
        self._began.append(now)


class Gate:
    """Gate that delays attempts while closed; used by the loop's thread only.

    Attributes:
        is_open: whether attempts may pass without waiting.
        until: the time of ``clock`` at which the gate begins to open.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_open = True
        self.until = 0.0
        self._clock = clock
        self._waiting: WaitingAttempts[int] = WaitingAttempts()
        self._allowed = 0.0
        self._threshold = math.inf
        self._inside = 0
        # Number of the current closing. It distinguishes attempts that passed before the closing from later attempts.
        self._closing = 0
        self._timer: asyncio.TimerHandle | None = None

    def close(self, seconds: float, *, crowded: bool) -> bool:
        """Close the gate for some seconds from now; a longer closing in progress stays in force.

        Args:
            seconds: the duration.
            crowded: whether the destination received too many calls; fewer calls then resume.

        Returns:
            Whether the gate was open until now; False if it was already closed.
        """
        if crowded and self._allowed:
            # Count only once per opening, because further rejections of calls from the same opening contain no new
            # information.
            self._threshold = max(1.0, self._allowed / 2)
            self._allowed = 0.0
        now = self._clock()
        until = now + seconds
        if not self.is_open and self.until >= until:
            return False
        is_new = self.is_open or self.until <= now
        self.is_open = False
        self.until = until
        self._closing += 1
        self._inside = 0
        self._allowed = 0.0
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)
        return is_new

    def lets(self, passed: int) -> bool:
        """Return whether an attempt may start with a token from :meth:`enter`; the gate may have closed since then."""
        return self.is_open or (passed != 0 and passed == self._closing)

    async def enter(self, *, again: bool) -> int:
        """Wait until an attempt may pass; retries have priority over first attempts.

        Returns:
            A token for :meth:`leave`; 0 if the gate is open.
        """
        if self.is_open:
            return 0
        give_back = functools.partial(self.leave, answered=False)
        return await self._waiting.wait(again=again, admit=self._let_through, undo=give_back)

    def leave(self, passed: int, *, answered: bool) -> None:
        """Record that an attempt has finished.

        Args:
            passed: the token from :meth:`enter`.
            answered: whether the destination answered.
        """
        if passed == 0 or passed != self._closing or self.is_open:
            return
        self._inside -= 1
        if answered:
            self._allowed += 1 if self._allowed < self._threshold else 1 / self._allowed
        self._let_through()

    def _begin(self) -> None:
        self._allowed = 1.0
        self._let_through()

    def _let_through(self) -> None:
        while self._inside + 1 <= self._allowed:
            waiting = self._waiting.pop()
            if waiting is None:
                if self._inside == 0 or self._allowed >= 2:
                    self.is_open = True
                    self._allowed = 0.0
                return
            self._inside += 1
            waiting.set_result(self._closing)
