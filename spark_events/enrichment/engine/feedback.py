"""What the calls of a worker process show about their destination."""

from __future__ import annotations

import dataclasses
import math

from spark_events.enrichment.engine.allowed_rate import AllowedRate
from spark_events.enrichment.engine.breaker import DestinationBreaker
from spark_events.enrichment.engine.failure import AttemptError
from spark_events.enrichment.engine.gate import Gate
from spark_events.enrichment.engine.quota import ReportedQuota
from spark_events.enrichment.engine.run import EngineRun
from spark_events.enrichment.engine.shared_window import SharedWindow
from spark_events.enrichment.engine.timeouts import Runner
from spark_events.enrichment.engine.window import Window

__all__ = ["DestinationState", "Feedback"]


@dataclasses.dataclass(frozen=True, slots=True)
class DestinationState:
    """State of a destination, which outlives a run.

    Attributes:
        gate: delays attempts while the destination asks for a pause, and after an outage.
        quota: delays attempts while all remaining calls of the destination are in flight or used.
        allowed: spaces attempts after the first rejection because of the rate.
        window: the calls in flight.
        breaker: detects an outage; None: not used.
    """

    gate: Gate
    quota: ReportedQuota
    allowed: AllowedRate
    window: Window | SharedWindow
    breaker: DestinationBreaker | None


class Feedback:
    """Report the outcomes of one run's attempts to the state of their destination.

    Args:
        run: the run.
        destination: the state that changes.
    """

    def __init__(self, run: EngineRun, destination: DestinationState) -> None:
        self.destination = destination
        self._run = run
        #: Number of attempts that have begun, and of answered attempts, at the last report.
        self._noted = (0, 0)
        self._answered = -math.inf
        retry = run.plan.retry
        self._honors = retry is None or retry.honor_retry_after

    def note_answers(self) -> None:
        """Report new attempts and answers to the allowed rate and the quota."""
        (begun, answers), self._noted = self._noted, (self._run.counts.begun, self._run.counts.answers)
        if self._noted[1] > answers:
            self._answered = self._run.clock()
        self.destination.allowed.passed(self._noted[0] - begun, self._noted[1] - answers)
        self.destination.quota.beat()

    @property
    def _is_answering(self) -> bool:
        """Whether the destination has answered calls lately; with slow calls, answers are farther apart."""
        longest = max(self._run.tuning.feedback.answer_seconds, 2 * self.destination.window.latency)
        return self._run.clock() - self._answered <= longest

    def measure(self, runner: Runner) -> None:
        """Report the latency of an attempt that the destination answered, but the pool has not measured."""
        window = self.destination.window
        if runner.attempted >= window.since:
            window.latencies.append(self._run.clock() - runner.attempted)
            if len(window.latencies) >= window.need and window.turn():
                self._run.resized()

    def answered(self) -> None:
        """Report an answered attempt; a rejection is also an answer."""
        if self.destination.breaker is not None:
            self.destination.breaker.succeeded()

    def failed(self, runner: Runner, failed: AttemptError) -> None:
        """Report a failed attempt."""
        run, to, call, verdict = self._run, self.destination, runner.call(), failed.verdict
        is_singled_out = call.is_singled_out and verdict.exceeds_rate
        asked = verdict.retry_after if self._honors else None
        self.note_answers()
        if asked is not None and not is_singled_out and not (verdict.crowded and self._is_answering):
            # If the condition is false, only this call waits: a single backend may be overloaded.
            # The destination may reject all calls in flight at once; in this case, the gate closes only once.
            run.counts.gate_closed += to.gate.close(asked, crowded=True)
        if verdict.crowded or verdict.timeout:
            # If the destination has answered other rows of the call, an overload is not the reason.
            report = to.window.rejected if verdict.crowded else to.window.timed_out
            if not call.is_served and report(runner.attempted):
                run.resized()
        elif verdict.throttled and not is_singled_out and not to.quota.rejected():
            to.allowed.rejected(runner.attempted, asked or 0.0, to.window.latency)
        if verdict.outage and not call.is_served:
            if to.breaker is not None:
                to.breaker.failed(failed.cause, to.gate, runner.attempted, is_silent=verdict.timeout)
        elif verdict.answered or failed.is_partial:
            self.answered()
            if not verdict.throttled or failed.is_partial:
                self.measure(runner)
