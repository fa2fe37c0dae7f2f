"""Counts the tasks of stage attempts: what the shim does while an application runs (``Stages.java``).

Both follow the same rules, so that a replayed log has the same edges as the live run had.
"""

from __future__ import annotations

__all__ = ["Attempt", "TaskCounts"]

_NOT_ALL = "NOT_ALL_RUNNING_OR_FINISHED"
_ALL = "ALL_RUNNING_OR_FINISHED"
_FINISHED = "ALL_FINISHED"


class Attempt:
    """One attempt of one stage.

    Attributes:
        running: tasks of which an attempt runs, and that have not finished.
        finished: tasks of which an attempt was successful.
        failed: attempts of tasks that were not.
        status: where the stage attempt stands.
    """

    __slots__ = ("_attempts", "_done", "failed", "finished", "number", "running", "stage_id", "status", "tasks")

    def __init__(self, stage_id: int, number: int, tasks: int) -> None:
        self.stage_id = stage_id
        self.number = number
        self.tasks = tasks
        self.running = 0
        self.finished = 0
        self.failed = 0
        self.status = _NOT_ALL
        # How many attempts of a task run, by its index: more than one where Spark speculates.
        self._attempts: dict[int, int] = {}
        self._done: set[int] = set()

    def started(self, index: int) -> bool:
        """An attempt of a task begins; whether the status is another one now."""
        attempts = self._attempts
        if index in attempts:
            attempts[index] += 1
        else:
            attempts[index] = 1
            if index not in self._done:
                self.running += 1
        return self._changed()

    def ended(self, index: int, successful: bool, resubmitted: bool) -> bool:
        """An attempt of a task is over; whether the status is another one now."""
        finished = index in self._done
        if resubmitted:
            # Its output went with its executor: this is no attempt that ends, but a success that is undone.
            if finished:
                self._done.discard(index)
                self.finished -= 1
                if index in self._attempts:
                    # A speculative copy that still runs is the task again.
                    self.running += 1
            return self._changed()
        attempts = self._attempts.get(index, 0)
        if attempts > 1:
            self._attempts[index] = attempts - 1
        elif attempts == 1:
            del self._attempts[index]
            if not finished:
                self.running -= 1
        if successful and not finished:
            if attempts > 1:
                self.running -= 1
            self._done.add(index)
            self.finished += 1
        elif not successful:
            self.failed += 1
        return self._changed()

    def _changed(self) -> bool:
        if self.finished == self.tasks:
            now = _FINISHED
        elif self.running + self.finished == self.tasks:
            now = _ALL
        else:
            now = _NOT_ALL
        changed = now is not self.status
        self.status = now
        return changed


class TaskCounts:
    """The stage attempts that are under way."""

    def __init__(self) -> None:
        self._attempts: dict[tuple[int, int], Attempt] = {}

    def submitted(self, stage_id: int, number: int, tasks: int) -> None:
        """A stage attempt begins."""
        self._attempts[stage_id, number] = Attempt(stage_id, number, tasks)

    def task_started(self, stage_id: int, number: int, index: int) -> Attempt | None:
        """The attempt, when its status has changed."""
        attempt = self._attempts.get((stage_id, number))
        if attempt is None or not 0 <= index < attempt.tasks:
            return None
        return attempt if attempt.started(index) else None

    def task_ended(self, stage_id: int, number: int, index: int, successful: bool, resubmitted: bool) -> Attempt | None:
        """The attempt, when its status has changed."""
        attempt = self._attempts.get((stage_id, number))
        if attempt is None or not 0 <= index < attempt.tasks:
            return None
        return attempt if attempt.ended(index, successful, resubmitted) else None

    def completed(self, stage_id: int, number: int) -> Attempt | None:
        """What is known of the attempt, for the last time; None where nothing is."""
        return self._attempts.pop((stage_id, number), None)
