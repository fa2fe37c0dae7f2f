"""Histogram for quantiles, with the integer arithmetic of the shim (``Sketch.java``)."""

from __future__ import annotations


class Sketch:
    """Histogram with 16 buckets for each power of two, for quantiles at most 6.25 % too large.

    Attributes:
        max: the largest value; 0 without values.
    """

    __slots__ = ("_counts", "_total", "max")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._total = 0
        self.max = 0

    def add(self, value: int) -> None:
        """Count a value; a negative one counts as 0."""
        if value < 16:
            bucket = max(value, 0)
        else:
            shift = value.bit_length() - 5
            bucket = shift * 16 + (value >> shift)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self._total += 1
        if value > self.max:
            self.max = value

    def quantile(self, percent: int) -> int:
        """Return the upper bound of the bucket that contains the quantile, at most the maximum; 0 without values."""
        rank = (percent * self._total + 99) // 100
        for bucket in sorted(self._counts):
            rank -= self._counts[bucket]
            if rank <= 0:
                return min(self.max, _upper(bucket))
        return self.max


def _upper(bucket: int) -> int:
    if bucket < 32:
        return bucket
    return ((16 + bucket % 16 + 1) << (bucket // 16 - 1)) - 1
