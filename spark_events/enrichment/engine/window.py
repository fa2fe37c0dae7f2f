"""Best number of calls in flight for a destination: measures rounds of calls for :class:`.WindowSearch`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spark_events.enrichment.engine.window_search import Measurement, WindowSearch, WindowTuning
from spark_events.enrichment.settings import Auto

__all__ = ["Window", "are_instant"]


def are_instant(latencies: Sequence[float], size: int, tuning: WindowTuning) -> bool:
    """Return whether calls returned immediately; False for a tiny window, which must be able to grow."""
    return size >= tuning.min_round_calls and math.fsum(latencies) < tuning.instant_latency * len(latencies)


class Window:
    """Window that is adjusted after each round of calls; pure logic that needs no event loop.

    Args:
        bounds: smallest, largest and first size.
        tuning: constants.

    Attributes:
        since: start of the current round; calls that began earlier do not count.
        latencies: seconds of answered calls of the current round.
        need: number of answered calls that complete the current round.
        latency: mean seconds of the fastest calls of the latest round; 0 before the first round is complete.
        is_idle: whether something other than the window limited the calls in flight during this round.
        is_instant: whether the calls of the latest round returned immediately.
    """

    def __init__(self, bounds: Auto, tuning: WindowTuning | None = None) -> None:
        self._tuning = tuning or WindowTuning()
        self._is_fixed = bounds.min == bounds.max
        self._search = WindowSearch(bounds, self._tuning)
        self.latencies: list[float] = []
        self.is_idle = self.is_instant = False
        self.since = -math.inf
        self.latency = 0.0
        self._rejected = self._old = 0
        #: Number of windows of calls in the latest round.
        self._windows = 0.0
        self.need = self._needed()

    @property
    def size(self) -> int:
        """Allowed calls in flight."""
        return self._search.size

    @property
    def whole(self) -> int:
        """Size of the whole window; if the window is shared, ``size`` is this process's share."""
        return self._search.size

    @property
    def is_largest(self) -> bool:
        """Whether the window has reached its upper bound."""
        return self._search.is_largest

    def at_least(self, size: int) -> None:
        """Set the smallest size."""
        self._search.least = size

    def begin(self, now: float) -> None:
        """Begin a round, which counts the calls that start after ``now``; infinite: the round begins later."""
        # The calls that fill a larger window at once do not count, because they find a shorter queue than later calls.
        # During the start, a longer round would cost more than this error.
        grown = self.size > self._old and not self._search.is_short
        later = self._tuning.settle_ratio * self.latency if grown else 0.0
        self.since = math.inf if self._is_fixed else now + later
        self._clear()

    def _clear(self) -> None:
        self.latencies.clear()
        self._rejected = 0
        self.is_idle = False

    def rejected(self, began: float) -> bool:
        """Count a call that the destination rejected because of an overload; return whether the window has changed."""
        if began < self.since:
            return False
        self._rejected += 1
        if self._search.tries_larger:
            # End a trial as soon as its rejections outweigh its possible gain.
            calls = max(self.size, len(self.latencies) + self._rejected)
            if self._rejected >= max(2, self._search.max_rejected() * calls):
                return self._give_up()
        return self._rejected >= max(self.need, len(self.latencies)) and self.turn()

    def timed_out(self, began: float) -> bool:
        """Shrink the window after a timeout, but only once for all calls in flight."""
        if began < self.since:
            return False
        self._decrease()
        return True

    def beat(self, now: float, _: float) -> bool:
        """End the trial of a larger window whose calls take far longer; return whether the window has changed."""
        search, tuning = self._search, self._tuning
        ratio = tuning.start_stuck_ratio if search.is_short else tuning.stuck_ratio
        if not search.tries_larger or now - self.since < ratio * self.latency:
            return False
        # After two latencies, more than an eighth of the calls have ended, unless the window is too large.
        return len(self.latencies) <= tuning.stuck_fraction * self.size and self._give_up()

    def leave(self) -> None:
        """Do nothing; only a shared window has a share to give up."""

    def _give_up(self) -> bool:
        """End an unsuccessful trial; return True, because the window has changed."""
        self._search.give_up()
        self.need = self._needed()
        self._clear()
        return True

    def _decrease(self) -> None:
        self._search.decrease()
        self.need = self._needed()

    def turn(self) -> bool:
        """End a round, unless its latencies differ so much that it needs more calls.

        Returns:
            Whether another round must :meth:`begin`. Otherwise the next round also counts calls from this round that
            are still in flight.
        """
        latencies, rejected, full, search, tuning = (
            self.latencies, self._rejected, not self.is_idle, self._search, self._tuning,
        )  # fmt: skip
        old, was_starting, is_short = self.size, search.is_starting, search.is_short
        if not latencies:
            self._decrease()
            return True
        self.is_instant = not rejected and are_instant(latencies, self.size, tuning)
        if self.is_instant:
            self._clear()
            return False
        latencies.sort()
        fast_ratio = 1.0 if is_short else tuning.fast_ratio
        counted = latencies[: max(1, int(len(latencies) * fast_ratio))]
        mean = max(math.fsum(counted) / len(counted), tuning.min_latency)
        error = math.sqrt(math.fsum((one - mean) ** 2 for one in counted)) / len(counted) / mean
        if is_short:
            # A few latencies may be nearly equal by chance.
            error = max(error, tuning.start_spread / math.sqrt(len(counted)))
        calls, most = len(latencies) + rejected, tuning.max_round_windows * max(self.size, tuning.min_round_calls)
        if error * tuning.significance > search.step and calls < most and full and not is_short:
            self.need = len(latencies) + max(tuning.min_round_calls, self.size)
            return False
        self.latency, self._old, self._windows = mean, self.size, len(latencies) / self.size
        search.judge(Measurement(mean, error, rejected / calls) if full else None)
        if was_starting and not search.is_starting and search.tries_larger and self.size == old:
            self._old = 0
        self.need = self._needed()
        self._clear()
        return self.size != old or search.is_starting != was_starting

    def _needed(self) -> int:
        """Return the number of answered calls that complete a round."""
        tuning = self._tuning
        expected = self.size * tuning.min_round_seconds / self.latency if self.latency else 0.0
        if self._search.is_short and not self.is_instant:
            return max(tuning.min_start_calls, int(tuning.start_ratio * self.size))
        # A round of one window favors fast calls, so a trial is not much shorter than the round before it.
        least = min(self._windows, tuning.min_trial_windows) * self.size if self._search.is_compared else self.size
        return max(tuning.min_round_calls, int(least), int(min(tuning.max_min_calls, expected)))
