"""What an engine counts, and as plain data that can be added up over tasks and batches.

Latencies are kept in sixteen linear buckets an octave, as in HdrHistogram, so a quantile is right to within 3.2 %. A
bucket is the first 16 bits of a double, its exponent and four bits of its mantissa: C code alone sorts thousands of
durations, where a logarithm for each would cost more than the rest of the engine.
"""

from __future__ import annotations

import math
import struct
import sys
import threading
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.keys import HotKey

__all__ = ["EngineCounts", "bucket", "buckets", "counted", "merged", "middle", "quantile", "summary"]


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


#: To sort so many into their buckets takes a fraction of a millisecond, for which every call waits.
_MOST_DURATIONS = 1024


class EngineCounts:
    """Numbers that only the loop's thread writes; the pool adds to some of them by itself, for speed.

    Attributes:
        rows: taken in.
        retries: attempts after a call's first.
        timeouts: attempts without an answer in time, by our clock or the client's.
        throttled: attempts that were refused with 429, or with Retry-After.
        gate_closed: how often a Retry-After closed the gate.
        coalesced: rows that got the answer of another row's call.
        cached: rows that got an answer from the cache.
        known: rows whose answer was known from an earlier run.
        durations: of the latest attempts, in seconds.
        begun: attempts, whether or not they have ended; only grows, so that any thread may read it.
        flying: attempts at this moment.
        peak: the most of them.
        waited: seconds between a call's coming in and its first attempt, in sum.
        swallowed: attempts that were cancelled and returned all the same.
        abandoned: attempts that were cancelled and did not end.
        failures: rows by the type of their last failure.
        kinds: the same by kind.
        blocked: seconds for which the loop stood still, by the line that held it.
    """

    def __init__(self) -> None:
        self.rows = self.retries = 0
        self.timeouts = self.throttled = self.gate_closed = 0
        self.coalesced = self.cached = self.known = 0
        self.durations: list[float] = []
        self._latency: Counter[int] = Counter()
        self._folding = threading.Lock()
        self.begun = self.flying = self.peak = 0
        self.waited = 0.0
        self.swallowed = self.abandoned = 0
        self.failures: defaultdict[str, int] = defaultdict(int)
        self.kinds: defaultdict[str, int] = defaultdict(int)
        self.blocked: dict[str, float] = {}

    def begin(self) -> None:
        """An attempt begins."""
        self.begun += 1
        self.flying += 1
        self.peak = max(self.peak, self.flying)

    def end(self, seconds: float) -> None:
        """An attempt has ended, one way or another."""
        self.flying -= 1
        self.durations.append(seconds)

    def fold(self) -> None:
        """Now and then: the durations into their buckets, so that they take no room."""
        if len(self.durations) >= _MOST_DURATIONS:
            with self._folding:
                self._latency.update(buckets(self.durations))
                self.durations.clear()

    def latency(self) -> dict[int, int]:
        """Attempts by bucket of their duration; for any thread."""
        with self._folding:
            return dict(self._latency + buckets(tuple(self.durations)))

    def failed(self, failure: RowFailure, rows: int = 1) -> None:
        """Rows have come to their end without an answer."""
        self.failures[failure.type] += rows
        self.kinds[failure.kind] += rows

    def stood_still(self, where: str, seconds: float) -> None:
        """The loop is blocked, for so long now; for any thread."""
        self.blocked[where] = max(self.blocked.get(where, 0.0), seconds)


_SUMS = (
    "rows", "calls", "attempts", "retries", "timeouts", "throttled", "gate_closed", "coalesced", "cached", "known",
    "swallowed", "abandoned", "slot_wait",
)  # fmt: skip
_PEAKS = ("peak_in_flight", "buffer_rows", "buffer_bytes")
_TALLIES = ("latency", "failures", "kinds", "blocked", "hot_keys")


def counted(counts: EngineCounts, hot: Sequence[HotKey]) -> dict[str, Any]:
    """One engine's numbers; durations in seconds. Taken while it runs, they are of about the same moment.

    ``latency`` counts attempts by bucket; ``failures`` rows by type and ``kinds`` by kind;
    ``blocked`` seconds by line; ``hot_keys`` rows by the key's ``repr``.
    """
    attempts = counts.begun
    return {
        "rows": counts.rows,
        "calls": attempts - counts.retries,
        "attempts": attempts,
        "retries": counts.retries,
        "timeouts": counts.timeouts,
        "throttled": counts.throttled,
        "gate_closed": counts.gate_closed,
        "coalesced": counts.coalesced,
        "cached": counts.cached,
        "known": counts.known,
        "swallowed": counts.swallowed,
        "abandoned": counts.abandoned,
        "slot_wait": counts.waited,
        "peak_in_flight": counts.peak,
        "latency": counts.latency(),
        "failures": dict(counts.failures),
        "kinds": dict(counts.kinds),
        "blocked": dict(counts.blocked),
        "hot_keys": {repr(key): rows for key, rows in hot},
    }


def merged(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of several engines as one: sums, but the largest of the peaks, which tasks need not share."""
    total: dict[str, Any] = dict.fromkeys(_SUMS, 0) | dict.fromkeys(_PEAKS, 0) | {name: Counter() for name in _TALLIES}
    for part in parts:
        for name in _SUMS:
            total[name] += part[name]
        for name in _PEAKS:
            total[name] = max(total[name], part.get(name, 0))
        for name in _TALLIES:
            total[name].update(part[name])
    return {name: dict(value) if isinstance(value, Counter) else value for name, value in total.items()}


def summary(numbers: dict[str, Any]) -> dict[str, int | float]:
    """For people and events: counts, and durations in milliseconds."""
    latency = numbers["latency"]
    return {
        **{name: numbers[name] for name in _SUMS if name != "slot_wait"},
        "failures": sum(numbers["failures"].values()),
        "peak_in_flight": numbers["peak_in_flight"],
        "latency.p50_ms": quantile(latency, 0.5) * 1000,
        "latency.p99_ms": quantile(latency, 0.99) * 1000,
        "slot_wait.mean_ms": numbers["slot_wait"] / numbers["calls"] * 1000 if numbers["calls"] else 0.0,
    }
