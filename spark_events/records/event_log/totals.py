"""Totals of stage attempts and of the application.

The shim computes the same totals in a live run (``TaskTotals.java``). Memory peaks may be lower than in a live run: an
event log contains only the peaks that Spark measured when a task finished. With
``spark.eventLog.logStageExecutorMetrics``, it also contains the peaks that Spark measured when a stage completed.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from spark_events.records.cancellation import is_cancellation
from spark_events.records.event_log.memory_peaks import MeasuredMemory
from spark_events.records.event_log.shapes import EndedTask, TaskMetrics
from spark_events.records.event_log.sketch import Sketch
from spark_events.records.event_log.tasks import Outcome, TaskCounts
from spark_events.records.types import ApplicationTotals, StageTotals, TaskTotals

_NAMES = TaskTotals.__struct_fields__
_SPECULATIVE = _NAMES.index("speculative")
#: Sums that Spark measures in nanoseconds.
_NANOS = ("cpu_ms", "shuffle_write_ms")
_NANOS_PER_MILLI = 1_000_000
_COUNTS = ("jobs", "jobs_failed", "jobs_cancelled", "stages", "stages_failed", "stages_cancelled")
_NO_METRICS = TaskMetrics()


class _Sums:
    """Sums over ended task attempts, and the number of speculative copies, in the order of :class:`TaskTotals`."""

    __slots__ = ("_durations", "_inputs", "_peak", "_slowest", "_sums")

    def __init__(self) -> None:
        self._sums = [0] * len(_NAMES)
        self._peak = 0
        self._durations = Sketch()
        self._inputs = Sketch()
        self._slowest: EndedTask | None = None

    def add(self, task: EndedTask, outcome: Outcome, given: TaskMetrics | None) -> None:
        """Add an ended attempt.

        ``given`` is None if Spark recorded no metrics, for example because the executor was lost.
        """
        metrics = _NO_METRICS if given is None else given
        duration = task.finish_time - task.launch_time
        if duration < 0:
            duration = 0
        read, write = metrics.shuffle_read_metrics, metrics.shuffle_write_metrics
        files, output = metrics.input_metrics, metrics.output_metrics
        shuffled = read.remote_bytes_read + read.local_bytes_read
        delay = getting = 0
        if outcome is Outcome.SUCCEEDED:
            if given is not None:
                getting = task.finish_time - task.getting_result_time if task.getting_result_time > 0 else 0
                work = metrics.executor_run_time + metrics.executor_deserialize_time + metrics.result_serialization_time
                delay = duration - work - getting
                if delay < 0:
                    delay = 0
            if self._slowest is None or duration > self._durations.max:
                self._slowest = task
            self._durations.add(duration)
            self._inputs.add(files.bytes_read + shuffled)
        # One flat tuple: unpacking groups into it would take twice as long, for every task of a log.
        ended = (
            1, outcome is Outcome.FAILED, outcome is Outcome.KILLED, 0,
            task.speculative and outcome is Outcome.SUCCEEDED,
            duration, 0 if outcome is Outcome.SUCCEEDED else duration,
            metrics.executor_run_time, metrics.executor_cpu_time, metrics.jvm_gc_time,
            metrics.executor_deserialize_time, delay, metrics.result_serialization_time, getting,
            metrics.result_size, files.bytes_read, files.records_read, output.bytes_written, output.records_written,
            shuffled, read.total_records_read, read.fetch_wait_time,
            write.shuffle_bytes_written, write.shuffle_records_written, write.shuffle_write_time,
            metrics.memory_bytes_spilled, metrics.disk_bytes_spilled, 0,
        )  # fmt: skip
        self._sums = list(map(operator.add, self._sums, ended))
        if metrics.peak_execution_memory > self._peak:
            self._peak = metrics.peak_execution_memory

    def copy_started(self) -> None:
        """Count a speculative copy when it starts; a copy that loses may end after its stage."""
        self._sums[_SPECULATIVE] += 1

    def add_all(self, other: _Sums) -> None:
        """Add the sums of a stage attempt."""
        self._sums = list(map(operator.add, self._sums, other._sums))
        self._peak = max(self._peak, other._peak)

    def values(self) -> dict[str, int]:
        """Return the fields of :class:`TaskTotals`."""
        values = dict(zip(_NAMES, self._sums, strict=True), peak_execution_memory=self._peak)
        for name in _NANOS:
            values[name] //= _NANOS_PER_MILLI
        return values

    def of_stage(self, started: int, ended: int, cpus: int) -> StageTotals:
        """Return the totals of a stage attempt with these times."""
        slowest = self._slowest
        return StageTotals(
            **self.values(),
            cpus=cpus,
            started=started,
            ended=ended,
            duration_p50_ms=self._durations.quantile(50),
            duration_p95_ms=self._durations.quantile(95),
            duration_max_ms=self._durations.max,
            slowest_task=-1 if slowest is None else slowest.index,
            slowest_attempt=0 if slowest is None else slowest.attempt,
            slowest_executor="" if slowest is None else slowest.executor_id,
            slowest_host="" if slowest is None else slowest.host,
            largest_input_bytes=self._inputs.max,
            median_input_bytes=self._inputs.quantile(50),
        )


class Totals:
    """Totals of the running stage attempts and of the application.

    The totals cover the log up to the current line.

    Args:
        interval: minimum time between two records, in milliseconds; 0: no record before the application ends.
        tasks: the running tasks.

    Attributes:
        cpus: ``spark.task.cpus``.
        memory: memory that Spark has measured.
    """

    def __init__(self, interval: int, tasks: TaskCounts) -> None:
        self.cpus = 1
        self._interval = interval
        self._tasks = tasks
        self._stages: dict[tuple[int, int], _Sums] = {}
        # Sums of ended stage attempts, and of tasks that ended after their stage.
        self._ended = _Sums()
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._cores = 0
        self._core_ms = 0
        self._cores_since = 0
        self._knows_executors = False
        self.memory = MeasuredMemory()
        self._last_record = 0

    def started(self, time: int) -> None:
        """Begin the first interval.

        All executors are known: those that the log adds before the start, and all later ones.
        """
        self._last_record = time
        self._knows_executors = True

    def job_ended(self, failure: str | None) -> None:
        """Count a job; ``failure`` is the message of its exception."""
        self._count("jobs", failure)

    def _count(self, work: str, failure: str | None) -> None:
        self._counts[work] += 1
        if failure is not None:
            self._counts[f"{work}_{'cancelled' if is_cancellation(failure) else 'failed'}"] += 1

    def stage_submitted(self, stage_id: int, attempt: int) -> None:
        """Begin a stage attempt."""
        self._stages[stage_id, attempt] = _Sums()

    def copy_started(self, key: tuple[int, int]) -> None:
        """Count the start of a speculative copy in its stage attempt, or as that of the application."""
        self._stages.get(key, self._ended).copy_started()

    def task_ended(
        self,
        key: tuple[int, int],
        task: EndedTask,
        outcome: Outcome,
        metrics: TaskMetrics | None,
    ) -> None:
        """Add an ended task attempt to its stage attempt.

        If the stage attempt is unknown or has ended, add the task attempt to the application.
        """
        self._stages.get(key, self._ended).add(task, outcome, metrics)

    def stage_completed(
        self, key: tuple[int, int], started: int, ended: int, failure: str | None
    ) -> StageTotals | None:
        """Count and forget a stage attempt; return its totals.

        The result is None if the attempt is unknown: it began before the log, or Spark repeats the completion of a
        barrier stage.
        """
        stage = self._stages.pop(key, None)
        if stage is None:
            return None
        self._count("stages", failure)
        self._ended.add_all(stage)
        return stage.of_stage(started, ended, self.cpus)

    def cores(self, now: int, time: int) -> None:
        """Set the number of executor cores, valid from this time on."""
        self._core_ms += self._cores * max(0, time - self._cores_since)
        self._cores_since = max(self._cores_since, time)
        self._cores = now

    def due(self, at: int, time: int) -> Sequence[ApplicationTotals]:
        """Return the application's totals if the interval has passed."""
        if not self._interval or time - self._last_record < self._interval:
            return ()
        is_first = self._last_record == 0
        self._last_record = time
        return () if is_first else (self.of_application(at, time),)

    def of_application(self, at: int, time: int, *, final: bool = False) -> ApplicationTotals:
        """Return the application's totals, including the stages that are still running."""
        everything = _Sums()
        for sums in (self._ended, *self._stages.values()):
            everything.add_all(sums)
        available = self._core_ms + self._cores * max(0, time - self._cores_since) if self._knows_executors else 0
        totals = TaskTotals(**everything.values())
        busy = (totals.task_ms + self._tasks.open_ms(time)) * self.cpus
        return ApplicationTotals(
            at=at,
            time=time,
            final=final,
            **self._counts,
            totals=totals,
            # If the log lacks the end of a task, the task counts as running.
            busy_ms=min(busy, available) if available else busy,
            core_ms=available,
            cores_now=self._cores if available else 0,
            peak_driver_heap_bytes=self.memory.driver.heap,
            peak_executor_heap_bytes=self.memory.any_executor.heap,
            peak_driver_offheap_bytes=self.memory.driver.offheap,
            peak_executor_offheap_bytes=self.memory.any_executor.offheap,
            peak_driver_python_bytes=self.memory.driver.python,
            peak_executor_python_bytes=self.memory.any_executor.python,
        )
