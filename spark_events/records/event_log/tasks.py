"""Task counts of stage attempts, as the shim counts them in a running application (``TaskCounts.java``).

An edge is a change of a stage attempt's status; its record has no ``at`` yet. This module and the shim follow the same
rules, so that a replay finds the same edges as the live run.

If the output of a task is lost with its executor, Spark resubmits the task. Spark reports the resubmission with the
time at which the task had finished, not the time of the loss. Therefore the edge stays pending until the next event
with a suitable time: the executor's removal, or the next start or completion of a task in the attempt.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Sequence

from spark_events.records.event_log.shapes import BlockManagerAddress
from spark_events.records.types import StageSubmitted, StageTasks

_NOT_ALL = "NOT_ALL_RUNNING_OR_FINISHED"
_ALL = "ALL_RUNNING_OR_FINISHED"
_FINISHED = "ALL_FINISHED"
#: Maximum number of removed executors to store. Spark may report a resubmission after the removal.
_REMEMBERED_EXECUTORS = 1_024


class Outcome(enum.Enum):
    """Outcome of a task attempt.

    KILLED: Spark ended the attempt or rejected its output because another attempt of the task succeeded first or the
    stage has ended.
    """

    SUCCEEDED = enum.auto()
    FAILED = enum.auto()
    KILLED = enum.auto()


class StageAttempt:
    """Task counts of one attempt of one stage.

    Attributes:
        stage: the record of the attempt's submission.
        running: number of unfinished tasks with a running attempt.
        failed: number of failed task attempts, without killed attempts.
        open: number of running task attempts.
        open_since: sum of the launch times of running task attempts, in milliseconds.
        fetched_from: the executor whose shuffle output a task most recently failed to fetch.
        status: the current status of the stage attempt.
        lost_executor: an executor whose output was lost; set while an edge is pending because this time is unknown.
    """

    __slots__ = (
        *("_attempts", "_done", "failed", "fetched_from", "lost_executor"),
        *("open", "open_since", "running", "stage", "status", "tasks"),
    )

    def __init__(self, stage: StageSubmitted) -> None:
        self.stage = stage
        self.tasks = stage.tasks
        self.running = 0
        self.failed = 0
        self.open = 0
        self.open_since = 0
        self.fetched_from = BlockManagerAddress()
        self.status = _NOT_ALL
        self.lost_executor: str | None = None
        # Number of running attempts per task index; above 1 with speculative execution.
        self._attempts: dict[int, int] = {}
        self._done: set[int] = set()

    @property
    def finished(self) -> int:
        """Number of tasks with a successful attempt."""
        return len(self._done)

    def started(self, index: int, launched: int) -> None:
        """Count the start of a task's attempt."""
        self.open += 1
        self.open_since += launched
        self._update(index, self._attempts.get(index, 0) + 1, done=index in self._done)

    def ended(self, index: int, outcome: Outcome, launched: int) -> None:
        """Count the end of a task's attempt."""
        attempts = self._attempts.get(index, 0)
        if attempts:
            self.open -= 1
            self.open_since -= launched
        self._update(index, max(0, attempts - 1), done=outcome is Outcome.SUCCEEDED or index in self._done)
        self.failed += outcome is Outcome.FAILED

    def output_lost(self, index: int) -> None:
        """Undo a successful task. A resubmission does not count as the completion of a task attempt."""
        self._update(index, self._attempts.get(index, 0), done=False)

    def _update(self, index: int, attempts: int, *, done: bool) -> None:
        """Set the number of a task's running attempts, and whether one attempt has succeeded."""
        was_running = index in self._attempts and index not in self._done
        if attempts:
            self._attempts[index] = attempts
        else:
            self._attempts.pop(index, None)
        if done:
            self._done.add(index)
        else:
            self._done.discard(index)
        self.running += (attempts > 0 and not done) - was_running

    def edge(self, time: int) -> StageTasks | None:
        """Return an edge (a status transition) if the status has changed, else None."""
        finished = len(self._done)
        if finished == self.tasks:
            now = _FINISHED
        elif self.running + finished == self.tasks:
            now = _ALL
        else:
            now = _NOT_ALL
        if now is self.status:
            return None
        self.status = now
        return StageTasks(
            stage_id=self.stage.stage_id,
            attempt=self.stage.attempt,
            time=time,
            status=now,
            tasks=self.tasks,
            running=self.running,
            finished=finished,
            failed=self.failed,
        )

    def date(self, time: int) -> StageTasks | None:
        """Return the pending edge with this time; None if no edge is pending."""
        if self.lost_executor is None:
            return None
        self.lost_executor = None
        return self.edge(time)


