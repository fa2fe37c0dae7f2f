"""Latencies in a bounded number of buckets, which can be added up over tasks.

Sixteen linear buckets an octave, as in HdrHistogram: a quantile is right to within 3.2 %, whatever the range. That is
what the first 16 bits of a double are: its exponent and four bits of its mantissa. So thousands are sorted into buckets
by C code alone; a logarithm for each would cost more than the rest of the engine.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence

__all__ = ["bucket", "buckets", "middle", "quantile"]

_FIRST = 3 if sys.byteorder == "little" else 0
_SHORTS = 4
_REST_BITS = 48


def bucket(seconds: float) -> int:
    """The number of the bucket that a duration falls into; a longer one never has a smaller number."""
    return int(struct.unpack(">H", struct.pack(">d", seconds)[:2])[0])


def buckets(durations: Sequence[float]) -> Counter[int]:
    """How many of these durations fall into which bucket."""
    shorts = memoryview(array("d", durations)).cast("B").cast("H")
    return Counter(shorts[_FIRST::_SHORTS].tolist())


def middle(number: int) -> float:
    """The seconds that a bucket stands for: the middle of it."""
    bits = (number << _REST_BITS) | (1 << (_REST_BITS - 1))
    return float(struct.unpack(">d", struct.pack(">Q", bits))[0])


def quantile(counts: Mapping[int, int], share: float) -> float:
    """Seconds within which that share of the calls was answered; 0 when there were none."""
    total = sum(counts.values())
    wanted = max(1, math.ceil(total * share))
    seen = 0
    for number in sorted(counts):
        seen += counts[number]
        if seen >= wanted:
            return middle(number)
    return 0.0
