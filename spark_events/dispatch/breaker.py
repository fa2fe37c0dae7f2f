"""Circuit breaker of one reporter: pauses delivery attempts while the destination fails.

While the breaker is open, the mailbox keeps the events. The open time grows as FLIP-545 proposes.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable

from spark_events.config import integer, option, positive_duration


class BreakerState(enum.Enum):
    """State of the breaker: CLOSED passes events, OPEN holds them, HALF_OPEN passes one batch as a test."""

    CLOSED = "closed"
    HALF_OPEN = "half-open"
    OPEN = "open"


@dataclasses.dataclass(frozen=True, slots=True)
class BreakerConfig:
    """Circuit breaker settings under ``events.reporter.<name>.``."""

    failures: int = option(
        "circuit-breaker.failures",
        integer(1, 1_000),
        5,
        doc="Number of consecutive failed or timed-out attempts that opens the breaker, which pauses the reporter.",
    )
    open_initial: float = option(
        "circuit-breaker.open.initial",
        positive_duration,
        30.0,
        doc="First pause while the breaker is open; doubles each time.",
    )
    open_max: float = option(
        "circuit-breaker.open.max", positive_duration, 300.0, doc="Longest time the breaker stays open."
    )


class Breaker:
    """Count consecutive failures, and decide when the next attempt is allowed.

    The breaker counts failures in a row instead of a failure ratio: event rates are low, so a window of calls could
    include failures from an hour ago. The breaker only decides; the caller waits and calls the reporter.

    Args:
        config: the number of failures that opens the breaker, and the open times.
        clock: returns monotonic time in seconds.
        on_change: called with the old and the new state, and the reason, at each change.

    Attributes:
        state: the current state.
        failures: number of consecutive failures; above 0 while the breaker is not closed.
    """

    def __init__(
        self,
        config: BreakerConfig,
        clock: Callable[[], float],
        on_change: Callable[[BreakerState, BreakerState, str], None],
    ) -> None:
        self.state = BreakerState.CLOSED
        self._config = config
        self._clock = clock
        self._on_change = on_change
        self.failures = 0
        self._open_first = min(config.open_initial, config.open_max)
        self._open_for = self._open_first
        self._open_until = 0.0

    def pause(self) -> float:
        """Return the seconds until the next attempt is allowed; 0 if an attempt is allowed now."""
        return max(0.0, self._open_until - self._clock()) if self.state is BreakerState.OPEN else 0.0

    def attempt(self) -> None:
        """Record the start of an attempt; an open breaker whose time has expired becomes half-open.

        A drain also makes attempts while the breaker is open. Their failures do not extend the open time.
        """
        if self.state is BreakerState.OPEN and not self.pause():
            self._become(BreakerState.HALF_OPEN, "testing the destination with one batch")

    def succeeded(self) -> None:
        """Record an attempt that the destination answered in time."""
        self.failures = 0
        if self.state is not BreakerState.CLOSED:
            self._open_for = self._open_first
            self._become(BreakerState.CLOSED, "the reporter works again")

    def failed(self, why: str) -> None:
        """Record an attempt that raised an error or timed out."""
        self.failures += 1
        if self.state is BreakerState.HALF_OPEN or (
            self.state is BreakerState.CLOSED and self.failures >= self._config.failures
        ):
            if self.state is BreakerState.HALF_OPEN:
                self._open_for = min(self._open_for * 2, self._config.open_max)
            self._open_until = self._clock() + self._open_for
            self._become(BreakerState.OPEN, f"its events are held for {self._open_for:g} s: {why}")

    def _become(self, state: BreakerState, why: str) -> None:
        old, self.state = self.state, state
        self._on_change(old, state, why)
