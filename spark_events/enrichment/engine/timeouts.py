"""One timer for the timeouts of all calls; an ``asyncio.timeout`` per call would cost more than the engine.

A runner has the time at which its current step expires. A call only sets this number; the sweeper scans all runners at
the earliest of these times.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

from spark_events.enrichment.engine.calls import Call, RowBatch
from spark_events.enrichment.engine.limiter import Limiter, Permit

__all__ = ["Runner", "RunnerTask", "Sweeper", "TimeoutTuning"]


@dataclasses.dataclass(frozen=True, slots=True)
class TimeoutTuning:
    """Times of the scans and of cancelled calls.

    Attributes:
        grace_seconds: time in which a cancelled call must end; afterwards, the engine abandons the call.
        stop_seconds: time in which a run must end. It exceeds the grace period; a blocked loop would never stop.
        min_interval: minimum time between two scans, in seconds.
        max_interval: maximum time between two scans, in seconds. A scan costs time, but it is also the heartbeat of the
            loop.
        stall_seconds: time by which a scan is late if the loop was blocked.
        max_skipped: maximum number of such scans that are skipped in a row. An answer that arrived meanwhile needs a
            few iterations of the loop until its call returns.
    """

    grace_seconds: float = 1.0
    stop_seconds: float = 2.0
    min_interval: float = 0.002
    max_interval: float = 0.1
    stall_seconds: float = 0.1
    max_skipped: int = 3


class Runner:
    """State of one asyncio task of the pool, which makes one call after another.

    Attributes:
        task: the runner's task.
        batch: the batch of the current row; None before the first row.
        index: the index of the current row in its batch.
        made: the current call; None for a call for one row whose object does not exist yet.
        expires: time at which the current step exceeds its timeout; infinite: no timeout.
        why: the reason why the engine cancelled the step; None if it did not.
        cancelled: whether the task was cancelled, by any code, and the cancellation has not been handled yet.
        abandoned: whether the engine no longer waits for the call. If the call returns later, its result must be
            ignored.
        permits: the permits of the attempt, by limiter.
        started: start time of the first attempt.
        attempted: start time of the current attempt.
    """

    __slots__ = (
        "abandoned", "attempted", "batch", "cancelled", "expires", "index", "made", "permits", "started", "task",
        "why",
    )  # fmt: skip

    def __init__(self) -> None:
        self.cancelled = False
        self.task: asyncio.Task[None] | None = None
        self.batch: RowBatch | None = None
        self.index = 0
        self.made: Call | None = None
        self.expires = math.inf
        self.why: Literal["timeout", "down"] | None = None
        self.abandoned = False
        self.permits: dict[Limiter, Permit] = {}
        self.started = 0.0
        self.attempted = 0.0

    def call(self, row: Any = None) -> Call:
        """Return the current call; with ``row``, the call need not read its row from the batch."""
        if self.made is None:
            assert self.batch is not None
            self.made = Call(self.batch, self.index, row)
        return self.made

    def cancel(self, why: Literal["timeout", "down"], latest: float) -> None:
        """Cancel the current step, which must end at the latest at this time."""
        if self.why is None and self.task is not None:
            self.why = why
            self.expires = latest
            self.task.cancel()

    def revive(self) -> None:
        """Reset the state after a cancelled step has ended, so that the runner can continue."""
        self.why = None
        self.expires = math.inf
        self.cancelled = False
        self.uncancel()

    def uncancel(self) -> None:
        """Remove all pending cancellation requests, which would otherwise affect the next row."""
        task: Any = self.task
        if hasattr(task, "uncancel"):  # since Python 3.11
            while task.cancelling():
                task.uncancel()


class RunnerTask(asyncio.Task[None]):
    """A runner's task, which records its cancellations, because user code may cancel any task."""

    runner: Runner

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the task as usual, and record the cancellation."""
        self.runner.cancelled = True
        return super().cancel(msg)


class Sweeper:
    """Timer that cancels each call that exceeds its timeout.

    If the loop was blocked, the timer first lets calls return whose answers have arrived meanwhile. While every
    iteration of the loop is slow, the timer therefore cancels calls up to eight iterations late.

    Args:
        runners: all active runners.
        shortest: the shortest timeout in use, in seconds; None: no call has a timeout.
        abandon: called with a runner whose call did not end within the grace period.
        beat: called at each scan, as the heartbeat of the loop.
        clock: monotonic time in seconds.
        tuning: times of the scans.
    """

    def __init__(
        self,
        runners: Iterable[Runner],
        shortest: float | None,
        abandon: Callable[[Runner], None],
        beat: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        tuning: TimeoutTuning | None = None,
    ) -> None:
        self._runners = runners
        self._tuning = tuning or TimeoutTuning()
        self._rest = min(self._tuning.max_interval, shortest or math.inf)
        self._abandon = abandon
        self._beat = beat
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._meant_for = 0.0
        self._skipped = 0

    def start(self) -> None:
        """Start scanning; must be called on the loop."""
        self._set(self._rest)

    def stop(self) -> None:
        """Stop scanning."""
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, seconds: float) -> None:
        self._meant_for = self._clock() + seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._beat()
        now, tuning = self._clock(), self._tuning
        if now - self._meant_for > tuning.stall_seconds and self._skipped < tuning.max_skipped:
            # Answers may have arrived while the loop was blocked. Let the loop read them first: a blocked loop does not
            # mean that the destination is slow.
            self._skipped += 1
            self._set(tuning.min_interval)
            return
        self._skipped = 0
        earliest = now + self._rest
        for runner in list(self._runners):
            if runner.expires > now:
                earliest = min(earliest, runner.expires)
            elif runner.why is None:
                runner.cancel("timeout", now + tuning.grace_seconds)
            else:
                runner.expires = math.inf
                self._abandon(runner)
        self._set(max(tuning.min_interval, earliest - now))
