"""This process's share of the job's window.

The process reports its measurements to the :class:`.JobWindow`, in the driver or in this process, several times per
second, and receives its share after each change.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable

from spark_events.enrichment.engine.job_window import CallReport, JobWindow, Share
from spark_events.enrichment.engine.window import are_instant
from spark_events.enrichment.engine.window_search import WindowTuning
from spark_events.enrichment.settings import Auto

__all__ = ["SharedWindow"]


class SharedWindow:
    """This process's share of a job's window; has the methods and attributes of a :class:`Window`.

    Used by the loop's thread only. Until the first share arrives, one call may be in flight. Shares arrive between two
    reports, so no method returns that the share has changed.

    Args:
        clock: monotonic time in seconds.
        tuning: constants of the window.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, tuning: WindowTuning | None = None) -> None:
        self.latencies: list[float] = []
        self.since = math.inf
        self.is_idle = self.is_instant = False
        self._clock = clock
        self._tuning = tuning or WindowTuning()
        self._share = Share()
        self.need = self._share.part
        #: The report that is in preparation, time of the last one, and timer of the next one.
        self._draft, self._reported = CallReport(), -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._send: Callable[[CallReport], None] | None = None
        self._on_change: Callable[[], None] = lambda: None
        #: Whether this process uses its share, and the time from which calls of the current round count.
        self._uses_share, self._begins = False, math.inf

    @property
    def size(self) -> int:
        """Allowed calls in flight of this process."""
        return self._share.size

    @property
    def latency(self) -> float:
        """Mean seconds of a call of the job; 0 if unknown."""
        return self._share.latency

    @property
    def whole(self) -> int:
        """Size of the job's window."""
        return self._share.whole

    @property
    def is_largest(self) -> bool:
        """Whether the job's window has reached its upper bound."""
        return self._share.is_largest

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call a function when the share has changed."""
        self._on_change = listener

    def connect(self, send: Callable[[CallReport], None]) -> None:
        """Report with this function from now on; :meth:`receive` gets the shares."""
        self._send, self._share = send, self._share._replace(round=-1, has_begun=False)
        if self._uses_share:
            self._report()

    def go_alone(self, bounds: Auto) -> None:
        """Use a window of this process, because the driver is unreachable."""
        alone, loop = JobWindow(bounds, self._clock, self._tuning), asyncio.get_running_loop()

        def receive(share: Share) -> None:
            loop.call_soon(self.receive, share)

        self.connect(lambda report: alone.report(0, report, receive))

    def receive(self, share: Share) -> None:
        """Use another share."""
        last, self._share = self._share, share
        has_changed, is_new = share.size != last.size, share.round != last.round
        if is_new:
            self.latencies.clear()
            self._draft = CallReport(wanted=self._draft.wanted)
        if is_new or not last.has_begun:
            self._begins = self._clock() + share.delay if share.has_begun else math.inf
        # If the share has shrunk, the pool calls `begin` as soon as few enough calls are in flight.
        self._uses_share &= share.size >= last.size
        self.need, self.since = share.part, self._begins if self._uses_share else math.inf
        if has_changed:
            self._on_change()
        elif self._uses_share and not share.has_begun:
            self._report()

    def begin(self, now: float) -> None:
        """Start using the share. If ``now`` is infinite, too many calls are in flight; another call follows."""
        self.latencies.clear()
        self.need, self.since = self._share.part, max(now, self._begins)
        self._uses_share = now < math.inf
        if self._uses_share and not self._share.has_begun:
            self._report()

    def leave(self) -> None:
        """Stop reporting, because the run has ended; the driver notices the end of the connection."""
        self._send, self.since = None, math.inf
        if self._timer is not None:
            self._timer.cancel()

    def rejected(self, began: float) -> bool:
        """Count a call that the destination rejected because of an overload."""
        if began >= self.since:
            self._draft = self._draft._replace(rejected=self._draft.rejected + 1)
            self._report_soon()
        return False

    def timed_out(self, began: float) -> bool:
        """Halve the window after a timeout, but only once for all calls in flight."""
        if began >= self.since:
            self._draft = self._draft._replace(timed_out=True)
            self._report_soon()
        return False

    def beat(self, now: float, in_flight: float) -> bool:
        """Report at the heartbeat.

        ``in_flight`` is infinite if the job's limits delay calls: leases, and thus the calls in flight, change often.
        """
        if not self._uses_share and in_flight <= self.size:
            # Runners that wait, for example for `Retry-After`, make no calls, so only the calls in flight count.
            self.begin(now)
        if now - self._reported >= self._tuning.reports.max_interval:
            is_delayed = self.is_idle and in_flight == math.inf
            wanted = self._tuning.spare_ratio * in_flight + 1 if self.is_idle else math.inf
            self._draft = self._draft._replace(wanted=wanted, is_delayed=is_delayed)
            self.is_idle = False
            self._report()
        return False

    def turn(self) -> bool:
        """Report soon, because this process has its part of a round."""
        latencies = self.latencies
        if are_instant(latencies, self.whole, self._tuning):
            self.need = max(self._tuning.min_round_calls, self.whole)
            self.is_instant = len(latencies) >= self._tuning.min_round_calls
            if self.is_instant:
                latencies.clear()
            return False
        self.is_instant = False
        self.need = sys.maxsize
        self._report_soon()
        return False

    def _report_soon(self) -> None:
        if self._timer is None and self._send is not None:
            later = self._reported + self._tuning.reports.min_interval - self._clock()
            if later <= 0:
                self._report()
            else:
                self._timer = asyncio.get_running_loop().call_later(later, self._report)

    def _report(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._send is None:
            return
        draft, latencies = self._draft, self.latencies
        weight = math.ceil(len(latencies) / self._tuning.max_latencies)
        some = tuple(round(one, 7) for one in sorted(latencies)[weight // 2 :: weight]) if latencies else ()
        latencies.clear()
        self._draft, self._reported = CallReport(wanted=draft.wanted), self._clock()
        self.need = self._share.part
        share = self._share
        size = share.size if self._uses_share else 0
        self._send(draft._replace(round=share.round, size=size, latencies=some, weight=max(1, weight)))
