"""Limits for the attempts of one reporter when the application ends."""

from __future__ import annotations

from collections.abc import Callable

#: How long a drain keeps trying to reach a dead destination, in seconds.
_LAST_TRY_SECONDS = 2.0
_NEVER = float("inf")


class Drain:
    """Decide how long a reporter's attempts continue after the end of the application has begun.

    A drain has no effect before :meth:`begin`. It outlives the reporter's threads.

    Args:
        reserve: time before the end that the store needs to write the remaining events to disk, in seconds.
        clock: returns monotonic time in seconds.

    Attributes:
        is_active: whether a drain has begun: pauses and linger times end early.
        until: when all must have ended, in seconds of the clock; None before :meth:`stop`.
    """

    def __init__(self, reserve: float, clock: Callable[[], float]) -> None:
        self._reserve = reserve
        self._clock = clock
        self.is_active = False
        self.until: float | None = None
        self._stop_by = _NEVER
        self._give_up_at = _NEVER
        # Number of attempts that may fail before no further attempt is made; None for no limit.
        self._failures_left: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether no further attempts are made."""
        return self._failures_left == 0 or self._clock() >= self.ends_at

    @property
    def ends_at(self) -> float:
        """When the attempts end, in seconds of the clock."""
        return min(self._stop_by, self._give_up_at)

    @property
    def has_given_up(self) -> bool:
        """Whether the time for a dead destination has passed."""
        return self._clock() >= self._give_up_at

    def time_left(self) -> float:
        """Return the seconds until the attempts end."""
        return max(0.0, self.ends_at - self._clock())

    def begin(self, *, is_dead: bool) -> None:
        """Begin to drain; a destination that is dead gets one last attempt, which may take 2 s."""
        if self.is_active:
            return
        self.is_active = True
        if is_dead:
            self._failures_left = 1
            self.give_up_soon()

    def stop(self, until: float) -> None:
        """End all attempts before that time."""
        self.until = until
        self._stop_by = until - min(self._reserve, max(0.0, (until - self._clock()) / 2))

    def failed(self, *, is_dead: bool) -> None:
        """Record a failed attempt."""
        if self._failures_left:
            self._failures_left -= 1
        if self.is_active and is_dead:
            self.give_up_soon()

    def give_up_soon(self) -> None:
        """Stop attempts after 2 s, unless the destination answers."""
        if self._give_up_at == _NEVER:
            self._give_up_at = self._clock() + _LAST_TRY_SECONDS

    def answered(self) -> None:
        """Record an answer of the destination: it is not dead, and may use all of the remaining time."""
        self._failures_left = None
        self._give_up_at = _NEVER