class TaskCounts:
    """Running stage attempts.

    Each method returns the edges (status transitions) that an event causes, usually none.

    Attributes:
        attempts: the running stage attempts, by stage and attempt.
    """

    def __init__(self) -> None:
        self.attempts: dict[tuple[int, int], StageAttempt] = {}
        self._removed: OrderedDict[str, int] = OrderedDict()

    def submitted(self, stage: StageSubmitted) -> None:
        """Begin a stage attempt."""
        self.attempts[stage.stage_id, stage.attempt] = StageAttempt(stage)

    def task_started(self, stage_id: int, number: int, index: int, time: int) -> Sequence[StageTasks]:
        """Count the start of a task's attempt."""
        attempt = self.attempts.get((stage_id, number))
        if attempt is None or not 0 <= index < attempt.tasks:
            return ()
        lost = None if attempt.lost_executor is None else attempt.date(time)
        attempt.started(index, time)
        return _edges(lost, attempt.edge(time))

    def task_ended(
        self, stage_id: int, number: int, index: int, outcome: Outcome, launched: int, time: int
    ) -> Sequence[StageTasks]:
        """Count the end of a task's attempt."""
        attempt = self.attempts.get((stage_id, number))
        if attempt is None or not 0 <= index < attempt.tasks:
            return ()
        lost = None if attempt.lost_executor is None else attempt.date(time)
        attempt.ended(index, outcome, launched)
        return _edges(lost, attempt.edge(time))

    def open_ms(self, time: int) -> int:
        """Return the total running time of the running task attempts, in milliseconds."""
        return sum(max(0, attempt.open * time - attempt.open_since) for attempt in self.attempts.values())

    def output_lost(self, stage_id: int, number: int, index: int, executor: str) -> Sequence[StageTasks]:
        """Undo a finished task whose output was lost with its executor."""
        attempt = self.attempts.get((stage_id, number))
        if attempt is None or not 0 <= index < attempt.tasks:
            return ()
        attempt.output_lost(index)
        if attempt.lost_executor is None:
            time = self._removed.get(executor)
            if time is not None:
                return _edges(None, attempt.edge(time))
            attempt.lost_executor = executor
        return ()

    def executor_removed(self, executor: str, time: int) -> Sequence[StageTasks]:
        """Return the edges pending on this executor's removal, with the time of the removal."""
        self._removed[executor] = time
        if len(self._removed) > _REMEMBERED_EXECUTORS:
            self._removed.popitem(last=False)
        waiting = [attempt for attempt in self.attempts.values() if attempt.lost_executor == executor]
        return [edge for attempt in waiting if (edge := attempt.date(time)) is not None]

    def completed(self, stage_id: int, number: int, time: int) -> tuple[Sequence[StageTasks], int]:
        """Remove a stage attempt; return the pending edge, if any, and the number of failed task attempts."""
        attempt = self.attempts.pop((stage_id, number), None)
        return ((), 0) if attempt is None else (_edges(attempt.date(time), None), attempt.failed)


def _edges(lost: StageTasks | None, own: StageTasks | None) -> Sequence[StageTasks]:
    if lost is None:
        # Nearly all tasks cause no edge.
        return () if own is None else (own,)
    return tuple(edge for edge in (lost, own) if edge is not None)
