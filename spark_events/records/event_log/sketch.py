"""Histogram for quantiles, with the same integer arithmetic as ``Sketch.java`` in the shim."""

from __future__ import annotations


class Sketch:
    """Histogram with 128 buckets for each power of two.

    A quantile is at most 0.8 % below the exact value.

    Attributes:
        max: the largest value; 0 without values.
    """

    __slots__ = ("_counts", "_min", "_total", "max")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._total = 0
        self._min = 0
        self.max = 0

    def add(self, value: int) -> None:
        """Count a value; a negative value counts as 0."""
        if value < 128:
            bucket = value = value if value > 0 else 0
        else:
            shift = value.bit_length() - 8
            bucket = shift * 128 + (value >> shift)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        if value < self._min or not self._total:
            self._min = value
        self._total += 1
        if value > self.max:
            self.max = value

    def quantile(self, percent: int) -> int:
        """Return a quantile: the lower bound of its bucket; 0 without values.

        The result is never below the minimum. A task with exactly five times the median duration counts as skewed; if
        the upper bound were used, the median would be too large to detect such a task.
        """
        rank = (percent * self._total + 99) // 100
        for bucket in sorted(self._counts):
            rank -= self._counts[bucket]
            if rank <= 0:
                return max(self._min, _lower(bucket))
        return self.max


def _lower(bucket: int) -> int:
    if bucket < 256:
        return bucket
    return (128 + bucket % 128) << (bucket // 128 - 1)
