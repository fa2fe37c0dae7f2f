"""Context of one run, which the parts of the engine share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from spark_events.enrichment.engine.bulk import Misfit
from spark_events.enrichment.engine.failure import EndError, RowFailure
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.job_state import TaskState
from spark_events.enrichment.engine.keys import HotKeys
from spark_events.enrichment.engine.process import Process
from spark_events.enrichment.engine.statistics import EngineCounts
from spark_events.enrichment.engine.tuning import EngineTuning
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.signature import name_of

__all__ = ["Definition", "EngineRun", "RunInputs", "Signals"]


@dataclasses.dataclass(frozen=True, slots=True)
class Definition:
    """Digests, computed on the driver, that identify reusable state of the worker process.

    Unpickling creates a new function object in every task, so functions are compared by these digests.

    Attributes:
        calls: digest of the function, the schema of its answers and the resource. It is the key of the Retry-After
            gate and of the reported quota: consecutive tasks of this process share them. All tasks of the job share the
            window and the allowed rate; without the driver, consecutive tasks of this process share them. The key of
            the window includes its smallest and largest size.
        answers: digest of ``calls`` and of the names and types of the request columns. It is the key of the cache. The
            types are needed because a request contains only values, and 1, 1.0 and true are equal.
        resource: digest of the function that opens the resource; the key under which the open resource is stored.
        batch: identity of this run of this micro-batch, different in a replay. It is the key of the circuit breaker, so
            that later tasks of this process know that the destination is down.
    """

    calls: str
    answers: str
    resource: str
    batch: str


@dataclasses.dataclass(frozen=True, slots=True)
class RunInputs:
    """What a task passes to its engine; :class:`.Engine` describes the fields."""

    plan: Plan
    definition: Definition
    misfit: Misfit | None
    share: JobShare | None
    shared: TaskState | None
    tuning: EngineTuning


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
    """Inputs, counters and callbacks of one run, and whether it still makes calls; used by the loop's thread only.

    Args:
        inputs: what the task passes.
        process: the worker process, whose state outlives the run.
        counts: the counters of the run.
        hot: counts rows per key.
        signals: callbacks of the engine.

    Attributes:
        plan: the options of the enrichment.
        tuning: constants of the algorithms.
        clock: monotonic time in seconds.
        name: the function's name, for messages.
        timeout: seconds for one attempt; infinite: no limit.
        total: seconds for a call; infinite: no limit.
        is_direct: whether a call passes one row, and nothing else, to the function.
        stopping: whether the run is shutting down, so that no further call may start.
        refusal: the reason why no further attempts are made; None while attempts are made.
    """

    def __init__(
        self, inputs: RunInputs, process: Process, counts: EngineCounts, hot: HotKeys, signals: Signals
    ) -> None:
        self.inputs = inputs
        self.process = process
        self.counts = counts
        self.hot = hot
        self.signals = signals
        self.plan = plan = inputs.plan
        self.tuning = inputs.tuning
        self.clock = process.clock
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
