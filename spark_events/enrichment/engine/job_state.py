"""What the processes of one job share: the window, and the limits that the destination shows.

The driver has the :class:`JobState`; each task has a :class:`TaskState`, whose parts report to the parts of the job of
the same name, and receive their shares:

    TaskState                                       JobState
    SharedWindow  "window" ── CallReport, Share ──▶ JobWindow
    AllowedRate   "rate" ── RateReport, RateShare ─▶ JobRate
    LeasedCalls   "quota" ─ QuotaReport, QuotaLease ▶ JobQuota
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from spark_events.enrichment.engine.allowed_rate import AllowedRate
from spark_events.enrichment.engine.job_quota import JobQuota, QuotaLease, QuotaReport
from spark_events.enrichment.engine.job_rate import JobRate, RateReport, RateShare
from spark_events.enrichment.engine.job_window import CallReport, JobWindow, Share
from spark_events.enrichment.engine.leased_calls import LeasedCalls
from spark_events.enrichment.engine.quota import ReportedQuota
from spark_events.enrichment.engine.shared_window import SharedWindow
from spark_events.enrichment.engine.tuning import EngineTuning
from spark_events.enrichment.settings import Auto

__all__ = ["JobState", "Send", "TaskState"]

#: Sends a message to the part of the same name on the other side.
Send = Callable[[str, Sequence[Any]], None]


class JobState:
    """State of a destination for a job; thread-safe.

    Args:
        bounds: bounds of the calls in flight; None: each task has a fixed number.
        clock: monotonic time in seconds.
        tuning: constants of the algorithms.
    """

    def __init__(
        self,
        bounds: Auto | None,
        clock: Callable[[], float] = time.monotonic,
        tuning: EngineTuning | None = None,
    ) -> None:
        tuning = tuning or EngineTuning()
        self.window = None if bounds is None else JobWindow(bounds, clock, tuning.window)
        self.rate = JobRate(clock, tuning.allowed_rate)
        self.quota = JobQuota(clock, tuning.quota)

    def report(self, name: Hashable, part: str, body: Sequence[Any], send: Send) -> None:
        """Process a task's report.

        Args:
            name: the task.
            part: the part of the state.
            body: the report.
            send: sends a share to the task, from any thread, and neither waits nor reports.
        """
        if part == "rate":
            self.rate.report(name, RateReport(*body), functools.partial(send, part))
        elif part == "quota":
            self.quota.report(name, QuotaReport(*body), functools.partial(send, part))
        elif self.window is not None:
            self.window.report(name, CallReport(*body), functools.partial(send, part))

    def leave(self, name: Hashable) -> None:
        """Remove a task; the others use its shares."""
        self.rate.leave(name)
        self.quota.leave(name)
        if self.window is not None:
            self.window.leave(name)


class TaskState:
    """A task's part of the state of its job; used by the loop's thread only.

    Args:
        bounds: bounds of the calls in flight if the driver is unreachable; None: the task has a fixed number.
        clock: monotonic time in seconds.
        tuning: constants of the algorithms.
    """

    def __init__(
        self,
        bounds: Auto | None,
        clock: Callable[[], float] = time.monotonic,
        tuning: EngineTuning | None = None,
    ) -> None:
        tuning = tuning or EngineTuning()
        self._bounds = bounds
        self.window = None if bounds is None else SharedWindow(clock, tuning.window)
        self.rate = AllowedRate(clock, tuning.allowed_rate, holds=bounds is None)
        self._leased = LeasedCalls(clock, tuning.quota)
        self.quota = ReportedQuota(clock, leased=self._leased, tuning=tuning.quota)

    def connect(self, send: Send) -> None:
        """Report with this function from now on."""
        self.rate.connect(functools.partial(send, "rate"))
        self._leased.connect(functools.partial(send, "quota"))
        if self.window is not None:
            self.window.connect(functools.partial(send, "window"))

    def receive(self, part: str, body: Sequence[Any]) -> None:
        """Use another share."""
        if part == "rate":
            self.rate.receive(RateShare(*body))
        elif part == "quota":
            self._leased.receive(QuotaLease(*body))
        elif self.window is not None:
            self.window.receive(Share(*body))

    def go_alone(self) -> None:
        """Use a state of this process, because the driver is unreachable."""
        self.rate.go_alone()
        self.quota.go_alone()
        if self.window is not None and self._bounds is not None:
            self.window.go_alone(self._bounds)

    def leave(self) -> None:
        """Stop reporting, because the run has ended; the driver notices the end of the connection."""
        self.rate.leave()
        self._leased.leave()
        if self.window is not None:
            self.window.leave()
