"""Circuit breaker that decides whether a destination is down, so that a batch fails within seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from spark_events.enrichment.engine.limits import Gate
from spark_events.enrichment.settings import CircuitBreaker

__all__ = ["DestinationBreaker"]

#: Pauses in seconds between the calls that probe the destination.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 1.0


class DestinationBreaker:
    """Counts consecutive failures over all calls; used by the loop's thread only.

    When the breaker opens, it closes the gate, which then lets one call through at a time. Without a success for
    ``give_up_after`` seconds, even if no attempt ends at all, the destination counts as down for the rest of the batch.

    Args:
        config: the thresholds.
        clock: monotonic time in seconds.

    Attributes:
        down: why the destination counts as down; "" while it does not.
        opened: how often the breaker has opened.
        failures: the number of consecutive failures.
    """

    def __init__(self, config: CircuitBreaker, clock: Callable[[], float] = time.monotonic) -> None:
        self.down = ""
        self.opened = 0
        self.failures = 0
        self._listeners: set[Callable[[str], None]] = set()
        self._config = config
        self._clock = clock
        self._pause = _FIRST_PAUSE
        self._timer: asyncio.TimerHandle | None = None
        self._last = ""

    def succeeded(self) -> None:
        """Record an answer of the destination, including a rejection."""
        self.failures = 0
        self._pause = _FIRST_PAUSE
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def failed(self, why: str, gate: Gate) -> None:
        """Record an attempt that failed because the destination is unreachable, out of order or silent.

        Args:
            why: the error as text.
            gate: the gate to close after too many failures.
        """
        self.failures += 1
        self._last = why
        if self.down or self.failures < self._config.failures:
            return
        if self._timer is None:
            self.opened += 1
            self._pause = _FIRST_PAUSE
            self._timer = asyncio.get_running_loop().call_later(self._config.give_up_after, self._give_up)
        if gate.until <= self._clock():
            # Otherwise the failure belongs to a call that was in flight when the gate closed, and is no new
            # information.
            gate.close(self._pause, crowded=False)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _give_up(self) -> None:
        self.down = (
            f"the destination is down: {self.failures} attempts in a row failed, none was answered "
            f"for {self._config.give_up_after:g} s; last error: {self._last}"
        )
        for on_down in list(self._listeners):
            on_down(self.down)

    def add(self, on_down: Callable[[str], None]) -> None:
        """Register ``on_down(why)``, called when the destination counts as down."""
        self._listeners.add(on_down)

    def remove(self, on_down: Callable[[str], None]) -> None:
        """Unregister a callback at the end of a task; without callbacks the timer stops."""
        self._listeners.discard(on_down)
        if not self._listeners and self._timer is not None:
            self._timer.cancel()
            self._timer = None
