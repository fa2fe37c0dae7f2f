"""Search for the best number of calls in flight: compares windows that are slightly larger or smaller.

The measure is the goodput of a full window: its size, times the fraction of answered calls, divided by their latency. A
window is compared with a slightly larger or smaller window. If a larger window hardly increases the goodput, calls
queue at the destination. If a larger window decreases the goodput, the destination is overloaded. The comparison needs
no knowledge about the destination, such as the base latency of TCP Vegas, which changes with the destination's load.

Calls by other clients hide the effect of this window: if this job makes a quarter of all calls, its part of the
goodput grows with its window even when the destination is overloaded. Therefore the goodput gain required of a larger
window rises with the signs of an overload: a latency above the lowest latency so far, or rejections. Calls of
a few milliseconds require little gain.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from spark_events.enrichment.engine.job_reports import ReportTuning
from spark_events.enrichment.settings import Auto

__all__ = ["Measurement", "WindowSearch", "WindowTuning"]


@dataclasses.dataclass(frozen=True, slots=True)
class WindowTuning:
    """Constants of the window. It has many fields, because each rule of the search has its own thresholds.

    The gain of a window is the growth of the goodput relative to the growth of the window, both as logarithms.

    Attributes:
        min_round_calls: minimum number of calls in a round, which also contains at least one window of calls.
        min_start_calls: the same, until the first comparison shows an effect on the latency.
        start_size: largest window whose rounds are short during the start.
        start_ratio: until then, a round contains this fraction of a window of calls.
        max_round_windows: with noisy latencies, maximum number of windows in a round.
        min_trial_windows: a trial has at least this number of windows, or as many as the round before it.
        min_round_seconds: minimum duration of a round, but at most ``max_min_calls`` calls. An event loop handles calls
            in groups, so the latencies of a shorter round are correlated.
        max_min_calls: see ``min_round_seconds``.
        fast_ratio: fraction of the calls, the fastest, that determines the mean latency. The slower calls are the tail,
            which queueing does not cause.
        min_latency: lower bound for the mean latency in seconds, because calls may return immediately.
        instant_latency: mean latency in seconds below which the processor limits the calls; such a round does not
            change the window.
        settle_ratio: after the window has grown, calls do not count for this time, relative to the latency.
        stuck_ratio: the trial of a larger window ends early if few calls have ended after this multiple of the latency.
        start_stuck_ratio: the same during the start, when a round has few calls.
        stuck_fraction: few calls are at most this fraction of the window. A larger one would be too strict if the
            latencies differ.
        clear_gain: if the gain that ends the start exceeds this value, the larger window is measured again.
        clear_loss: if it is between this value and ``clear_gain``, the smaller window is measured again.
        start_reject_ratio: fraction of rejections in the first round that ends the start.
        start_spread: smallest assumed spread of the latencies during the start, relative to their mean.
        min_gain: minimum gain of a larger window, without signs of an overload.
        min_gain_overloaded: the same with full signs of an overload.
        min_gain_to_continue: minimum gain for an immediate further growth.
        harmless_latency: mean latency in seconds up to which a queue is harmless. 5 ms is CoDel's acceptable queueing
            delay (RFC 8289).
        min_gain_harmless: minimum gain below ``harmless_latency``.
        start_significance: growth of the latency that ends the start, as a multiple of its standard error. The first
            rounds have few calls, whose latencies differ by chance.
        independent_gain: with at least this gain, the latency counts as independent of the window.
        baseline_growth: growth of the stored lowest latency, if a smaller window does not lower a high latency.
        baseline_errors: number of standard errors by which a latency must exceed the lowest latency.
        overload_latency_ratio: full sign of an overload: this multiple of the lowest latency, plus the harmless
            latency.
        overload_reject_ratio: full sign of an overload: this fraction of rejections.
        initial_step: logarithm of the ratio of two compared windows, after the first growth.
        min_step: smallest step.
        max_step: largest step.
        max_chained_step: largest step after successful steps.
        step_ratio: growth of the step after a success, and its decrease otherwise.
        significance: minimum size of a step, as a multiple of the standard error of the latency.
        max_rest_rounds: maximum number of rounds between two comparisons, after comparisons without a change.
        jump: if the logarithm of the cost of a call changes by more than this value, the window is compared
            immediately.
        forget_ratio: growth of the size that was too large, after each successful trial.
        large_jump: if it grows by more than this value, the window shrinks without a trial, by the square root of the
            growth.
        decrease_ratio: factor of the window after a timeout, or after a round without an answer.
        max_latencies: maximum number of latencies in a report. Of more latencies, a report contains evenly spaced
            quantiles.
        spare_ratio: if something else limits the calls of a process, its share is this multiple of its calls in flight,
            plus one.
        reports: times of the reports to the driver.
    """

    min_round_calls: int = 12
    min_start_calls: int = 2
    start_size: int = 8
    start_ratio: float = 0.5
    max_round_windows: int = 12
    min_trial_windows: float = 2.0
    min_round_seconds: float = 0.01
    max_min_calls: int = 60
    fast_ratio: float = 0.75
    min_latency: float = 1e-6
    instant_latency: float = 20e-6
    settle_ratio: float = 0.25
    stuck_ratio: float = 2.0
    start_stuck_ratio: float = 4.0
    stuck_fraction: float = 0.125
    min_gain: float = 0.25
    min_gain_overloaded: float = 0.7
    min_gain_to_continue: float = 0.7
    harmless_latency: float = 0.005
    min_gain_harmless: float = 0.1
    clear_gain: float = 0.5
    clear_loss: float = -0.25
    start_reject_ratio: float = 0.33
    start_spread: float = 0.5
    start_significance: float = 1.75
    independent_gain: float = 0.9
    baseline_growth: float = 1.5
    baseline_errors: float = 2.0
    overload_latency_ratio: float = 1.5
    overload_reject_ratio: float = 0.05
    initial_step: float = 0.25
    min_step: float = 0.08
    max_step: float = math.log(2)
    max_chained_step: float = 0.45
    step_ratio: float = 1.5
    significance: float = 3.0
    max_rest_rounds: int = 8
    jump: float = 0.25
    forget_ratio: float = 2.0
    large_jump: float = math.log(4)
    decrease_ratio: float = 0.5
    max_latencies: int = 128
    spare_ratio: float = 1.25
    reports: ReportTuning = dataclasses.field(default_factory=ReportTuning)


class Measurement(NamedTuple):
    """Result of a round.

    Attributes:
        latency: mean seconds of the fastest calls.
        error: relative standard error of this mean.
        rejected: fraction of rejected calls.
    """

    latency: float
    error: float
    rejected: float


class _Trial(NamedTuple):
    """The window with which a round is compared: its size, the logarithm of its cost, overload, and error."""

    size: int
    cost: float
    overload: float
    error: float


class WindowSearch:
    """Size of the window, changed after each round; pure logic.

    Args:
        bounds: smallest, largest and first size.
        tuning: constants.

    Attributes:
        size: allowed calls in flight.
        least: smallest size.
        is_starting: whether all trials so far were successful.
    """

    def __init__(self, bounds: Auto, tuning: WindowTuning) -> None:
        self.size, self.least = bounds.initial, bounds.min
        self.is_starting = True
        self._most = bounds.max
        self._tuning = tuning
        #: None if the current round is not a trial.
        self._trial: _Trial | None = None
        #: Logarithm of the latency of a call in seconds, fraction of rejections, and signs of an overload, in the last
        #: round without a trial.
        self._cost: float | None = None
        self._rejected = self._overload = 0.0
        self._lowest = math.inf
        #: Size of the next trial as a logarithm, and its direction.
        self._step, self._direction = tuning.max_step, 1
        #: Size of the latest window that was too large.
        self._too_large = math.inf
        #: Number of rounds until the next trial, and number of consecutive unsuccessful trials.
        self._rest = self._failed = 0
        self._set(self.size)

    @property
    def is_largest(self) -> bool:
        """Whether the window has reached its upper bound."""
        return self.size >= self._most

    @property
    def is_short(self) -> bool:
        """Whether the current round needs few calls, because it belongs to the start."""
        return self.is_starting and self.size <= self._tuning.start_size

    @property
    def is_compared(self) -> bool:
        """Whether the current round is a trial, after the start."""
        return self._trial is not None and not self.is_starting

    @property
    def tries_larger(self) -> bool:
        """Whether the current round tries a larger window."""
        return self._trial is not None and self.size > self._trial.size

    @property
    def step(self) -> float:
        """Logarithm of the ratio that the current round must be able to detect."""
        return self._step if self._trial is None else abs(math.log(self.size / self._trial.size))

    def max_rejected(self) -> float:
        """Return the fraction of rejections above which the trial of a larger window cannot succeed."""
        assert self._trial is not None
        return self._rejected + (1 - self._tuning.min_gain) * math.log(self.size / self._trial.size)

    def give_up(self) -> None:
        """End an unsuccessful trial."""
        self._judge(math.inf, Measurement(math.inf, 0.0, 0.0), overload=1.0)
        self._set(self.size)

    def decrease(self) -> None:
        """Shrink the window, because the destination is overloaded."""
        self._trial = self._cost = None
        self.is_starting = False
        self._direction, self._step, self._rest, self._failed = 1, self._tuning.initial_step, 0, 0
        self._set(self.size * self._tuning.decrease_ratio)

    def judge(self, round_: Measurement | None) -> None:
        """Choose the size of the next round, from the measurement of a full round; None: something else limited it."""
        if round_ is not None:
            old, mean, share = self.size, round_.latency, round_.rejected
            if not self.is_starting:
                # During the start, the mean of a few calls may be low by chance.
                self._lowest = min(self._lowest, mean)
            if self.is_starting and self._trial is None and share >= self._tuning.start_reject_ratio:
                self.is_starting = False
                self._step, self._direction = self._tuning.initial_step, -1
            # A rejected call waits for about the mean latency before its retry, so rejected and answered calls occupy
            # the window equally long.
            self._judge(math.log(mean / (1 - share)), round_, self._overload_of(round_))
            if self._trial is None or old == self._trial.size:
                self._rejected = share
        self._set(self.size)

    def _overload_of(self, round_: Measurement) -> float:
        """Return the strength of the signs of an overload, from 0 to 1."""
        tuning, share = self._tuning, round_.rejected
        # The lowest latency so far is the lowest of several samples.
        mean = round_.latency * (1 - tuning.baseline_errors * round_.error)
        ratio = max(1.0, (mean - tuning.harmless_latency) / self._lowest)
        slower = math.log(ratio) / math.log(tuning.overload_latency_ratio)
        return min(1.0, max(slower, share / tuning.overload_reject_ratio))

    def _judge(self, cost: float, round_: Measurement, overload: float) -> None:
        tuning = self._tuning
        trial, self._trial = self._trial, None
        if trial is not None:
            self._compare(trial, cost, round_, overload)
            return
        before, self._cost, self._overload = self._cost, cost, overload
        noise = tuning.significance * round_.error
        self._rest -= 1
        if before is not None and abs(cost - before) > max(tuning.jump, noise):
            # The destination has changed: try more calls if the destination has become faster, and fewer calls if it
            # has become slower.
            self._direction = 1 if cost < before else -1
            self._step = max(self._step, min(tuning.max_chained_step, abs(cost - before) / 2))
            self._rest = self._failed = 0
            self._too_large = math.inf
            if cost - before > tuning.large_jump:
                # Each trial would last as long as the slow calls. If the latency grows with the square of the overload,
                # the square root is exact. If calls queue, the window stays too large, and trials shrink it further.
                self._set(self.size * math.exp((before - cost) / 2))
                self._cost = None
                return
        if self._rest <= 0:
            self._try(max(self._step, noise), round_.error)

    def _try(self, step: float, error: float) -> None:
        """Try another window in the next round."""
        assert self._cost is not None
        ratio = math.exp(min(step, self._tuning.max_step) * self._direction)
        wanted = self.size * ratio
        if ratio > 1 and self.size < self._too_large:
            wanted = min(wanted, math.sqrt(self.size * self._too_large))
        tried = max(math.ceil(wanted), self.size + 1) if ratio > 1 else min(math.floor(wanted), self.size - 1)
        tried = min(max(tried, self.least), self._most)
        if tried == self.size:
            self._direction = -self._direction
            self.is_starting = False
            return
        self._trial = _Trial(self.size, self._cost, self._overload, error)
        self.size = tried

    def _compare(self, trial: _Trial, cost: float, round_: Measurement, overload: float) -> None:
        tuning, mean, error = self._tuning, round_.latency, round_.error
        ratio = math.log(self.size / trial.size)
        gain = 1 - (cost - trial.cost) / ratio
        noise = tuning.start_significance * math.hypot(error, trial.error)
        if self.is_starting and gain <= tuning.independent_gain and cost - trial.cost > noise:
            self.is_starting = False
            self._step = tuning.initial_step
            if gain > tuning.clear_gain:
                # Measure this window again, without the calls that filled it.
                self._trial = trial
                return
            if gain > tuning.clear_loss:
                # The few calls of the start do not show whether this window is too large: measure the smaller one.
                self.size, self._cost, self._step = trial.size, None, tuning.max_step
                return
        if self.is_starting:
            self._cost, self._overload = cost, overload
            self._try(self._step, error)
            return
        least = tuning.min_gain_harmless
        if mean >= tuning.harmless_latency:
            signs = overload if ratio > 0 else trial.overload
            least = tuning.min_gain + (tuning.min_gain_overloaded - tuning.min_gain) * signs
        if (gain > least) == (ratio > 0):
            # Continue in the same direction.
            self._cost, self._overload = cost, overload
            self._failed = self._rest = 0
            # The destination may have changed.
            self._too_large *= tuning.forget_ratio
            if ratio > 0 and gain < tuning.min_gain_to_continue:
                self._step = max(tuning.min_step, self._step / tuning.step_ratio)
                self.is_starting = False
                return
            self._step = max(self._step, min(tuning.max_chained_step, tuning.step_ratio * self._step))
            self._try(self._step, error)
            return
        if ratio < 0 and gain > tuning.independent_gain and overload >= 1:
            # The latency does not depend on this window, so a high latency does not indicate an overload.
            self._lowest = min(mean, tuning.baseline_growth * self._lowest)
        if ratio > 0:
            self._too_large = self.size
        self.size = trial.size
        # A much larger window may be too large although a slightly larger one is not.
        self._direction = 1 if ratio > tuning.max_chained_step else -self._direction
        self._step = min(tuning.initial_step, max(tuning.min_step, self._step / tuning.step_ratio))
        self._failed += 1
        self._rest = 0 if self._failed < 2 else min(tuning.max_rest_rounds, 2 ** (self._failed - 2))

    def _set(self, size: float) -> None:
        self.size = int(min(max(size, self.least), self._most))
        if self._trial is not None and self._trial.size == self.size:
            # The smallest size has grown, so this is no longer a trial.
            self._trial = None
