"""The counting of tasks: the same rules as in the shim's Stages.java."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_events.bridge.event_log.tasks import Attempt, TaskCounts

NOT_ALL, ALL, FINISHED = "NOT_ALL_RUNNING_OR_FINISHED", "ALL_RUNNING_OR_FINISHED", "ALL_FINISHED"


def counts(tasks: int) -> TaskCounts:
    made = TaskCounts()
    made.submitted(0, 0, tasks)
    return made


def start(counted: TaskCounts, index: int) -> str | None:
    changed = counted.task_started(0, 0, index)
    return None if changed is None else changed.status


def end(counted: TaskCounts, index: int, successful: bool = True, resubmitted: bool = False) -> str | None:
    changed = counted.task_ended(0, 0, index, successful, resubmitted)
    return None if changed is None else changed.status


def test_edges_are_told_when_the_status_changes_and_not_otherwise() -> None:
    """All run; one finishes, which changes nothing; all have finished."""
    stage = counts(2)
    assert [start(stage, 0), start(stage, 1)] == [None, ALL]
    assert [end(stage, 0), end(stage, 1)] == [None, FINISHED]


def test_a_failed_task_is_no_longer_running_until_it_is_tried_again() -> None:
    """It counts as a failed attempt."""
    stage = counts(1)
    assert [start(stage, 0), end(stage, 0, successful=False), start(stage, 0), end(stage, 0)] == [
        ALL,
        NOT_ALL,
        ALL,
        FINISHED,
    ]
    attempt = stage.completed(0, 0)
    assert attempt is not None
    assert attempt.failed == 1


def test_a_speculative_copy_is_the_same_task() -> None:
    """Two attempts of one task run as one; the first success finishes it, the other one's end is a failure."""
    stage = counts(2)
    assert [start(stage, 0), start(stage, 0), start(stage, 1)] == [None, None, ALL]
    assert end(stage, 0) is None
    assert end(stage, 0, successful=False) is None
    assert end(stage, 1) == FINISHED
    attempt = stage.completed(0, 0)
    assert attempt is not None
    assert (attempt.running, attempt.finished, attempt.failed) == (0, 2, 1)


def test_output_that_is_lost_undoes_a_success() -> None:
    """Resubmitted is no end of an attempt: it takes a finished task back."""
    stage = counts(2)
    assert [start(stage, 0), start(stage, 1), end(stage, 0), end(stage, 1)] == [None, ALL, None, FINISHED]
    assert end(stage, 0, successful=False, resubmitted=True) == NOT_ALL
    assert [start(stage, 0), end(stage, 0)] == [ALL, FINISHED]
    attempt = stage.completed(0, 0)
    assert attempt is not None
    assert attempt.failed == 0


def test_a_stage_without_tasks_is_told_when_anything_happens_at_all() -> None:
    """None run, none finish: there is never an edge."""
    stage = counts(0)
    assert start(stage, 0) is None
    assert stage.completed(0, 0) is not None


def test_what_belongs_to_no_known_stage_is_left_alone() -> None:
    """A stage that was never submitted, one that is over, an index that cannot be."""
    stage = counts(1)
    assert stage.task_started(1, 0, 0) is None
    assert stage.task_ended(0, 1, 0, True, False) is None
    assert start(stage, 1) is None
    assert start(stage, -1) is None
    stage.completed(0, 0)
    assert start(stage, 0) is None
    assert stage.completed(0, 0) is None


def test_a_stage_of_very_many_tasks_costs_what_it_uses() -> None:
    """A number of tasks that no stage has does not take memory."""
    stage = counts(2_000_000_000)
    assert start(stage, 30_000) is None
    assert end(stage, 30_000) is None


STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["start", "success", "failure", "resubmitted"])))


@settings(deadline=None)
@given(tasks=st.integers(1, 4), steps=STEPS)
def test_the_counts_are_those_of_a_plain_model(tasks: int, steps: list[tuple[int, str]]) -> None:
    """However starts and ends come, in whatever order, lost or twice."""
    counted = counts(tasks)
    running = [0] * tasks
    finished = [False] * tasks
    failed = 0
    status = NOT_ALL
    attempt: Attempt | None = None
    for index, step in steps:
        changed = (
            counted.task_started(0, 0, index)
            if step == "start"
            else counted.task_ended(0, 0, index, step == "success", step == "resubmitted")
        )
        if index < tasks:
            if step == "start":
                running[index] += 1
            elif step == "resubmitted":
                finished[index] = False
            else:
                running[index] = max(0, running[index] - 1)
                finished[index] |= step == "success"
                failed += step == "failure"
        busy = sum(1 for one, done in zip(running, finished, strict=True) if one and not done)
        done = sum(finished)
        now = FINISHED if done == tasks else ALL if busy + done == tasks else NOT_ALL
        assert (changed is not None) == (now != status)
        status = now
        if changed is not None:
            attempt = changed
            assert (changed.status, changed.finished, changed.failed) == (now, done, failed)
    completed = counted.completed(0, 0)
    assert completed is not None
    assert attempt is None or attempt is completed
    assert (completed.finished, completed.failed) == (sum(finished), failed)
