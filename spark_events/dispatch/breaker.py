"""A circuit breaker per reporter: a destination that is down is left alone, and asked again now and then.

Open means *hold*, not discard: the events wait in the mailbox. Times grow as in FLIP-545's proposal.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable

from spark_events.config import integer, option, positive_duration

__all__ = ["Breaker", "BreakerConfig", "BreakerState"]


class BreakerState(enum.Enum):
    """CLOSED lets through, OPEN holds, HALF_OPEN lets one batch through to see."""

    CLOSED = "closed"
    HALF_OPEN = "half-open"
    OPEN = "open"


@dataclasses.dataclass(frozen=True, slots=True)
class BreakerConfig:
    """``events.reporter.<name>.…``"""

    failures: int = option(
        "circuit-breaker.failures",
        integer(1, 1_000),
        5,
        doc="So many failed or too slow attempts in a row open the breaker: the reporter is left alone.",
    )
    open_initial: float = option(
        "circuit-breaker.open.initial",
        positive_duration,
        30.0,
        doc="How long it stays open at first; each further time twice as long.",
    )
    open_max: float = option(
        "circuit-breaker.open.max", positive_duration, 300.0, doc="The longest time it stays open."
    )


class Breaker:
    """Counts failures in a row, and says when the next attempt may be made.

    Event rates are low: a window of calls would remember last hour's failures, a row of them does not.
    Decides only; it neither waits nor calls.

    Args:
        config: how many failures, and how long.
        clock: seconds, monotonic.
        on_change: told of every change of state, in words.
    """

    def __init__(
        self, config: BreakerConfig, clock: Callable[[], float], on_change: Callable[[BreakerState, str], None]
    ) -> None:
        self.state = BreakerState.CLOSED
        self._config = config
        self._clock = clock
        self._on_change = on_change
        self._failures = 0
        self._open_first = min(config.open_initial, config.open_max)
        self._open_for = self._open_first
        self._open_until = 0.0

    def pause(self) -> float:
        """Seconds until an attempt may be made; 0: now."""
        return max(0.0, self._open_until - self._clock()) if self.state is BreakerState.OPEN else 0.0

    def attempt(self) -> None:
        """An attempt begins: of a breaker whose time is up, the one that shows how things are.

        At an end, attempts are made while it is open, too; a failure of these does not prolong that.
        """
        if self.state is BreakerState.OPEN and not self.pause():
            self._become(BreakerState.HALF_OPEN, "one batch is let through")

    def succeeded(self) -> None:
        """An attempt was answered in time."""
        self._failures = 0
        if self.state is not BreakerState.CLOSED:
            self._open_for = self._open_first
            self._become(BreakerState.CLOSED, "the reporter works again")

    def failed(self, why: str) -> None:
        """An attempt raised, or took too long."""
        self._failures += 1
        if self.state is BreakerState.HALF_OPEN or (
            self.state is BreakerState.CLOSED and self._failures >= self._config.failures
        ):
            if self.state is BreakerState.HALF_OPEN:
                self._open_for = min(self._open_for * 2, self._config.open_max)
            self._open_until = self._clock() + self._open_for
            self._become(BreakerState.OPEN, f"its events are held for {self._open_for:g} s: {why}")

    def _become(self, state: BreakerState, why: str) -> None:
        self.state = state
        self._on_change(state, why)
