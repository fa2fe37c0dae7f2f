"""What one engine counts while it runs."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.histogram import buckets

__all__ = ["EngineCounts"]


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
