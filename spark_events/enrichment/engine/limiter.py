"""Limiters: what may delay an attempt, one class each; :class:`.Admission` asks them in order.

An attempt keeps its permits in a dict and not on an exit stack. If an early limiter withdraws its permit while a later
one delays the attempt, only the permits from there on are given back. An exit stack would also cost ten times as much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from spark_events.enrichment.engine.calls import Call

__all__ = ["Attempt", "Limiter", "Permit"]


class Attempt(NamedTuple):
    """An attempt that waits.

    Attributes:
        call: returns the call.
        overtakes: whether the attempt has priority over first attempts.
    """

    call: Callable[[], Call]
    overtakes: bool


class Permit:
    """Permission of a limiter for one attempt; this class is a permission that needs no bookkeeping."""

    __slots__ = ()

    @property
    def is_valid(self) -> bool:
        """Whether the attempt may still start; otherwise it must enter the limiter again."""
        return True

    def begin(self) -> None:
        """Record that the attempt starts."""

    def spend(self, answer: Any) -> None:
        """Record the result that the function returned."""

    def end(self, *, answered: bool) -> None:
        """Record that the attempt has ended, and whether the destination answered."""

    def give_back(self) -> None:
        """Record that the attempt will not start."""


class Limiter(Protocol):
    """What may delay an attempt; used by the loop's thread only."""

    @property
    def limits(self) -> bool:
        """Whether attempts must enter."""

    @property
    def cause(self) -> str:
        """The reason for which attempts wait, as in :func:`.statistics.counted`; "" if none waits."""

    @property
    def until(self) -> float:
        """Time until which no attempt can start, in seconds of the run's clock; 0 if unknown."""

    @property
    def is_timed(self) -> bool:
        """Whether the wait before the first attempt counts against ``total_timeout``."""

    @property
    def min_wait(self) -> float:
        """Seconds of waiting from which this limiter, and not the window, limits the calls in flight."""

    async def enter(self, attempt: Attempt) -> Permit:
        """Wait until the attempt may start."""
