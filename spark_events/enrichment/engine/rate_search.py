"""Search for the rate that a destination allows, from the calls that it rejects (429).

If rejections request no pause, attempts stay slightly above the limit: a destination that rejects calls answers exactly
at its limit, so the answers per second are the limit. If a rejection also causes a pause (``Retry-After``), each one
costs time. The rate then follows from the calls between the rejections (:class:`.BucketFit`), attempts stay slightly
below, and exceed the estimate rarely.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable

from spark_events.enrichment.engine.bucket_fit import BucketFit, BucketFitTuning
from spark_events.enrichment.engine.job_reports import ReportTuning

__all__ = ["AllowedRateTuning", "RateSearch"]


@dataclasses.dataclass(frozen=True, slots=True)
class AllowedRateTuning:
    """Constants of the allowed rate. It has many fields, because the search has a rule for each kind of destination.

    Attributes:
        period: most common period of rate limits, in seconds; the first estimate covers one period.
        above: attempts relative to the estimate, if the destination's rejections request no pause.
        below: the same, if they request a pause.
        decrease_ratio: after a rejection that requests a pause, the rate is at most this multiple of the former rate.
        doubtful_ratio: a decrease below this multiple of a rate that has held for a period needs a second rejection.
        burst_seconds: assumed burst after the first rejection, in seconds of the rate.
        min_attempts: minimum number of attempts between two estimates.
        max_interval: maximum number of seconds between two estimates.
        early_reject_ratio: fraction of rejections above which a new estimate is made early.
        growth: initial growth of the rate without rejections.
        early_growth: initial growth if the first rejection came within a period.
        max_growth: largest growth (a doubling).
        search_growth: growth after a single rejection that requests a pause, because one rejection shows too little.
        search_interval: seconds between two such steps.
        patience: if rejections request pauses, seconds without a rejection before the rate grows.
        max_patience: maximum of ``patience``, which doubles with each rejection.
        min_rate: smallest rate.
        used_ratio: the rate counts as used, and may grow, from this fraction of its attempts.
        unanswered_ratio: factor of the rate after rejections only, without an answer.
        marks: number of times per period at which answers are counted.
        settle_seconds: minimum number of seconds between the first rejection and the first estimate.
        credit_seconds: maximum number of attempts that a late timer may start at once, as seconds of the rate.
        connect_seconds: time for which the first attempts of a task wait for the connection to the driver.
        all_report_seconds: time in which every process of the job reports.
        min_pause_ratio: minimum pause after a rejection, relative to the latency.
        spare_ratio: if something else limits a process's attempts, its share is this multiple of them, plus one.
        reports: times of the reports to the driver.
        fit: constants of the fit of a token bucket.
    """

    period: float = 1.0
    above: float = 1.02
    below: float = 0.98
    decrease_ratio: float = 0.97
    doubtful_ratio: float = 0.8
    burst_seconds: float = 0.5
    min_attempts: int = 10
    max_interval: float = 15.0
    early_reject_ratio: float = 0.25
    growth: float = 0.08
    early_growth: float = 0.1
    max_growth: float = 1.0
    search_growth: float = 0.2
    search_interval: float = 0.3
    patience: float = 30.0
    max_patience: float = 120.0
    min_rate: float = 0.1
    used_ratio: float = 0.8
    unanswered_ratio: float = 0.5
    marks: int = 20
    settle_seconds: float = 0.05
    credit_seconds: float = 0.02
    connect_seconds: float = 0.25
    all_report_seconds: float = 0.15
    min_pause_ratio: float = 1.5
    spare_ratio: float = 1.25
    reports: ReportTuning = dataclasses.field(default_factory=ReportTuning)
    fit: BucketFitTuning = dataclasses.field(default_factory=BucketFitTuning)


class RecentAnswers:
    """Number of answers in the last period; the caller passes the time.

    Attributes:
        total: number of all answers.
    """

    def __init__(self, now: float, period: float, marks: int) -> None:
        self.total = 0
        self._period = period
        self._interval = period / marks
        self._marks: deque[tuple[float, int]] = deque([(now, 0)])

    @property
    def first(self) -> float:
        """Begin of the time that counts."""
        return self._marks[0][0]

    @property
    def last(self) -> float:
        """Time of the last mark."""
        return self._marks[-1][0]

    @property
    def lately(self) -> int:
        """Number of answers since :attr:`first`."""
        return self.total - self._marks[0][1]

    def mark(self, now: float, *, forgets: bool) -> None:
        """Record the time; with ``forgets``, only the last period counts."""
        if now - self.last >= self._interval:
            self._marks.append((now, self.total))
            while forgets and len(self._marks) > 1 and self._marks[1][0] <= now - self._period:
                self._marks.popleft()


@dataclasses.dataclass(slots=True)
class _Estimate:
    """Time of the last estimate, answers until then, and attempts and rejections since then."""

    time: float
    answers: int = 0
    attempts: int = 0
    rejections: int = 0


class RateSearch:
    """Rate that a destination allows, as seen by all processes of a job; pure logic.

    An epoch begins with each pause and with each estimate. Only rejections of attempts of the current epoch count.

    Attributes:
        limits: whether attempts must wait.
        rate: attempts per second; infinite until the first rejection.
        free: the time at which the next attempt may start.
        epoch: the number of the epoch.
    """

    def __init__(self, clock: Callable[[], float], tuning: AllowedRateTuning) -> None:
        self._tuning = tuning
        self.limits = False
        self.rate, self.free, self.epoch = math.inf, 0.0, 0
        self._clock = clock
        self._fit = BucketFit(clock(), tuning.fit)
        self._recent = RecentAnswers(clock(), tuning.period, tuning.marks)
        #: Time until which the search awaits the answers to the calls that were in flight at the first rejection.
        self._settled = math.inf
        self._since = _Estimate(clock())
        #: Time of the latest rejection, or the end of the pause that it requested.
        self._rejected = -math.inf
        self._growth = tuning.growth
        self._pauses = self._doubts = False
        self._patience = tuning.patience

    @property
    def is_settling(self) -> bool:
        """Whether attempts pause until an estimate."""
        return self._settled < math.inf

    def passed(self, begun: int, answers: int) -> None:
        """Count further attempts and answers, and change the rate if it is time; called several times per second."""
        now, period = self._clock(), self._tuning.period
        self._since.attempts += begun
        if self.is_settling:
            # No attempt starts during the pause, so these attempts began before it.
            self._fit.reported_late(begun)
            begun = 0
        self._fit.passed(now, begun)
        self._recent.total += answers
        if now >= self._settled:
            self._settle(now)
        if now - self._recent.last > period:
            # No task has run since the previous call of this method, so this time shows nothing about the rate.
            self._begin(now)
        self._recent.mark(now, forgets=not self.is_settling)
        if self.rate == math.inf:
            return
        if self._pauses:
            self._grow(now)
            return
        tuning, elapsed = self._tuning, now - self._since.time
        is_far_off = self._since.rejections > tuning.early_reject_ratio * self._since.attempts >= 1
        interval = min(max(period, tuning.min_attempts / self.rate), tuning.max_interval)
        if (is_far_off and elapsed >= period / 2) or elapsed >= interval:
            self._estimate(now)

    def rejected(self, *, is_current: bool, asked: float, least: float) -> None:
        """Process a rejection.

        Args:
            is_current: whether the rejected attempt began in the current epoch.
            asked: seconds for which the destination asks to pause; all attempts pause for this time. 0: no pause.
            least: minimum number of seconds until the calls in flight have ended and all processes have reported.
        """
        now = self._clock()
        is_first = is_current and not self.is_settling
        self._fit.rejected(is_first=is_first)
        self._pauses |= asked > 0
        if not is_first:
            return
        self._since.rejections += 1
        self._rejected = max(self._rejected, now + asked)
        if self.rate == math.inf or self._pauses:
            # During the pause, the answers to the calls in flight arrive.
            self._settled = self.free = now + max(self._tuning.settle_seconds, least, asked)
            self.limits = True
            self.epoch += 1

    def _settle(self, now: float) -> None:
        """Make an estimate, after the calls in flight at a rejection have ended."""
        self._settled = math.inf
        self.epoch += 1
        if self._pauses:
            self._settle_after_pause(now)
            return
        self.limits = self._recent.lately > 0
        if not self.limits:
            # Other clients have used up the limit, so rows wait for their own back-off.
            self._growth = self._tuning.max_growth
            return
        if now - self._recent.first < self._tuning.period:
            # The destination may allow far more than the burst that it has accepted in less than a period.
            self._growth = self._tuning.early_growth
        self.rate = self._recent.lately / self._tuning.period
        self.free = max(self._recent.first, self._rejected - self._tuning.period) + self._tuning.period
        self._begin(max(now, self.free))

    def _settle_after_pause(self, now: float) -> None:
        tuning, was_unknown = self._tuning, self.rate == math.inf
        self._fit.passed(now, 0)
        # The rate has not grown since the last estimate.
        has_held = self._fit.active >= tuning.period and self._growth == tuning.growth
        rate, sustained = self._fit.rate(tuning.burst_seconds), self._fit.resume(tuning.period)
        if not rate:
            self.limits = self.rate < math.inf
            return
        if was_unknown:
            rate = min(rate, sustained) if self._rejected - self._recent.first < tuning.period else rate
        else:
            known = sustained if self._fit.has_changed else max(rate, sustained)
            # A rate that has held for a period is not given up for one rejection, which chance may have caused: a
            # pause too many costs less than half of the rate for 30 s.
            self._doubts = has_held and not self._doubts and known < tuning.doubtful_ratio * self.rate
            if self._doubts:
                known = self.rate
            rate = min(tuning.below * known, tuning.decrease_ratio * self.rate)
            self._patience = min(2 * self._patience, tuning.max_patience)
        self._growth = tuning.growth
        self.rate = max(rate, tuning.min_rate)
        self._begin(now)

    def _grow(self, now: float) -> None:
        """Increase a rate that the destination has not rejected for some time."""
        tuning, elapsed = self._tuning, now - self._since.time
        is_searching = self._fit.rejections < 2
        if self._settled < math.inf or elapsed < (tuning.search_interval if is_searching else tuning.period):
            return
        is_used = self._since.attempts > tuning.used_ratio * self.rate * elapsed
        if is_used and is_searching:
            self._growth = tuning.search_growth
            self.rate *= 1 + self._growth
        elif is_used and now - self._rejected > self._patience:
            self.rate *= 1 + self._growth
            self._growth = min(2 * self._growth, tuning.max_growth)
        self._begin(now)

    def _estimate(self, now: float) -> None:
        """Make an estimate from the answers since the last one, if rejections request no pause."""
        tuning = self._tuning
        got, elapsed = self._recent.total - self._since.answers, now - self._since.time
        if self._since.rejections and got and elapsed >= tuning.period / 2:
            self.rate = min(self.rate, got / elapsed * tuning.above)
            self._growth = tuning.growth
        elif self._since.rejections and elapsed > 0:
            self.rate *= tuning.below if got else tuning.unanswered_ratio
            self._growth = tuning.growth if got else tuning.max_growth
        elif self._since.attempts > tuning.used_ratio * self.rate * elapsed:
            self.rate *= 1 + self._growth
            self._growth = min(2 * self._growth, tuning.max_growth)
        self.rate = max(self.rate, tuning.min_rate)
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._since = _Estimate(now, self._recent.total)
        self.epoch += 1
