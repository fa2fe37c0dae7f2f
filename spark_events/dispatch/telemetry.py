"""Delivery counters and breaker changes, for the sidecar's reports and the driver's metrics."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from spark_events.dispatch.breaker import BreakerState
from spark_events.dispatch.mailbox import Counts

_DROPPED = "dropped."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryCounters(Counts):
    """Snapshot of one reporter's counters.

    Attributes:
        failures: attempts that raised an error or took too long.
        hung: number of threads that were abandoned because the reporter blocked them.
        latency: duration of the last batch in seconds, retries included.
        breaker: the state of the circuit breaker.
        timeouts: how often the driver waited for this reporter until the timeout.
        latencies: median and 99th percentile of the durations of the last batches in seconds.
        queue_usage: fraction of the queue's capacity that is in use; with a spool, of the buffer before the disk.
    """

    failures: int
    hung: int
    latency: float
    breaker: str
    timeouts: int = 0
    latencies: tuple[float, float] = (0.0, 0.0)
    queue_usage: float = 0.0

    @property
    def lost(self) -> int:
        """Number of dropped events, which are never delivered."""
        return sum(self.dropped.values())


def account(one: DeliveryCounters) -> dict[str, int]:
    """Return the counters of one reporter as plain numbers, for the final report."""
    return {
        "accepted": one.accepted,
        "delivered": one.delivered,
        "held": one.held,
        "spooled": one.spooled,
        "failures": one.failures,
        "timeouts": one.timeouts,
        **{f"{_DROPPED}{reason}": count for reason, count in one.dropped.items()},
    }


def with_those_before(
    counters: Mapping[str, DeliveryCounters], before: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Return the totals over all sidecars of an application.

    The current counters already include the events of earlier sidecars that are on disk, or that the driver has sent
    again. Therefore, of the earlier sidecars' counters, only failures, timeouts, delivered and dropped events are
    added.

    Args:
        counters: the current counters by reporter.
        before: the sum of the predecessors' last :func:`statistics`.
    """
    total = {name: account(one) for name, one in counters.items()}
    for name, counts_before in before.items():
        one = total.setdefault(name, {"accepted": 0, "delivered": 0, "held": 0, "spooled": 0})
        for key, count in counts_before.items():
            ended = key == "delivered" or key.startswith(_DROPPED)
            if ended:
                one["accepted"] += count
            if ended or key in ("failures", "timeouts"):
                one[key] = one.get(key, 0) + count
    return total


def statistics(one: DeliveryCounters) -> dict[str, int | float | str]:
    """Return the counters of one reporter in the format of the driver's metrics."""
    return {
        **account(one),
        "dropped": one.lost,
        "latency_ms": round(one.latency * 1000, 3),
        "latency_p50_ms": round(one.latencies[0] * 1000, 3),
        "latency_p99_ms": round(one.latencies[1] * 1000, 3),
        "queue_usage": round(one.queue_usage, 4),
        "breaker": one.breaker,
        "oldest_age_ms": round(one.oldest_age * 1000),
    }


#: Interval of the reports in seconds; a killed process loses only the counts since its last report.
_STATS_SECONDS = 0.25


class ReporterChange(NamedTuple):
    """Change of a reporter's circuit breaker, or a reporter that is disabled.

    ``old`` is None for a reporter that was never enabled. ``at`` is the time in milliseconds since the epoch.
    """

    reporter: str
    old: str | None
    new: str
    why: str
    at: int


class QueueChange(NamedTuple):
    """A reporter's queue has become nearly full, or that is over.

    ``usage`` is the fraction of its capacity that is in use; ``at`` is the time in milliseconds since the epoch.
    """

    reporter: str
    is_nearly_full: bool
    usage: float
    at: int


class DispatcherTelemetry:
    """Collect breaker changes from all threads for the main thread, and send counters.

    The main thread creates events from the changes.

    Args:
        wake: wakes the main thread.
        send: sends the numbers, grouped by reporter.

    Attributes:
        changes: the changes since the last call of :meth:`take_changes`.
    """

    def __init__(
        self, wake: Callable[[], None], send: Callable[[dict[str, dict[str, int | float | str]]], None]
    ) -> None:
        self._wake = wake
        self._send = send
        self.changes: deque[ReporterChange | QueueChange] = deque()
        self._last: dict[str, dict[str, int | float | str]] = {}
        self._last_sent = 0.0
        # Another thread sends the final numbers; the lock keeps the numbers of both threads in order.
        self._sending = threading.Lock()

    def breaker_changed(self, reporter: str, old: BreakerState, new: BreakerState, why: str) -> None:
        """Record a breaker change; called on the reporter's thread.

        The main thread later creates the event for this change.
        """
        self.changes.append(ReporterChange(reporter, old.value, new.value, why, time.time_ns() // 1_000_000))
        self._wake()

    def fullness_changed(self, reporter: str, is_nearly_full: bool, usage: float) -> None:
        """Record that a queue has become nearly full, or that this is over; called on the watch thread."""
        self.changes.append(QueueChange(reporter, is_nearly_full, usage, time.time_ns() // 1_000_000))
        self._wake()

    def disabled(self, reporter: str, why: str) -> None:
        """Record that a reporter is unusable and receives no events."""
        self.changes.append(ReporterChange(reporter, None, "disabled", why, time.time_ns() // 1_000_000))

    def take_changes(self) -> list[ReporterChange | QueueChange]:
        """Return the changes since the last call."""
        return [self.changes.popleft() for _ in range(len(self.changes))]

    def numbers(self, counters: Callable[[], dict[str, DeliveryCounters]], *, at_once: bool = False) -> None:
        """Send the counters if they have changed, at most four times a second.

        Args:
            counters: returns the current counters by reporter.
            at_once: whether to ignore the interval.
        """
        # Read and send the counters under one lock, so that newer numbers are always sent last.
        with self._sending:
            now = time.monotonic()
            if at_once or now - self._last_sent >= _STATS_SECONDS:
                self._last_sent = now
                current = {name: statistics(one) for name, one in counters().items()}
                if current != self._last:
                    self._last = current
                    self._send(current)
