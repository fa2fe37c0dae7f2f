"""The fraction of time for which calls block the event loop, estimated from samples."""

from __future__ import annotations

import dataclasses
from collections import Counter

__all__ = ["BlockedFraction", "BlockedFractionTuning"]


@dataclasses.dataclass(frozen=True, slots=True)
class BlockedFractionTuning:
    """Thresholds of the estimate.

    Attributes:
        period_seconds: time over which the fraction is computed; only time with active runs counts.
        least_samples: minimum number of samples in this time. A CPU-starved process takes fewer.
        max_fraction: fraction above which the loop counts as blocked.
        gap_seconds: a call lasts if it still runs this time after a sample, without an iteration of the loop. A shorter
            time would count calls that only wait for the GIL.
        min_lasting: minimum fraction of samples of calls that last. Calls of 20 ms may use the whole time of the loop,
            but last in only half of the samples. Beside a thread that computes all the time, calls of 1 ms last in up
            to a fifth.
    """

    period_seconds: float = 2.0
    least_samples: int = 10
    max_fraction: float = 0.5
    gap_seconds: float = 0.01
    min_lasting: float = 0.4


class BlockedFraction:
    """Estimate of the fraction of time for which calls block the loop, and of the line that blocks it most."""

    def __init__(self, tuning: BlockedFractionTuning) -> None:
        self._tuning = tuning
        self._seconds = 0.0
        self._samples = 0
        self._lasting = 0
        self._lines: Counter[str] = Counter()

    def add(self, seconds: float, line: str | None, *, lasts: bool = True) -> str | None:
        """Add a sample.

        Args:
            seconds: time since the previous sample.
            line: the line of code that occupies the loop; None if the loop is free.
            lasts: whether the call of this line still runs after ``gap_seconds``.

        Returns:
            The line that blocks most, at the end of a period in which calls blocked the loop for too large a fraction.
        """
        self._seconds += seconds
        self._samples += 1
        if line is not None:
            self._lines[line] += 1
            self._lasting += lasts
        if self._seconds < self._tuning.period_seconds or self._samples < self._tuning.least_samples:
            return None
        is_blocked = (
            self._lines.total() > self._tuning.max_fraction * self._samples
            and self._lasting >= self._tuning.min_lasting * self._samples
        )
        found = self._lines.most_common(1)[0][0] if is_blocked else None
        self._seconds, self._samples, self._lasting = 0.0, 0, 0
        self._lines.clear()
        return found
