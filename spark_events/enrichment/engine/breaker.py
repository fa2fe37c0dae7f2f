"""Circuit breaker that detects a destination that is down, so that the batch fails within seconds."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable

from spark_events.enrichment.engine.failure import message_of, type_of
from spark_events.enrichment.engine.gate import Gate
from spark_events.enrichment.settings import CircuitBreaker

__all__ = ["BreakerTuning", "DestinationBreaker"]


@dataclasses.dataclass(frozen=True, slots=True)
class BreakerTuning:
    """Constants of the circuit breaker.

    Attributes:
        initial_pause: first pause between the calls that probe the destination, in seconds.
        max_pause: longest pause, in seconds.
    """

    initial_pause: float = 0.1
    max_pause: float = 1.0


class DestinationBreaker:
    """Counter of consecutive failures over all calls; used by the loop's thread only.

    When the breaker opens, it closes the gate, which then admits one call at a time. If the destination answers no call
    for ``give_up_after`` seconds, it counts as down for the rest of the batch. A destination that does not answer may
    just be slow. Therefore it counts as down only after a call that was sent alone has timed out.

    Args:
        config: the thresholds.
        clock: monotonic time in seconds.
        tuning: constants.

    Attributes:
        down: the reason why the destination counts as down; "" while it does not.
        opened: how often the breaker has opened.
        failures: the number of consecutive failures.
    """

    def __init__(
        self,
        config: CircuitBreaker,
        clock: Callable[[], float] = time.monotonic,
        tuning: BreakerTuning | None = None,
    ) -> None:
        self._tuning = tuning or BreakerTuning()
        self.down = ""
        self.opened = 0
        self.failures = 0
        self._listeners: set[Callable[[str], None]] = set()
        self._config = config
        self._clock = clock
        self._pause = self._tuning.initial_pause
        self._timer: asyncio.TimerHandle | None = None
        self._last = ""
        self._is_silent = self._is_due = False
        self._opened = 0.0

    def succeeded(self) -> None:
        """Record an answer from the destination; a rejection is also an answer."""
        self.failures = 0
        self._pause = self._tuning.initial_pause
        self._is_due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def failed(self, error: BaseException, gate: Gate, began: float, *, is_silent: bool) -> None:
        """Record an attempt that failed because the destination is unreachable, broken or silent.

        Args:
            error: the attempt's error.
            gate: the gate to close after too many failures.
            began: when the attempt began.
            is_silent: whether the attempt timed out.
        """
        self.failures += 1
        self._last, self._is_silent = f"{type_of(error)}: {message_of(error)}", is_silent
        if self.down or self.failures < self._config.failures:
            return
        # After one timeout, the calls that were in flight when the breaker opened have ended. A call that began later
        # was the only call in flight.
        if self._is_due and (not is_silent or began - self._opened > self._clock() - began):
            self._give_up()
            return
        if self._timer is None:
            self._opened = self._clock()
            self.opened += 1
            self._pause = self._tuning.initial_pause
            self._timer = asyncio.get_running_loop().call_later(self._config.give_up_after, self._period_over)
        if gate.until <= self._clock():
            # Otherwise, the failed call was in flight when the gate closed, so the failure contains no new information.
            gate.close(self._pause, crowded=False)
            self._pause = min(2 * self._pause, self._tuning.max_pause)

    def _period_over(self) -> None:
        if self._is_silent:
            self._is_due = True
        else:
            self._give_up()

    def _give_up(self) -> None:
        seconds = self._clock() - self._opened
        self.give_up(f"{self.failures} attempts in a row failed, and none was answered for {seconds:.3g} s")

    def give_up(self, why: str, last: BaseException | None = None) -> None:
        """Mark the destination as down for the rest of the batch."""
        if last is not None:
            self._last = f"{type_of(last)}: {message_of(last)}"
        if not self.down:
            self.down = f"the destination is down: {why}; last error: {self._last}"
            # Notify later: a listener cancels the calls, and the caller of this method may be one of these calls.
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        for on_down in list(self._listeners):
            on_down(self.down)

    def add(self, on_down: Callable[[str], None]) -> None:
        """Register ``on_down(why)``, called when the destination counts as down."""
        self._listeners.add(on_down)

    def remove(self, on_down: Callable[[str], None]) -> None:
        """Unregister a task's callback when the task ends; the timer stops after the last callback."""
        self._listeners.discard(on_down)
        if not self._listeners and self._timer is not None:
            self._timer.cancel()
            self._timer = None
