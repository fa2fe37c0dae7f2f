"""Seconds of a run by the size of the window, and by the cause that limits the calls in flight."""

from __future__ import annotations

from spark_events.enrichment.engine.admission import Admission
from spark_events.enrichment.engine.run import EngineRun
from spark_events.enrichment.engine.shared_window import SharedWindow
from spark_events.enrichment.engine.window import Window

__all__ = ["Occupancy"]


class Occupancy:
    """Count the time of a run by window size and by limiting cause, see :func:`.statistics.counted`.

    Args:
        run: the run, whose counters receive the times.
        admission: knows why attempts wait.
        window: the calls in flight.

    Attributes:
        is_full: whether rows wait for room in the buffer; the caller's thread sets this attribute.
    """

    def __init__(self, run: EngineRun, admission: Admission, window: Window | SharedWindow) -> None:
        self.is_full = False
        self._run = run
        self._admission = admission
        self._window = window
        self._sampled = 0.0

    def start(self) -> None:
        """Begin with the first sample."""
        self._sampled = self._run.clock()

    def sample(self, active: int) -> None:
        """Count the time since the last sample; ``active`` is the number of active runners."""
        now = self._run.clock()
        passed, self._sampled = now - self._sampled, now
        counts = self._run.counts
        counts.windows[self._window.whole] += passed
        if active > counts.flying and self._admission.cause:
            cause = self._admission.cause
        elif active < self._window.size:
            cause = "buffer" if self.is_full else "upstream"
        elif self._window.is_instant:
            cause = "processor"
        else:
            cause = "max_in_flight" if self._window.is_largest else "service"
        counts.limited[cause] += passed
