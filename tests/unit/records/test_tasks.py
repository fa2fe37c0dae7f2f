"""Tests of task counts, which follow the same rules as TaskCounts.java in the shim."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_events.records.event_log.logged_failures import Failures
from spark_events.records.event_log.shapes import TaskEndReason
from spark_events.records.event_log.tasks import Outcome, TaskCounts
from spark_events.records.types import StageSubmitted, StageTasks

T = 1_500_000_000_000
NOT_ALL, ALL, FINISHED = "NOT_ALL_RUNNING_OR_FINISHED", "ALL_RUNNING_OR_FINISHED", "ALL_FINISHED"


def submitted(stage_id: int, tasks: int) -> StageSubmitted:
    return StageSubmitted(stage_id=stage_id, attempt=0, name="count at x.py:1", tasks=tasks, time=T)


def counts(tasks: int) -> TaskCounts:
    made = TaskCounts()
    made.submitted(submitted(0, tasks))
    return made


def start(counted: TaskCounts, index: int) -> str | None:
    return only(counted.task_started(0, 0, index, T))


def end(counted: TaskCounts, index: int, outcome: Outcome = Outcome.SUCCEEDED) -> str | None:
    return only(counted.task_ended(0, 0, index, outcome, T, T))


def only(edges: Sequence[StageTasks]) -> str | None:
    assert len(edges) <= 1
    return edges[0].status if edges else None


def summaries(edges: Sequence[StageTasks]) -> list[tuple[str, int, int, int]]:
    return [(edge.status, edge.time, edge.running, edge.finished) for edge in edges]


def test_only_status_changes_make_records() -> None:
    """Only a status change of a stage causes a record. If only one of two tasks ends, no record is sent."""
    stage = counts(2)
    assert [start(stage, 0), start(stage, 1)] == [None, ALL]
    assert [end(stage, 0), end(stage, 1)] == [None, FINISHED]


def test_failed_task_is_not_running_until_its_retry() -> None:
    """Until its retry starts, a failed task counts as not running, and its attempt counts as failed."""
    stage = counts(1)
    assert [start(stage, 0), end(stage, 0, Outcome.FAILED), start(stage, 0), end(stage, 0)] == [
        ALL,
        NOT_ALL,
        ALL,
        FINISHED,
    ]
    assert stage.completed(0, 0, T) == ((), 1)


def test_a_speculative_copy_is_the_same_task() -> None:
    """A speculative copy is an attempt of the same task: the first success counts; the other attempt is no failure."""
    stage = counts(2)
    assert [start(stage, 0), start(stage, 0), start(stage, 1)] == [None, None, ALL]
    assert end(stage, 0) is None
    assert end(stage, 0, Outcome.KILLED) is None
    assert stage.task_ended(0, 0, 1, Outcome.SUCCEEDED, T, T) == (
        StageTasks(stage_id=0, attempt=0, time=T, status=FINISHED, tasks=2, running=0, finished=2, failed=0),
    )
    assert stage.completed(0, 0, T) == ((), 0)


def test_the_exceptions_of_the_latest_failed_tasks_are_stored() -> None:
    """The exceptions of the most recent failed tasks are stored. Of equal messages, the latest exception is used."""
    failures = Failures()
    for number in range(65):
        reason = TaskEndReason("ExceptionFailure", "a.B", f"row {number % 64}", f"a.B: row {number}")
        failures.note(number, (0, number // 64), reason)
    found = [failures.trace_of_task(stage, f"row {number}") for stage in ((0, 0), (0, 1)) for number in (0, 1)]
    assert found == [None, "a.B: row 1", "a.B: row 64", None]


def half_done() -> TaskCounts:
    """Return the counts of two started tasks: one has finished and then lost its output."""
    stage = counts(2)
    assert [start(stage, 0), start(stage, 1), end(stage, 0)] == [None, ALL, None]
    assert stage.output_lost(0, 0, 0, "7") == ()
    return stage


def test_lost_output_undoes_a_success() -> None:
    """The resubmission of a finished task reverts its success. It neither ends an attempt nor counts as a failure."""
    stage = half_done()
    assert summaries(stage.executor_removed("7", T + 60)) == [(NOT_ALL, T + 60, 1, 0)]
    assert stage.output_lost(0, 0, 0, "7") == ()
    assert [start(stage, 0), end(stage, 0), end(stage, 1)] == [ALL, None, FINISHED]
    assert stage.completed(0, 0, T) == ((), 0)


def test_a_resubmission_reported_after_the_removal_has_the_removal_s_time() -> None:
    stage = counts(2)
    assert [start(stage, 0), start(stage, 1), end(stage, 0)] == [None, ALL, None]
    stage.executor_removed("7", T + 60)
    assert summaries(stage.output_lost(0, 0, 0, "7")) == [(NOT_ALL, T + 60, 1, 0)]


@pytest.mark.parametrize(
    ("happens", "edges"),
    [
        (lambda s: s.task_started(0, 0, 0, T + 60), [(NOT_ALL, T + 60, 1, 0), (ALL, T + 60, 2, 0)]),
        (lambda s: s.task_ended(0, 0, 1, Outcome.FAILED, T, T + 60), [(NOT_ALL, T + 60, 1, 0)]),
        (lambda s: s.completed(0, 0, T + 60)[0], [(NOT_ALL, T + 60, 1, 0)]),
    ],
    ids=["start", "end", "completed"],
)
def test_lost_output_is_dated_by_the_next_event_of_its_stage(
    happens: Callable[[TaskCounts], Sequence[StageTasks]], edges: list[tuple[str, int, int, int]]
) -> None:
    """If the stage's next event precedes the executor's removal, the loss of output has this event's timestamp."""
    stage = half_done()
    stage.submitted(submitted(1, 2))
    assert stage.executor_removed("8", T + 50) == []
    assert stage.task_started(1, 0, 0, T + 50) == ()
    assert summaries(happens(stage)) == edges
    assert stage.executor_removed("7", T + 61) == []


