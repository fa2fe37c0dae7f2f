"""What the dispatch tells of itself: breakers that change, and numbers for the driver's metrics."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from spark_events.dispatch.breaker import BreakerState
from spark_events.dispatch.counters import DeliveryCounters, statistics

__all__ = ["DispatcherTelemetry", "ReporterChange"]

#: As often as anybody looks: what was counted since then is forgotten with a process that is killed.
_STATS_SECONDS = 0.25


class ReporterChange(NamedTuple):
    """A reporter's circuit breaker went from one state to another, or the reporter is disabled.

    ``old`` is None for a reporter that was never enabled; ``at`` is in milliseconds since the epoch.
    """

    reporter: str
    old: str | None
    new: str
    why: str
    at: int


class DispatcherTelemetry:
    """Collects, from whatever thread, what the main one makes events of, and passes numbers on.

    Args:
        wake: wakes the main thread.
        send: takes the numbers, by reporter.
    """

    def __init__(
        self, wake: Callable[[], None], send: Callable[[dict[str, dict[str, int | float | str]]], None]
    ) -> None:
        self._wake = wake
        self._send = send
        self._changes: deque[ReporterChange] = deque()
        self._last: dict[str, dict[str, int | float | str]] = {}
        self._last_sent = 0.0
        # The last numbers come from another thread than those before.
        self._sending = threading.Lock()

    def breaker_changed(self, reporter: str, old: BreakerState, new: BreakerState, why: str) -> None:
        """From a reporter's thread: the event is made by the main one."""
        self._changes.append(ReporterChange(reporter, old.value, new.value, why, time.time_ns() // 1_000_000))
        self._wake()

    def disabled(self, reporter: str, why: str) -> None:
        """Note that a reporter cannot be used and gets no events."""
        self._changes.append(ReporterChange(reporter, None, "disabled", why, time.time_ns() // 1_000_000))

    def take_changes(self) -> list[ReporterChange]:
        """What has changed since the last call."""
        return [self._changes.popleft() for _ in range(len(self._changes))]

    def numbers(self, counters: Callable[[], dict[str, DeliveryCounters]], *, at_once: bool = False) -> None:
        """Passes the numbers on, four times a second while they change."""
        # Looked at and passed on in one: else what was counted before would come behind the last.
        with self._sending:
            now = time.monotonic()
            if at_once or now - self._last_sent >= _STATS_SECONDS:
                self._last_sent = now
                current = {name: statistics(one) for name, one in counters().items()}
                if current != self._last:
                    self._last = current
                    self._send(current)
