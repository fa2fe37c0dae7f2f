"""Gate before a destination that has asked for a pause, or that was down.

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
from collections.abc import Callable

from spark_events.enrichment.engine.limiter import Attempt, Permit
from spark_events.enrichment.engine.waiting import WaitingAttempts

__all__ = ["Gate"]


class Gate:
    """Gate that delays attempts while closed; used by the loop's thread only.

    Attributes:
        is_open: whether attempts may pass without waiting.
        limits: the opposite.
        until: the time of ``clock`` at which the gate begins to open.
    """

    is_timed, min_wait = True, 0.001

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_open, self.limits = True, False
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
        self.is_open, self.limits = False, True
        self.until = until
        self._closing += 1
        self._inside = 0
        self._allowed = 0.0
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)
        return is_new

    @property
    def cause(self) -> str:
        """The reason for which attempts wait."""
        return "" if self.is_open else "service"

    async def enter(self, attempt: Attempt) -> Permit:
        """Wait until the attempt may pass."""
        give_back = functools.partial(self._leave, answered=False)
        passed = await self._waiting.wait(again=attempt.overtakes, admit=self._let_through, undo=give_back)
        return _Passed(self, passed)

    def _leave(self, passed: int, *, answered: bool) -> None:
        if passed != self._closing or self.is_open:
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
                    self.is_open, self.limits = True, False
                    self._allowed = 0.0
                return
            self._inside += 1
            waiting.set_result(self._closing)


class _Passed(Permit):
    """Permission of an attempt that has passed the gate since its closing with this number."""

    __slots__ = ("_closing", "_gate")

    def __init__(self, gate: Gate, closing: int) -> None:
        self._gate = gate
        self._closing = closing

    @property
    def is_valid(self) -> bool:
        return self._gate.is_open or self._closing == self._gate._closing

    def end(self, *, answered: bool) -> None:
        self._gate._leave(self._closing, answered=answered)

    def give_back(self) -> None:
        self._gate._leave(self._closing, answered=False)
