"""What holds attempts back: the gate before a destination, and the rate limit.

The gate is closed for as long as the destination asks (``Retry-After``), and opens step by step. A pool of hundreds
would come back at once and be refused again, until rows have used up their attempts. So the first call goes alone, and
each one that is answered lets two follow, up to half of what was too many the last time; from there it grows by one for
each round: TCP's slow start and congestion avoidance. A circuit breaker that lets one call through to see is the same
thing, so one gate serves both.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable

__all__ = ["Gate", "RateLimit"]


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


class Gate:
    """Lets attempts through; for the loop's thread alone.

    Attributes:
        is_open: whether an attempt may pass without asking.
        until: when it opens, of ``clock``; in the past when it has begun to.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_open = True
        self.until = 0.0
        self._clock = clock
        self._again: deque[asyncio.Future[int]] = deque()
        self._first: deque[asyncio.Future[int]] = deque()
        self._allowed = 0.0
        self._threshold = math.inf
        self._inside = 0
        # Every closing has a number, so that who passed before it is not taken for one that passed after.
        self._closing = 0
        self._timer: asyncio.TimerHandle | None = None

    def close(self, seconds: float, *, crowded: bool) -> bool:
        """Lets nothing through for that long, from now; a longer closing that is under way stays.

        Args:
            seconds: how long.
            crowded: it was asked too much, so that fewer should come back than were there.

        Returns:
            Whether it has let attempts through until now; if not, it only stays closed for longer, or not even that.
        """
        if crowded and self._allowed:
            # Once for each opening: the other calls that were refused with this one say nothing new.
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
        """Whether an attempt may be made with what :meth:`enter` returned; it may have closed again since."""
        return self.is_open or (passed != 0 and passed == self._closing)

    async def enter(self, *, again: bool) -> int:
        """Waits until an attempt may pass; those that have failed before come first.

        Returns:
            What :meth:`leave` wants to have back; 0 when the gate is open.
        """
        if self.is_open:
            return 0
        waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        (self._again if again else self._first).append(waiting)
        self._let_through()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                # Let through and cancelled at once: its place is free for the next.
                self.leave(waiting.result(), answered=False)
            raise

    def leave(self, passed: int, *, answered: bool) -> None:
        """An attempt has ended.

        Args:
            passed: what :meth:`enter` returned.
            answered: the destination took it.
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
            waiting = self._again or self._first
            if not waiting:
                if self._inside == 0 or self._allowed >= 2:
                    # Nobody is held back any more.
                    self.is_open = True
                    self._allowed = 0.0
                return
            one = waiting.popleft()
            if not one.done():
                self._inside += 1
                one.set_result(self._closing)
