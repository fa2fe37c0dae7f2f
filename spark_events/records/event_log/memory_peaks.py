"""The largest memory that Spark has measured in the driver, in any executor, and in each executor."""

from __future__ import annotations

import re

from spark_events.records.event_log.shapes import ExecutorPeaks
from spark_events.records.types import MemoryPeaks

__all__ = ["DRIVER", "MeasuredMemory"]

#: Executor id of the driver, which is the only executor of a local application.
DRIVER = "driver"
#: The failed task in Spark's message about a failed stage or job; the same as in ``MemoryPeaks.java``.
_FAILED_TASK = re.compile(r"\(TID \d+\) \(\S+ executor ([^\s)]+)\)")
#: Executors that are remembered, the last measured ones, because a long application may have had many.
_MOST_EXECUTORS = 10_000
_MOST_FAILURES = 64


class MeasuredMemory:
    """Peaks so far.

    Attributes:
        driver: those of the driver.
        any_executor: the highest of any executor.
    """

    def __init__(self) -> None:
        self.driver = ExecutorPeaks()
        self.any_executor = ExecutorPeaks()
        self._executors: dict[str, ExecutorPeaks] = {}
        # Executor of the last task that failed with a message.
        self._failed: dict[str, str] = {}

    def failed(self, executor: str, message: str) -> None:
        """Remember the executor of a failed task: Spark 4 repeats an error of user code without its task."""
        self._failed.pop(message, None)
        self._failed[message] = executor
        if len(self._failed) > _MOST_FAILURES:
            del self._failed[next(iter(self._failed))]

    def add(self, executor: str, peaks: ExecutorPeaks) -> None:
        """Include the peaks of an executor, or of the driver."""
        if executor == DRIVER:
            _raise(self.driver, peaks)
            return
        _raise(self.any_executor, peaks)
        own = self._executors.pop(executor, None) or ExecutorPeaks()
        _raise(own, peaks)
        self._executors[executor] = own
        if len(self._executors) > _MOST_EXECUTORS:
            del self._executors[next(iter(self._executors))]

    def of(self, failure: str) -> MemoryPeaks:
        """Return the peaks for the record of a failure.

        If Spark's message names the failed task, or is that of a task, the peaks are those of the task's executor.
        """
        task = _FAILED_TASK.search(failure)
        executor = task[1] if task else self._failed.get(failure, "")
        peaks = self.any_executor
        if executor:
            peaks = self.driver if executor == DRIVER else self._executors.get(executor, ExecutorPeaks())
        return MemoryPeaks(
            executor=executor,
            driver_heap=self.driver.heap,
            executor_heap=peaks.heap,
            executor_offheap=peaks.offheap,
            executor_python=peaks.python,
        )


def _raise(highest: ExecutorPeaks, peaks: ExecutorPeaks) -> None:
    # Comparisons instead of max(), which would take four times as long, for every task of a log.
    if peaks.heap > highest.heap:
        highest.heap = peaks.heap
    if peaks.offheap > highest.offheap:
        highest.offheap = peaks.offheap
    if peaks.python > highest.python:
        highest.python = peaks.python
