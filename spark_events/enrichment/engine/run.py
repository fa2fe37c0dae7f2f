"""Context of one run, which the parts of the engine share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from spark_events.enrichment.engine.failure import EndError, RowFailure
from spark_events.enrichment.engine.statistics import EngineCounts
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.signature import name_of

__all__ = ["EngineRun", "Signals"]


@dataclasses.dataclass(frozen=True, slots=True)
class Signals:
    """Callbacks of a run.

    Attributes:
        low: the largest number of waiting calls that counts as low.
        on_low: called when at most ``low`` calls wait, once for each batch.
        beat: called as the heartbeat of the loop.
        on_defect: called with an error raised by the engine itself, which must end the run.
    """

    low: int
    on_low: Callable[[], None]
    beat: Callable[[], None]
    on_defect: Callable[[BaseException], None]


class EngineRun:
    """Options, counters and callbacks of one run, and whether it still makes calls; used by the loop's thread only.

    Args:
        plan: the options of the enrichment.
        counts: the counters of the run.
        signals: callbacks of the engine.
        clock: monotonic time in seconds.

    Attributes:
        name: the function's name, for messages.
        timeout: seconds for one attempt; infinite: no limit.
        total: seconds for a call; infinite: no limit.
        is_direct: whether a call passes one row, and nothing else, to the function.
        stopping: whether the run is shutting down, so that no further call may start.
        refusal: the reason why no further attempts are made; None while attempts are made.
    """

    def __init__(self, plan: Plan, counts: EngineCounts, signals: Signals, clock: Callable[[], float]) -> None:
        self.plan = plan
        self.counts = counts
        self.signals = signals
        self.clock = clock
        self.name = name_of(plan.fn)
        self.timeout = math.inf if plan.timeout is None else plan.timeout
        self.total = math.inf if plan.total_timeout is None else plan.total_timeout
        self.is_direct = plan.batch_size is None and not plan.wants_context
        self.stopping = False
        self.refusal: RowFailure | None = None
        self._on_resize: list[Callable[[], None]] = []

    def refused(self) -> EndError:
        """Return the error that ends a call because of :attr:`refusal`."""
        assert self.refusal is not None
        return EndError(self.refusal.kind, self.refusal.message)

    def on_resize(self, listener: Callable[[], None]) -> None:
        """Call a function whenever a rejection or a timeout has changed the window."""
        self._on_resize.append(listener)

    def resized(self) -> None:
        """Report that a rejection or a timeout has changed the window."""
        for listener in self._on_resize:
            listener()
