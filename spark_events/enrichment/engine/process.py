"""State that a worker process keeps between tasks: loop, open resources, caches, windows, gates, breakers, rates.

The state belongs to this module, because Spark recreates the globals of ``__main__`` for every task.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from spark_events.enrichment.engine.allowed_rate import AllowedRate
from spark_events.enrichment.engine.breaker import DestinationBreaker
from spark_events.enrichment.engine.failure import type_of
from spark_events.enrichment.engine.gate import Gate
from spark_events.enrichment.engine.ledger import Ledger
from spark_events.enrichment.engine.loop import BackgroundLoop
from spark_events.enrichment.engine.quota import ReportedQuota
from spark_events.enrichment.engine.resources import Resources, ResourceTuning
from spark_events.enrichment.engine.sharing import AnswerCache
from spark_events.enrichment.engine.watch import Watch, WatchTuning
from spark_events.enrichment.engine.window import Window

__all__ = ["LruCache", "Process", "ProcessTuning", "close_unused", "current_process", "exchange", "give_up"]

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessTuning:
    """Limits of the state of a worker process.

    Attributes:
        max_kept: maximum number of definitions whose state is kept. The number is larger than the number of enrichments
            in a job; otherwise enrichments that take turns would evict each other's state.
        closing_seconds: time in which unused resources must close, including a wait for the loop.
        resources: limits of open resources.
        watch: thresholds of a blocked loop.
    """

    max_kept: int = 16
    closing_seconds: float = 5.0
    resources: ResourceTuning = dataclasses.field(default_factory=ResourceTuning)
    watch: WatchTuning = dataclasses.field(default_factory=WatchTuning)


_TUNING = ProcessTuning()


class LruCache(Generic[T]):
    """Cache for a few objects, which evicts the least recently used object."""

    def __init__(self, most: int = _TUNING.max_kept) -> None:
        self._most = most
        self._things: OrderedDict[object, T] = OrderedDict()

    def get(self, key: object, make: Callable[[], T]) -> T:
        """Return the object of a key; create it if it is missing."""
        if key not in self._things:
            self._things[key] = make()
            if len(self._things) > self._most:
                self._things.popitem(last=False)
        self._things.move_to_end(key)
        return self._things[key]


class Process:
    """State of the worker process, see :func:`current_process`.

    Only the loop's thread uses the attributes other than ``background`` and ``watch``.

    Args:
        background: the event loop; None: a new loop in its own thread.
        watch: detects calls that block the loop; None: a new watch.
        clock: monotonic time in seconds, the same as the loop's.
        tuning: limits.
    """

    def __init__(
        self,
        background: BackgroundLoop | None = None,
        watch: Watch | None = None,
        clock: Callable[[], float] = time.monotonic,
        tuning: ProcessTuning = _TUNING,
    ) -> None:
        self._tuning, most = tuning, tuning.max_kept
        self.background = background or BackgroundLoop()
        self.watch = watch or Watch(self.background, tuning.watch)
        self.clock = clock
        self.resources = Resources(tuning.resources)
        self.caches: LruCache[AnswerCache] = LruCache(most)
        self.windows: LruCache[Window] = LruCache(most)
        self.allowed: LruCache[AllowedRate] = LruCache(most)
        self.quotas: LruCache[ReportedQuota] = LruCache(most)
        self.gates: LruCache[Gate] = LruCache(most)
        self.breakers: LruCache[DestinationBreaker] = LruCache(most)
        self.ledgers: LruCache[Ledger] = LruCache(most)
        self._warned: set[str] = set()

    def warn_once(self, text: str) -> None:
        """Log a warning in the log of this process, once.

        The driver also logs the warning if it receives the task's report.
        """
        if text not in self._warned:
            self._warned.add(text)
            _LOG.warning("%s", text)

    def close_unused(self) -> None:
        """Close the resources that no task uses; a later task opens its resource again."""
        closing = self.background.submit(self.resources.close_unused())
        try:
            closing.result(self._tuning.closing_seconds)
        except Exception as error:
            # This error must not fail the task, whose answers are complete.
            closing.cancel()
            _LOG.warning(
                "closing did not end within %g s (%s): resource %s; the process no longer waits for it, and its "
                "connections end with the process: look for a call that blocks the event loop",
                self._tuning.closing_seconds,
                type_of(error),
                self.resources.names or "(none)",
            )


_process: Process | None = None
_lock = threading.Lock()


def current_process() -> Process:
    """Return the state of this process; create it on first use."""
    global _process  # noqa: PLW0603
    with _lock:
        if _process is None:
            _set_apart()
            _process = Process()
        return _process


def _set_apart() -> None:
    """Exclude existing objects, mainly modules, from garbage collection; has an effect once per process.

    The garbage collector treats waiting answers as a growing heap and would scan all objects in each full collection.
    In a measurement, these scans took a quarter of the time per row, and paused all calls in flight for 50 ms.
    """
    if gc.get_freeze_count() == 0:
        gc.collect()  # otherwise garbage that exists now would never be freed
        gc.freeze()


def exchange(process: Process | None) -> Process | None:
    """Replace the state of this process, and return the previous state; None: create a state on the next use."""
    global _process
    with _lock:
        previous, _process = _process, process
    return previous


def give_up(process: Process) -> None:
    """Discard the state of a process whose loop is blocked; later tasks use a new loop."""
    global _process  # noqa: PLW0603
    with _lock:
        if _process is process:
            _process = None


def close_unused() -> None:
    """Close unused resources after the last task, because a Spark worker exits without running exit handlers."""
    with _lock:
        process = _process
    if process is not None:
        process.close_unused()


def _forget() -> None:
    """Discard the state in a forked child, which has no loop thread and must not use its parent's connections."""
    global _process, _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _process = None


os.register_at_fork(after_in_child=_forget)
