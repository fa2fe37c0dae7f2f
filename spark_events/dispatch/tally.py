"""What one reporter's attempts have cost so far: failures, blocked threads, latencies."""

from __future__ import annotations

from collections import deque

#: A reporter is fast if it accepts a batch within this time, in seconds. The dispatcher waits up to this long for space
#: in a fast reporter's mailbox.
QUICK_SECONDS = 0.01
#: Number of batches from which the quantiles of the latency are computed.
_BATCHES = 512


class Tally:
    """Counts of one reporter's attempts, over all its threads.

    Attributes:
        failures: attempts that raised an error or took too long.
        hung: number of threads that were abandoned because the reporter blocked them.
        batches: number of settled batches.
        timeouts: how often the driver waited for this reporter until the timeout.
        is_quick: whether the last batch was accepted quickly, and no wait for space has failed since.
    """

    def __init__(self) -> None:
        self.failures = self.hung = self.timeouts = self.batches = 0
        self.is_quick = True
        self._seconds: deque[float] = deque(maxlen=_BATCHES)

    def settled(self, seconds: float) -> None:
        """Record how long a batch took, retries included."""
        self.batches += 1
        self.is_quick = seconds < QUICK_SECONDS
        self._seconds.append(seconds)

    @property
    def latency(self) -> float:
        """Duration of the last batch in seconds; 0.0 before the first batch."""
        return self._seconds[-1] if self._seconds else 0.0

    def quantiles(self) -> tuple[float, float]:
        """Return the median and the 99th percentile of the last 512 batches' durations, in seconds."""
        ordered = sorted(self._seconds.copy())
        return (ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]) if ordered else (0.0, 0.0)
