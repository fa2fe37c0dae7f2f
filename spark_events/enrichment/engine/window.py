"""Best number of calls in flight for a destination, found by comparing smaller and larger windows.

The measure is the goodput of a full window: its size, times the share of answered calls, divided by their latency. A
window is compared with a slightly larger or smaller window. If a larger window hardly increases the goodput, calls
queue at the destination. If a larger window decreases the goodput, the destination is overloaded. The comparison needs
no knowledge about the destination, such as the base latency of TCP Vegas, which changes with the destination's load.

Calls by other clients hide the effect of this window: if this executor makes a quarter of all calls, its share of the
goodput grows with its window even when the destination is overloaded. Therefore the goodput gain required of a larger
window rises with the signs of an overload: a latency above the lowest latency so far, or rejections. Calls of
a few milliseconds require little gain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from spark_events.enrichment.settings import Auto

__all__ = ["LEAST_CALLS", "Window", "are_instant"]

#: Minimum number of calls in a round, which also contains at least one window of calls; with noisy latencies, maximum
#: number of windows in a round.
LEAST_CALLS, _MOST_WINDOWS = 12, 12
#: Minimum duration of a round in seconds, but at most this number of calls. An event loop handles calls in groups, so
#: the latencies of a shorter round are correlated.
_LEAST_SECONDS, _ENOUGH_CALLS = 0.01, 60
#: Fraction of the calls, the fastest, that determines the mean latency. The slower calls are the tail, which queueing
#: does not cause.
_COUNTED = 0.75
#: The gain of a window is the growth of the goodput relative to the growth of the window, both as logarithms. These are
#: the minimum gains for a larger window: without and with full signs of an overload, and for an immediate further
#: growth.
_PAYS, _PAYS_IN_OVERLOAD, _PAYS_WELL = 0.25, 0.7, 0.7
#: Mean latency in seconds up to which a queue is harmless, and the minimum gain below it. 5 ms is CoDel's acceptable
#: queueing delay (RFC 8289).
_HARMLESS_SECONDS, _PAYS_HARMLESS = 0.005, 0.1
#: With at least this gain, the latency counts as independent of the window.
_NO_EFFECT = 0.9
#: Growth of the stored lowest latency, if a smaller window does not lower a high latency.
_FORGETS = 1.5
#: Full signs of an overload: this multiple of the lowest latency plus the harmless seconds, or this share of
#: rejections.
_SLOW, _MANY_REJECTED = 1.5, 0.05
#: Logarithms of the ratio of two compared windows: initial, smallest and largest value.
_FIRST_STEP, _LEAST_STEP, _MOST_STEP = 0.3, 0.08, math.log(2)
#: Largest step after successful steps.
_CHAINED_STEP = 0.45
#: Lower bound for the mean latency in seconds, because calls may return immediately.
_RESOLUTION = 1e-6
#: Mean latency in seconds below which the processor limits the calls; such a round does not change the window.
_INSTANT_SECONDS = 20e-6
#: Minimum size of a step, as a multiple of the standard error of the latency.
_SIGNIFICANT = 3.0
#: Maximum number of rounds between two comparisons, after comparisons without a change.
_MOST_REST = 8
#: After the window has grown, calls do not count for this time, relative to the latency.
_SETTLES = 0.25
#: The trial of a larger window ends early if few calls have ended after this multiple of the latency.
_STUCK = 2.0
#: If the cost of a call changes by more than this value, the window is compared immediately.
_JUMP = 0.25
#: If the cost of a call grows by more than this value (a factor of four), the window shrinks without a trial, by the
#: square root of the growth.
_LARGE_JUMP = math.log(4)


def are_instant(latencies: Sequence[float], size: int) -> bool:
    """Return whether calls returned immediately; False for a tiny window, which must be able to grow."""
    return size >= LEAST_CALLS and math.fsum(latencies) < _INSTANT_SECONDS * len(latencies)


class Window:
    """Window that is adjusted after each round of calls; pure logic that needs no event loop.

    Args:
        bounds: smallest, largest and first size.

    Attributes:
        size: allowed calls in flight.
        least: smallest size.
        since: start of the current round; calls that began earlier do not count.
        latencies: seconds of answered calls of the current round.
        need: number of answered calls that complete the current round.
        latency: mean seconds of the fastest calls of the latest round; 0 before the first round is complete.
        is_idle: whether something other than the window limited the calls in flight during this round.
        is_instant: whether the calls of the latest round returned immediately.
    """

    def __init__(self, bounds: Auto) -> None:
        self._bounds = bounds
        self._is_fixed = bounds.min == bounds.max
        self.size, self.least = bounds.initial, bounds.min
        self.latencies: list[float] = []
        self.is_idle = self.is_instant = False
        self.since = -math.inf
        self.latency = self._share = 0.0
        self._rejected = self._old = 0
        #: Size, cost and overload of the window with which the current round is compared; None if the round is not a
        #: trial.
        self._other: tuple[int, float, float] | None = None
        #: Logarithm of the latency of a call in seconds, and the share of rejections, in the last round without a
        #: trial.
        self._cost: float | None = None
        self._overload = 0.0
        self._lowest = math.inf
        #: Size of the next trial as a logarithm, its direction, and whether all trials so far were successful.
        self._step, self._direction, self._starting = _MOST_STEP, 1, True
        #: Rounds without a trial: target number, and number so far. Number of consecutive unsuccessful trials.
        self._rest = self._rested = self._failed = 0
        self._set(self.size)

    @property
    def whole(self) -> int:
        """Size of the whole window; if the window is shared, ``size`` is this process's share."""
        return self.size

    @property
    def is_largest(self) -> bool:
        """Whether the window has reached its upper bound."""
        return self.size >= self._bounds.max

    def begin(self, now: float) -> None:
        """Begin a round, which counts the calls that start after ``now``; infinite: the round begins later."""
        # The calls that fill a larger window at once do not count, because they find a shorter queue than later calls.
        later = _SETTLES * self.latency if self.size > self._old else 0.0
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
        if self._other is not None and self.size > self._other[0]:
            # End a trial as soon as its rejections outweigh its possible gain.
            allowed = self._share + (1 - _PAYS) * math.log(self.size / self._other[0])
            if self._rejected >= max(2, allowed * max(self.size, len(self.latencies) + self._rejected)):
                return self._give_up()
        return self._rejected >= max(self.need, len(self.latencies)) and self.turn()

    def timed_out(self, began: float) -> bool:
        """Halve the window after a timeout, but only once for all calls in flight."""
        if began < self.since:
            return False
        self._overloaded()
        return True

    def beat(self, now: float, _: float) -> bool:
        """End the trial of a larger window whose calls take far longer; return whether the window has changed."""
        if self._other is None or self.size < self._other[0] or now - self.since < _STUCK * self.latency:
            return False
        # After two latencies, more than an eighth of the calls have ended, unless the window is too large. A larger
        # fraction would be too strict if the latencies differ.
        return len(self.latencies) <= self.size / 8 and self._give_up()

    def leave(self) -> None:
        """Do nothing; only a shared window has a share to give up."""

    def _give_up(self) -> bool:
        """End an unsuccessful trial; return True, because the window has changed."""
        self._judge(math.inf, math.inf, 0.0, overload=1.0)
        self._set(self.size)
        self._clear()
        return True

    def _overloaded(self) -> None:
        self._other = self._cost = None
        self._starting = False
        self._direction, self._step, self._rest, self._failed = 1, _FIRST_STEP, 0, 0
        self._set(self.size / 2)

    def turn(self) -> bool:
        """End a round, unless its latencies differ so much that it needs more calls.

        Returns:
            Whether another round must :meth:`begin`. Otherwise the next round also counts calls from this round that
            are still in flight.
        """
        latencies, rejected, full = self.latencies, self._rejected, not self.is_idle
        old, was_starting = self.size, self._starting
        if not latencies:
            self._overloaded()
            return True
        self.is_instant = not rejected and are_instant(latencies, self.size)
        if self.is_instant:
            self._clear()
            return False
        latencies.sort()
        counted = latencies[: max(1, int(len(latencies) * _COUNTED))]
        mean = max(math.fsum(counted) / len(counted), _RESOLUTION)
        error = math.sqrt(math.fsum((one - mean) ** 2 for one in counted)) / len(counted) / mean
        step = self._step if self._other is None else abs(math.log(self.size / self._other[0]))
        calls = len(latencies) + rejected
        if error * _SIGNIFICANT > step and calls < _MOST_WINDOWS * max(self.size, LEAST_CALLS) and full:
            self.need = len(latencies) + max(LEAST_CALLS, self.size)
            return False
        self.latency, self._old, share = mean, self.size, rejected / calls
        if full:
            self._lowest = min(self._lowest, mean)
            # A rejected call waits for about the mean latency before its retry, so rejected and answered calls occupy
            # the window equally long.
            self._judge(math.log(mean / (1 - share)), mean, error, self._overload_of(mean, share))
            if self._other is None or old == self._other[0]:
                self._share = share
        self._set(self.size)
        self._clear()
        return self.size != old or self._starting != was_starting

    def _overload_of(self, mean: float, share: float) -> float:
        """Return the strength of the signs of an overload, from 0 to 1."""
        slower = math.log(max(1.0, (mean - _HARMLESS_SECONDS) / self._lowest)) / math.log(_SLOW)
        return min(1.0, max(slower, share / _MANY_REJECTED))

    def _judge(self, cost: float, mean: float, error: float, overload: float) -> None:
        other, self._other = self._other, None
        if other is not None:
            self._compare(other, cost, mean, overload)
            return
        before, self._cost, self._overload = self._cost, cost, overload
        self._rested += 1
        if before is not None and abs(cost - before) > max(_JUMP, _SIGNIFICANT * error):
            # The destination has changed: try more calls if the destination has become faster, and fewer calls if it
            # has become slower.
            self._direction = 1 if cost < before else -1
            self._step = max(self._step, min(_CHAINED_STEP, abs(cost - before) / 2))
            self._rest = self._failed = 0
            if cost - before > _LARGE_JUMP:
                # Each trial would last as long as the slow calls. If the latency grows with the square of the overload,
                # the square root is exact. If calls queue, the window stays too large, and trials shrink it further.
                self._set(self.size * math.exp((before - cost) / 2))
                self._cost = None
                return
        if self._rested >= self._rest:
            self._try(max(self._step, _SIGNIFICANT * error))

    def _try(self, step: float) -> None:
        """Try another window in the next round."""
        assert self._cost is not None
        ratio = math.exp(min(step, _MOST_STEP) * self._direction)
        wanted = self.size * ratio
        tried = max(math.ceil(wanted), self.size + 1) if ratio > 1 else min(math.floor(wanted), self.size - 1)
        tried = min(max(tried, self.least), self._bounds.max)
        if tried == self.size:
            self._direction = -self._direction
            self._starting = False
            return
        self._other = self.size, self._cost, self._overload
        self.size = tried

    def _compare(self, other: tuple[int, float, float], cost: float, mean: float, overload: float) -> None:
        size, before, overload_before = other
        ratio = math.log(self.size / size)
        gain = 1 - (cost - before) / ratio
        if self._starting and gain <= _NO_EFFECT:
            self._starting = False
            if gain > _PAYS:
                # Measure this window again, without the calls that filled it.
                self._other, self._old = other, 0
                return
        least = _PAYS_HARMLESS
        if mean >= _HARMLESS_SECONDS:
            least = _PAYS + (_PAYS_IN_OVERLOAD - _PAYS) * (overload if ratio > 0 else overload_before)
        if (gain > least) == (ratio > 0):
            # Continue in the same direction.
            self._cost, self._overload = cost, overload
            self._failed = self._rest = 0
            if ratio > 0 and gain < _PAYS_WELL:
                self._step = max(_LEAST_STEP, self._step / 1.5)
                self._starting = False
                return
            self._step = self._step if self._starting else max(self._step, min(_CHAINED_STEP, 1.5 * self._step))
            self._try(self._step)
            return
        if ratio < 0 and gain > _NO_EFFECT and overload >= 1:
            # The latency does not depend on this window, so a high latency does not indicate an overload.
            self._lowest = min(mean, _FORGETS * self._lowest)
        self.size = size
        self._direction = -self._direction
        self._step = min(_FIRST_STEP, max(_LEAST_STEP, self._step / 1.5))
        self._failed += 1
        self._rested = 0
        self._rest = 0 if self._failed < 2 else min(_MOST_REST, 2 ** (self._failed - 2))

    def _set(self, size: float) -> None:
        self.size = int(min(max(size, self.least), self._bounds.max))
        if self._other is not None and self._other[0] == self.size:
            # The smallest size has grown, so this is no longer a trial.
            self._other = None
        expected = self.size * _LEAST_SECONDS / self.latency if self.latency else 0.0
        self.need = max(LEAST_CALLS, self.size, int(min(_ENOUGH_CALLS, expected)))
