"""Running tasks and executors in an event log, counted by the same rules as in the shim (``RunningWork.java``)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from spark_events.records.event_log.tasks import TaskCounts
from spark_events.records.types import ExecutorAdded, ExecutorRemoved, RunningStage, StageWaited

#: Shortest resource wait that produces a record, in milliseconds.
_LEAST_MILLIS = 1_000


class RunningWork:
    """Running tasks and executors at the current line of a log.

    Args:
        counts: the task counts of the stage attempts.
    """

    def __init__(self, counts: TaskCounts) -> None:
        self._counts = counts
        # Executor and stage of each running task.
        self._running: dict[int, tuple[str, int]] = {}
        self._idle_since = 0
        self._executors: dict[str, tuple[str, int]] = {}
        self._lost: dict[str, list[int]] = {}

    def started(self, task: int, executor: str, stage_id: int, at: int, time: int) -> Sequence[StageWaited]:
        """Add a running task; return the resource wait that the start of the task ends, if any."""
        waited = self.waited(at, time)
        self._running[task] = executor, stage_id
        return waited

    def ended(self, task: int, time: int, *, lost: bool) -> None:
        """Remove a task."""
        known = self._running.pop(task, None)
        if known is None:
            return
        if not self._running:
            self._idle_since = max(self._idle_since, time)
        if lost and known[0] in self._executors:
            self._lost.setdefault(known[0], []).append(known[1])

    def waited(self, at: int, time: int) -> Sequence[StageWaited]:
        """Return the resource wait of the oldest stage with waiting tasks, if no task runs."""
        if self._running:
            return ()
        for _, attempt in sorted(self._counts.attempts.items()):
            stage = attempt.stage
            since = max(stage.time, self._idle_since)
            if attempt.running + attempt.finished < stage.tasks and time - since >= _LEAST_MILLIS:
                waiting = RunningStage(
                    stage_id=stage.stage_id,
                    attempt=stage.attempt,
                    name=stage.name,
                    tasks=stage.tasks,
                    time=stage.time,
                    running=attempt.running,
                    finished=attempt.finished,
                    properties=stage.properties,
                )
                number = len(self._executors)
                return (StageWaited(at=at, stage=waiting, since=since, time=time, executors=number, cores=self.cores),)
        return ()

    @property
    def cores(self) -> int:
        """Number of cores of all executors."""
        return sum(cores for _, cores in self._executors.values())

    def executor_added(self, record: ExecutorAdded) -> None:
        """Add an executor."""
        self._executors[record.executor_id] = record.host, record.cores

    def executor_removed(self, record: ExecutorRemoved) -> ExecutorRemoved:
        """Remove an executor; return a record of the removal, with the executor's lost tasks."""
        executor = record.executor_id
        stages = self._lost.pop(executor, [])
        for task in [task for task, (owner, _) in self._running.items() if owner == executor]:
            stages.append(self._running.pop(task)[1])
            if not self._running:
                self._idle_since = max(self._idle_since, record.time)
        host, _ = self._executors.pop(executor, (None, 0))
        return msgspec.structs.replace(record, host=host, tasks=len(stages), stages=sorted(set(stages)))
