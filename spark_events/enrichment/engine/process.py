"""What a worker process keeps from one task to the next: its loop, open resources, caches, gates, breakers and rates.

Module state, because Spark makes ``__main__``'s globals anew for every task.
"""

from __future__ import annotations

import atexit
import gc
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from spark_events.enrichment.engine.breaker import DestinationBreaker
from spark_events.enrichment.engine.limits import Gate, RateLimit
from spark_events.enrichment.engine.loop import BackgroundLoop
from spark_events.enrichment.engine.resources import Resources
from spark_events.enrichment.engine.sharing import AnswerCache
from spark_events.enrichment.engine.watch import Watch

__all__ = ["LruCache", "Process", "close_unused", "current_process", "give_up"]

T = TypeVar("T")

#: Definitions whose caches, gates, breakers and rates are kept: more than a job has enrichments, for of those that take
#: turns none would be found again.
_MOST_KEPT = 16
_CLOSING_SECONDS = 5.0


class LruCache(Generic[T]):
    """A few things by their key; the one that was asked for longest ago goes first."""

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most = most
        self._things: OrderedDict[object, T] = OrderedDict()

    def get(self, key: object, make: Callable[[], T]) -> T:
        """The thing of this key, made when there is none."""
        if key not in self._things:
            self._things[key] = make()
            if len(self._things) > self._most:
                self._things.popitem(last=False)
        self._things.move_to_end(key)
        return self._things[key]


class Process:
    """One per worker process; see :func:`current_process`. All but ``background`` is for the loop's thread alone."""

    def __init__(self) -> None:
        self.background = BackgroundLoop()
        self.watch = Watch(self.background)
        self.resources = Resources()
        self.caches: LruCache[AnswerCache] = LruCache()
        self.gates: LruCache[Gate] = LruCache()
        self.breakers: LruCache[DestinationBreaker] = LruCache()
        self.rates: LruCache[RateLimit] = LruCache()

    def close(self) -> None:
        """Closes the resources, then the loop."""
        self._close_resources(used=True)
        self.watch.close()
        self.background.close(_CLOSING_SECONDS)

    def close_unused(self) -> None:
        """Closes the resources that no task is using: should one come all the same, it opens what it needs anew."""
        self._close_resources(used=False)

    def _close_resources(self, *, used: bool) -> None:
        closing = self.background.submit(self.resources.close(used=used))
        try:
            closing.result(_CLOSING_SECONDS)
        except Exception:
            # Whatever a resource does when it is closed, the process ends.
            closing.cancel()


_process: Process | None = None
_lock = threading.Lock()


def current_process() -> Process:
    """The state of this process, made when first asked for."""
    global _process  # noqa: PLW0603
    with _lock:
        if _process is None:
            _set_apart()
            _process = Process()
        return _process


def _set_apart() -> None:
    """Takes what is there already, modules above all, out of the garbage collector's sight; once a process.

    Answers that wait for their turn look to it like a growing heap, and for each such heap it would look at everything
    anew: that was a quarter of what a row costs, and a pause of 50 ms for all calls in flight.
    """
    if gc.get_freeze_count() == 0:
        gc.collect()  # else what is garbage now would stay for ever
        gc.freeze()


def give_up(process: Process) -> None:
    """A call holds this process's loop for ever; the tasks to come get another one."""
    global _process  # noqa: PLW0603
    with _lock:
        if _process is process:
            _process = None


def close_unused() -> None:
    """The last task of this process is over: a worker of Spark's ends without a word, and runs no exit handler."""
    with _lock:
        process = _process
    if process is not None:
        process.close_unused()


def _close() -> None:
    """At the exit of an interpreter that ends by itself, as Spark's workers do not."""
    global _process
    with _lock:
        process, _process = _process, None
    if process is not None:
        process.close()


def _forget() -> None:
    """After a fork the child has neither the thread nor a right to the parent's connections."""
    global _process, _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _process = None


atexit.register(_close)
os.register_at_fork(after_in_child=_forget)
