"""Counters of an engine, as plain data that can be merged over tasks and batches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from spark_events.enrichment.engine.durations import AttemptDurations, DurationTuning, middle, quantile
from spark_events.enrichment.engine.failure import RowFailure

__all__ = ["EngineCounts", "counted", "merged", "progress", "summary"]


class EngineCounts:
    """Counters that only the loop's thread writes; the pool updates some of them directly, for speed.

    It has many attributes, because each number that the statistics show is one.

    Attributes:
        rows: admitted rows.
        retries: attempts after the first attempt of a call.
        timeouts: attempts that were not answered in time, according to the engine or the client.
        throttled: attempts that the destination rejected because it receives too many calls (429, 503, 529,
            Retry-After).
        gate_closed: how often a Retry-After closed the gate.
        coalesced: rows that received the answer of another row's call.
        cached: rows that received an answer from the cache.
        known: rows whose answer an earlier run has stored.
        durations: the durations of the attempts.
        begun: started attempts; never decreases, so any thread may read it.
        flying: attempts in flight.
        peak: the maximum of ``flying``.
        waited: total seconds between admission and first attempt.
        swallowed: attempts that returned a result despite their cancellation.
        abandoned: attempts that did not end after cancellation.
        failures: failed rows by type of their last failure.
        kinds: failed rows by kind.
        blocked: seconds for which the loop was blocked, by code line.
        partly_throttled: the part of ``throttled`` in which the destination answered other rows of the call.
        unreachable: attempts that did not reach the destination, or received no answer from it, for example because the
            engine cancelled them.
        hints: number of tasks by warning, for the driver's log.
        windows: seconds by size of the window.
        limited: seconds by the cause that limited the calls in flight, see :func:`counted`.
        usage: total usage of answered attempts, in units of the budget.
    """

    def __init__(self, tuning: DurationTuning | None = None) -> None:
        self.rows = self.retries = 0
        self.timeouts = self.throttled = self.gate_closed = 0
        self.coalesced = self.cached = self.known = 0
        self.durations = AttemptDurations(tuning or DurationTuning())
        self.begun = self.flying = self.peak = 0
        self.waited = 0.0
        self.swallowed = self.abandoned = 0
        self.failures: defaultdict[str, int] = defaultdict(int)
        self.kinds: defaultdict[str, int] = defaultdict(int)
        self.blocked: dict[str, float] = {}
        self.unreachable = self.partly_throttled = 0
        self.hints: dict[str, int] = {}
        self.windows: defaultdict[int, float] = defaultdict(float)
        self.limited: defaultdict[str, float] = defaultdict(float)
        self.usage = 0.0

    def begin(self) -> None:
        """Count the start of an attempt."""
        self.begun += 1
        self.flying += 1
        self.peak = max(self.peak, self.flying)

    def end(self, seconds: float) -> None:
        """Count a finished attempt."""
        self.flying -= 1
        self.durations.latest.append(seconds)

    def failed(self, failure: RowFailure, rows: int = 1) -> None:
        """Count rows that ended without an answer."""
        self.failures[failure.type] += rows
        self.kinds[failure.kind] += rows

    @property
    def answers(self) -> int:
        """Number of attempts that the destination answered and did not reject."""
        return self.begun - self.flying - self.unreachable - self.throttled + self.partly_throttled

    @property
    def only_unreachable(self) -> bool:
        """Whether there were attempts but none was answered."""
        return 0 < self.unreachable == self.begun - self.flying

    def stood_still(self, where: str, seconds: float) -> None:
        """Record how long a line of code has blocked the loop so far; may be called from any thread."""
        self.blocked[where] = max(self.blocked.get(where, 0.0), seconds)


#: Counters that :class:`EngineCounts` has under the same name.
_SAME_SUMS = (
    "rows", "retries", "timeouts", "throttled", "gate_closed", "coalesced", "cached", "known",
    "swallowed", "abandoned", "usage",
)  # fmt: skip
_SAME_TALLIES = ("failures", "kinds", "blocked", "hints", "windows", "limited")
_SUMS = (*_SAME_SUMS, "calls", "attempts", "slot_wait")
_PEAKS = ("peak_in_flight", "buffer_rows", "buffer_bytes")
_TALLIES = (*_SAME_TALLIES, "latency", "hot_keys")


def counted(counts: EngineCounts, hot: Sequence[tuple[Hashable, int]]) -> dict[str, Any]:
    """Return the counters of one engine; durations are in seconds.

    While the engine runs, the values are read at nearly the same time. ``latency`` contains the number of attempts by
    bucket, ``failures`` the rows by type, ``kinds`` the rows by kind, ``blocked`` the seconds by line of source code,
    and ``hot_keys`` the rows by the key's ``repr``. ``limited`` contains the seconds by the cause that limited the
    calls in flight: the destination (``service``), the user's ``rate_limit``, ``budget``, ``max_in_flight`` or
    ``max_in_flight_job``, a full ``buffer``, too few rows (``upstream``), or the CPU of this process (``processor``).
    """
    attempts = counts.begun
    return {
        **{name: getattr(counts, name) for name in _SAME_SUMS},
        **{name: dict(getattr(counts, name)) for name in _SAME_TALLIES},
        "calls": attempts - counts.retries,
        "attempts": attempts,
        "slot_wait": counts.waited,
        "peak_in_flight": counts.peak,
        "latency": counts.durations.by_bucket(),
        "hot_keys": {repr(key): rows for key, rows in hot},
    }


def progress(counts: EngineCounts) -> dict[str, Any]:
    """Return the counters that show the progress of a run."""
    return {
        "attempts": counts.begun,
        "retries": counts.retries,
        "throttled": counts.throttled,
        "failures": sum(counts.kinds.copy().values()),
        "in_flight": counts.flying,
        "limited": dict(counts.limited),
    }


def merged(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the merged counters of several engines: sums, and maxima of the peaks."""
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
    """Return counts, and durations in milliseconds, for messages and events."""
    latency, windows = numbers["latency"], numbers["windows"]
    p50, p99 = (1000 * middle(quantile(latency, fraction)) if latency else 0.0 for fraction in (0.5, 0.99))
    return {
        **{name: numbers[name] for name in _SUMS if name not in ("slot_wait", "usage")},
        "failures": sum(numbers["failures"].values()),
        "peak_in_flight": numbers["peak_in_flight"],
        "latency.p50_ms": p50,
        "latency.p99_ms": p99,
        "window.min": min(windows, default=0),
        "window.median": quantile(windows, 0.5),
        "window.max": max(windows, default=0),
        "at_limit_ms": round(
            1000 * sum(spent for cause, spent in numbers["limited"].items() if cause not in ("upstream", "processor"))
        ),
        "slot_wait.mean_ms": numbers["slot_wait"] / numbers["calls"] * 1000 if numbers["calls"] else 0.0,
    }