def test_a_stage_without_tasks_has_no_status_changes() -> None:
    """A stage without tasks causes no status changes, because no task starts or finishes."""
    stage = counts(0)
    assert start(stage, 0) is None
    assert stage.completed(0, 0, T) == ((), 0)


def test_tasks_of_unknown_stages_are_ignored() -> None:
    stage = counts(1)
    assert stage.task_started(1, 0, 0, T) == ()
    assert stage.task_ended(0, 1, 0, Outcome.SUCCEEDED, T, T) == ()
    assert stage.output_lost(0, 1, 0, "7") == ()
    assert start(stage, 1) is None
    assert start(stage, -1) is None
    stage.completed(0, 0, T)
    assert start(stage, 0) is None
    assert stage.completed(0, 0, T) == ((), 0)


def test_a_stage_with_many_tasks_allocates_on_use() -> None:
    """A stage with a huge number of tasks allocates memory only for the tasks that run."""
    stage = counts(2_000_000_000)
    assert start(stage, 30_000) is None
    assert end(stage, 30_000) is None


STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["start", "resubmitted", *Outcome])))


@settings(deadline=None)
@given(tasks=st.integers(1, 4), steps=STEPS)
def test_the_counts_equal_a_simple_model(tasks: int, steps: list[tuple[int, str | Outcome]]) -> None:
    """Even if starts and ends are reordered, lost or repeated, the counts equal those of a simple model."""
    counted = counts(tasks)
    running = [0] * tasks
    finished = [False] * tasks
    failed = 0
    status = NOT_ALL
    counted.executor_removed("7", T)
    for index, step in steps:
        if step == "start":
            edges = counted.task_started(0, 0, index, T)
        elif step == "resubmitted":
            edges = counted.output_lost(0, 0, index, "7")
        else:
            assert isinstance(step, Outcome)
            edges = counted.task_ended(0, 0, index, step, T, T)
        if index < tasks:
            if step == "start":
                running[index] += 1
            elif step == "resubmitted":
                finished[index] = False
            else:
                running[index] = max(0, running[index] - 1)
                finished[index] |= step is Outcome.SUCCEEDED
                failed += step is Outcome.FAILED
        busy = sum(1 for one, done in zip(running, finished, strict=True) if one and not done)
        done = sum(finished)
        now = FINISHED if done == tasks else ALL if busy + done == tasks else NOT_ALL
        assert [(edge.status, edge.running, edge.finished, edge.failed) for edge in edges] == (
            [] if now == status else [(now, busy, done, failed)]
        )
        status = now
    assert counted.completed(0, 0, T) == ((), failed)
