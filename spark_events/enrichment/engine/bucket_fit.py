"""Rate of a token bucket, from the times at which it was empty.

A bucket with room for ``burst`` calls fills up at a constant rate, and each accepted call takes one token. A rejection
shows that the bucket is empty: since the bucket was full, the accepted calls exceed the refill by exactly ``burst``.
Several rejections therefore determine both numbers. A destination that counts calls in fixed windows behaves similarly.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque

__all__ = ["BucketFit", "BucketFitTuning"]


@dataclasses.dataclass(frozen=True, slots=True)
class BucketFitTuning:
    """Constants of the fit.

    Attributes:
        max_bins: maximum number of time bins.
        short_bins: number of short bins at first.
        short_seconds: length of a short bin.
        long_seconds: length of a long bin.
        max_rejections: maximum number of rejections in a fit.
        rates: number of rates that a fit tries twice: roughly, then in detail.
        inconsistent: ratio of two estimates of the burst, as a logarithm, above which the destination has changed.
        slightly_inconsistent: the same for all rejections instead of the last two.
    """

    max_bins: int = 400
    short_bins: int = 50
    short_seconds: float = 0.02
    long_seconds: float = 0.25
    max_rejections: int = 3
    rates: int = 32
    inconsistent: float = math.log(1.6)
    slightly_inconsistent: float = 0.12


class _Bin:
    """Seconds, accepted calls, and whether a call was rejected at the end."""

    __slots__ = ("accepted", "is_empty", "seconds")

    def __init__(self, seconds: float, accepted: float) -> None:
        self.seconds = seconds
        self.accepted = accepted
        self.is_empty = False


class BucketFit:
    """Times and accepted calls up to now; the caller passes the time.

    Attributes:
        has_changed: whether the destination has changed between the rejections, so that no bucket explains them.
    """

    def __init__(self, now: float, tuning: BucketFitTuning | None = None) -> None:
        self.has_changed = False
        self._tuning = tuning or BucketFitTuning()
        self._bins: deque[_Bin] = deque(maxlen=self._tuning.max_bins)
        self._last: _Bin | None = None
        #: Time of the last report, of the end of the last pause, and of the last rejection.
        self._now = self._resumed = self._emptied = now
        self._accepted = 0

    @property
    def rejections(self) -> int:
        """Number of times at which the bucket was empty."""
        return sum(one.is_empty for one in self._bins)

    @property
    def active(self) -> float:
        """Seconds from the end of the last pause to the last rejection."""
        return self._emptied - self._resumed

    def passed(self, now: float, accepted: int) -> None:
        """Record the calls that have begun since the last report; a rejected call counts until :meth:`rejected`."""
        bins, seconds = self._bins, now - self._now
        self._now = now
        self._accepted += accepted
        if not bins or bins[-1].is_empty:
            bins.append(_Bin(seconds, accepted))
            return
        bins[-1].seconds += seconds
        bins[-1].accepted += accepted
        tuning = self._tuning
        if bins[-1].seconds >= (tuning.short_seconds if len(bins) < tuning.short_bins else tuning.long_seconds):
            bins.append(_Bin(0.0, 0.0))

    def reported_late(self, accepted: int) -> None:
        """Record calls that began before the last rejection, in processes that have reported only now."""
        if self._last is not None:
            self._last.accepted += accepted
            self._accepted += accepted

    def rejected(self, *, is_first: bool) -> None:
        """Record a rejected call; ``is_first``: the bucket is empty now, and not since an earlier rejection."""
        if is_first and self._bins:
            self._emptied = self._now
            if not self._bins[-1].seconds and len(self._bins) > 1 and not self._bins[-2].is_empty:
                self._bins.pop()
            self._last = self._bins[-1]
            # If no call was accepted since the pause, this rejection says the same as the one before the pause.
            self._last.is_empty = self._accepted > 1
        if self._last is not None:
            self._last.accepted -= 1
            self._accepted -= 1

    def rate(self, burst_seconds: float) -> float:
        """Return the calls per second; 0 if unknown.

        Args:
            burst_seconds: assumed burst, in seconds of the rate, after a single rejection.
        """
        tuning = self._tuning
        self._keep(tuning.max_rejections)
        marks = self.rejections
        if not marks:
            return 0.0
        total, seconds = sum(one.accepted for one in self._bins), sum(one.seconds for one in self._bins)
        if total <= 0 or seconds <= 0:
            return 0.0
        low, high = total / (seconds + 2 * burst_seconds), total / min(seconds, tuning.short_seconds)
        for _ in range(2):
            best, least = 0.0, math.inf
            ratio = (high / low) ** (1 / tuning.rates)
            for step in range(tuning.rates + 1):
                rate = low * ratio**step
                bursts = self._bursts(rate)
                if min(bursts) < 1:
                    break
                wanted = max(bursts) if marks > 1 else burst_seconds * rate
                if (spread := abs(math.log(wanted / min(bursts)))) < least:
                    best, least = rate, spread
            if not best:
                return 0.0
            low, high = best / ratio, best * ratio
        if marks > 2 and least > tuning.slightly_inconsistent:
            self._keep(2)
            return self.rate(burst_seconds)
        self.has_changed = marks > 1 and least > tuning.inconsistent
        if self.has_changed:
            self._keep(1)
        return best

    def resume(self, period: float) -> float:
        """Record the end of a pause; return the accepted calls per second since the previous one, with its pause.

        The destination allows at least this rate, unless the bucket was full at first. If it rejected a call within
        one period, it may count calls in windows of this length, so the pause does not count beyond the period.
        """
        accepted, seconds = self._accepted, self._now - self._resumed
        if self.active < period:
            seconds = min(seconds, period)
        self._accepted, self._resumed = 0, self._now
        return accepted / seconds if seconds > 0 else 0.0

    def _bursts(self, rate: float) -> list[float]:
        """Return the missing tokens at each rejection, if the bucket was full at first."""
        missing, found = 0.0, []
        for one in self._bins:
            missing = max(0.0, missing + one.accepted - rate * one.seconds)
            if one.is_empty:
                found.append(missing)
        return found

    def _keep(self, rejections: int) -> None:
        """Forget what precedes the last rejections."""
        while self.rejections > rejections:
            self._bins.popleft()
