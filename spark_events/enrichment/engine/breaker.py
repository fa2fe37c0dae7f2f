"""Whether a destination is down: decided for a batch, so that it fails in seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from spark_events.enrichment.engine.limits import Gate
from spark_events.enrichment.plan import CircuitBreaker

__all__ = ["DestinationBreaker"]

#: Pauses between the calls that are let through to see.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 1.0


class DestinationBreaker:
    """Counts failures in a row over all calls; for the loop's thread alone.

    Open, it closes the gate, which then lets one call through. Without a success for ``give_up_after`` seconds, also
    when nothing is answered at all, the destination is down for good: for the rest of this batch.

    Args:
        config: how many, how long.
        clock: seconds, monotonic.

    Attributes:
        down: why the destination counts as down; empty while it does not.
        opened: how often it has opened.
        failures: in a row.
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
        """The destination has answered, be it with a refusal."""
        self.failures = 0
        self._pause = _FIRST_PAUSE
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def failed(self, why: str, gate: Gate) -> None:
        """An attempt found it out of reach, out of order, or silent.

        Args:
            why: in words.
            gate: closed when there were too many.
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
            # Else they are the calls that were in flight when it closed, which say nothing new.
            gate.close(self._pause, crowded=False)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _give_up(self) -> None:
        self.down = (
            f"the destination is down: {self.failures} attempts in a row failed, none was answered "
            f"for {self._config.give_up_after:g} s; the last: {self._last}"
        )
        for on_down in list(self._listeners):
            on_down(self.down)

    def add(self, on_down: Callable[[str], None]) -> None:
        """``on_down(why)`` is called when it gives up."""
        self._listeners.add(on_down)

    def remove(self, on_down: Callable[[str], None]) -> None:
        """A task ends; when nobody calls, no clock runs."""
        self._listeners.discard(on_down)
        if not self._listeners and self._timer is not None:
            self._timer.cancel()
            self._timer = None
