"""One clock for all calls: ``asyncio.timeout`` around each would cost more than all the rest of the engine.

Every worker has a slot with the time at which its present step must be over. The sweeper looks through the slots when
the earliest of these times has come, so nothing is set or removed for a call but one number.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

from spark_events.enrichment.engine.calls import Call, RowBatch

__all__ = ["GRACE_SECONDS", "PoolWorker", "Slot", "Sweeper"]

#: What a cancelled call may take to unwind; after that nobody waits for it any more.
GRACE_SECONDS = 1.0
#: Between two looks: at least, for looking costs; at most, for the loop's heart must be heard.
_LEAST_SECONDS = 0.002
_MOST_SECONDS = 0.1
#: A look so much later than it was meant for: something blocked the loop.
_STALL_SECONDS = 0.1


class Slot:
    """A worker of the pool, and what it is doing.

    Attributes:
        task: the worker.
        batch: of the row that it is at; None before its first.
        index: of that row.
        made: the call that it is at; None: one for that row alone, which nobody has asked for yet.
        deadline: when its present step must be over; infinite: never.
        why: why the engine cancelled it; None: it did not.
        cancelled: somebody did, perhaps the call itself, and nobody has looked yet what became of it.
        abandoned: nobody waits for it any more; should it come back, it must touch nothing.
        passed: what the gate gave it.
        started: of the first attempt.
        attempted: of the present attempt.
    """

    __slots__ = (
        "abandoned", "attempted", "batch", "cancelled", "deadline", "index", "made", "passed", "started", "task", "why",
    )  # fmt: skip

    def __init__(self) -> None:
        self.cancelled = False
        self.task: asyncio.Task[None] | None = None
        self.batch: RowBatch | None = None
        self.index = 0
        self.made: Call | None = None
        self.deadline = math.inf
        self.why: Literal["timeout", "down"] | None = None
        self.abandoned = False
        self.passed = 0
        self.started = 0.0
        self.attempted = 0.0

    def call(self) -> Call:
        """What it is at."""
        if self.made is None:
            assert self.batch is not None
            self.made = Call(self.batch, self.index)
        return self.made

    def cancel(self, why: Literal["timeout", "down"], now: float) -> None:
        """Ends its present step; it has ``GRACE_SECONDS`` for that."""
        if self.why is None and self.task is not None:
            self.why = why
            self.deadline = now + GRACE_SECONDS
            self.task.cancel()

    def revive(self) -> None:
        """The step has ended as it was told to; the worker goes on."""
        self.why = None
        self.deadline = math.inf
        self.cancelled = False
        self.uncancel()

    def uncancel(self) -> None:
        """However often it was cancelled: what is left would be the next row's."""
        task: Any = self.task
        if hasattr(task, "uncancel"):  # since Python 3.11
            while task.cancelling():
                task.uncancel()


class PoolWorker(asyncio.Task[None]):
    """A worker's task. It tells its slot of every cancellation, for a call may cancel whatever runs on its loop."""

    slot: Slot

    def cancel(self, msg: Any | None = None) -> bool:
        """As of any task."""
        self.slot.cancelled = True
        return super().cancel(msg)


class Sweeper:
    """Cancels what is over its time.

    Args:
        slots: all that are at work.
        shortest: the shortest time that a deadline may lie ahead when it is set; None: none is ever set.
        abandon: called for a slot that has not come back in its grace.
        beat: called at each look: the loop turns.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        slots: Iterable[Slot],
        shortest: float | None,
        abandon: Callable[[Slot], None],
        beat: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = slots
        self._rest = min(_MOST_SECONDS, shortest or math.inf)
        self._abandon = abandon
        self._beat = beat
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._meant_for = 0.0

    def start(self) -> None:
        """On the loop that it is to run on."""
        self._set(self._rest)

    def stop(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, seconds: float) -> None:
        self._meant_for = self._clock() + seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._beat()
        now = self._clock()
        if now - self._meant_for > _STALL_SECONDS:
            # Answers may have come while the loop stood still: they are read first. A blocked loop is not the
            # destination's slowness.
            self._set(_LEAST_SECONDS)
            return
        earliest = now + self._rest
        for slot in list(self._slots):
            if slot.deadline > now:
                earliest = min(earliest, slot.deadline)
            elif slot.why is None:
                slot.cancel("timeout", now)
            else:
                slot.deadline = math.inf
                self._abandon(slot)
        self._set(max(_LEAST_SECONDS, earliest - now))
