"""What engines count, as plain data that can be added up over tasks and batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from spark_events.enrichment.engine.counts import EngineCounts
from spark_events.enrichment.engine.histogram import quantile
from spark_events.enrichment.engine.keys import HotKey

__all__ = ["counted", "merged", "summary"]

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
