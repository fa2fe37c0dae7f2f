"""Telemetry of the dispatch: breaker changes and numbers for the driver's metrics."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from spark_events.dispatch.breaker import BreakerState
from spark_events.dispatch.counters import DeliveryCounters, statistics

__all__ = ["DispatcherTelemetry", "ReporterChange"]

#: Interval of the reports in seconds; a killed process loses only what it counted since the last report.
_STATS_SECONDS = 0.25


class ReporterChange(NamedTuple):
    """Change of a reporter's circuit breaker, or a reporter that is disabled.

    ``old`` is None for a reporter that was never enabled; ``at`` is in milliseconds since the epoch.
    """

    reporter: str
    old: str | None
    new: str
    why: str
    at: int


class DispatcherTelemetry:
    """Collect breaker changes from any thread for the main thread, and send counters.

    The main thread turns the changes into events.

    Args:
        wake: wakes the main thread.
        send: sends the numbers, grouped by reporter.
    """

    def __init__(
        self, wake: Callable[[], None], send: Callable[[dict[str, dict[str, int | float | str]]], None]
    ) -> None:
        self._wake = wake
        self._send = send
        self._changes: deque[ReporterChange] = deque()
        self._last: dict[str, dict[str, int | float | str]] = {}
        self._last_sent = 0.0
        # Two threads send numbers: the last numbers come from a different thread.
        self._sending = threading.Lock()

    def breaker_changed(self, reporter: str, old: BreakerState, new: BreakerState, why: str) -> None:
        """Note a breaker change; called on the reporter's thread.

        The main thread creates the event.
        """
        self._changes.append(ReporterChange(reporter, old.value, new.value, why, time.time_ns() // 1_000_000))
        self._wake()

    def disabled(self, reporter: str, why: str) -> None:
        """Note that a reporter is unusable and gets no events."""
        self._changes.append(ReporterChange(reporter, None, "disabled", why, time.time_ns() // 1_000_000))

    def take_changes(self) -> list[ReporterChange]:
        """Return the changes since the last call."""
        return [self._changes.popleft() for _ in range(len(self._changes))]

    def numbers(self, counters: Callable[[], dict[str, DeliveryCounters]], *, at_once: bool = False) -> None:
        """Send the numbers if they have changed, at most four times a second.

        Args:
            counters: returns the current counters by reporter.
            at_once: whether to ignore the interval.
        """
        # Reading and sending share one lock, so that older numbers are never sent after newer ones.
        with self._sending:
            now = time.monotonic()
            if at_once or now - self._last_sent >= _STATS_SECONDS:
                self._last_sent = now
                current = {name: statistics(one) for name, one in counters().items()}
                if current != self._last:
                    self._last = current
                    self._send(current)
