"""Durations of attempts, counted in buckets.

There are sixteen linear buckets per power of two, as in HdrHistogram, so a quantile is accurate to 3.2 %. The number of
a bucket is the first 16 bits of the duration as a double: the exponent and four bits of the mantissa. C code assigns
thousands of durations to buckets at once. Computing a logarithm for each duration would cost more than all other work
of the engine.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
import threading
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence

__all__ = ["AttemptDurations", "DurationTuning", "buckets", "middle", "quantile"]

_FIRST = 3 if sys.byteorder == "little" else 0
_SHORTS = 4
_REST_BITS = 48


def buckets(durations: Sequence[float]) -> list[int]:
    """Return the bucket number of each duration; a longer duration never has a lower number."""
    shorts = memoryview(array("d", durations)).cast("B").cast("H")
    return shorts[_FIRST::_SHORTS].tolist()


def middle(number: int) -> float:
    """Return the midpoint of a bucket in seconds."""
    bits = (number << _REST_BITS) | (1 << (_REST_BITS - 1))
    return float(struct.unpack(">d", struct.pack(">Q", bits))[0])


def quantile(weights: Mapping[int, float], fraction: float) -> int:
    """Return the smallest key whose weight, with that of all smaller keys, reaches a fraction; 0 without keys."""
    left = fraction * sum(weights.values())
    for key in sorted(weights):
        left -= weights[key]
        if left <= 0:
            return key
    return 0


@dataclasses.dataclass(frozen=True, slots=True)
class DurationTuning:
    """Constants of :class:`AttemptDurations`.

    Attributes:
        max_latest: number of durations that are assigned to buckets together, which takes a fraction of a millisecond,
            during which every call waits.
    """

    max_latest: int = 1024


class AttemptDurations:
    """Number of attempts by duration; written by the loop's thread only.

    Args:
        tuning: constants.

    Attributes:
        latest: seconds of the latest attempts, which are not in buckets yet.
    """

    def __init__(self, tuning: DurationTuning) -> None:
        self._tuning = tuning
        self.latest: list[float] = []
        self._buckets: Counter[int] = Counter()
        self._lock = threading.Lock()

    def fold(self) -> None:
        """Move the latest durations to their buckets if there are many; called periodically."""
        if len(self.latest) >= self._tuning.max_latest:
            with self._lock:
                self._buckets.update(buckets(self.latest))
                self.latest.clear()

    def by_bucket(self) -> dict[int, int]:
        """Return the number of attempts per bucket; may be called from any thread."""
        with self._lock:
            return dict(self._buckets + Counter(buckets(tuple(self.latest))))
