"""Tests of bulk calls: the queue of their rows, and the effect of failed rows on later calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from enrich_engine import chunks_of
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_service import RejectedError
from virtual_engine import VirtualRun, virtual_now

from spark_events.enrichment.engine.buffer import RowBuffer
from spark_events.enrichment.engine.bulk import Groups
from spark_events.enrichment.engine.calls import GroupCall, RowBatch
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.settings import Auto

SIZE = 4


def batch_of(rows: range) -> RowBatch:
    (chunk,) = chunks_of(rows, len(rows))
    return RowBatch(chunk, 0.0, RowBuffer(100, 1 << 20, 1, lambda: None))


def taken(groups: Groups) -> list[int] | None:
    found = groups.take()
    if found is None:
        return None
    call = found[2]
    assert isinstance(call, GroupCall)
    return list(call.argument())


def test_rows_added_after_a_flush_join_the_flushed_rows() -> None:
    groups = Groups(SIZE, lambda _: None)
    groups.add(batch_of(range(2)), range(2))
    groups.flush()
    groups.add(batch_of(range(2, 3)), range(1))
    assert (groups.waiting, groups.held_back) == (1, 0)
    assert taken(groups) == [0, 1, 2]
    assert (groups.waiting, groups.held_back) == (0, 0)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(["take", "flush", 1, 2, 3, 5, 9]), max_size=30))
def test_exactly_the_waiting_rows_can_be_taken(steps: list[str | int]) -> None:
    """The queue returns all waiting rows once, in order, in calls of limited size. The last flush empties it."""
    notified: list[None] = []
    groups = Groups(SIZE, lambda _: notified.append(None))
    added = 0
    calls: list[list[int]] = []
    for step in steps:
        if step == "flush":
            groups.flush()
            assert groups.held_back == 0
        elif step == "take":
            waiting = groups.waiting
            call = taken(groups)
            assert (call is not None) == (waiting > 0)
            if call is not None:
                calls.append(call)
                assert groups.waiting == waiting - 1
        else:
            assert isinstance(step, int)
            groups.add(batch_of(range(added, added + step)), range(step))
            added += step
    groups.flush()
    while (call := taken(groups)) is not None:
        calls.append(call)
    assert [row for call in calls for row in call] == list(range(added))
    assert all(len(call) <= SIZE for call in calls)
    assert len(notified) == len(calls)
    assert (groups.waiting, groups.held_back) == (0, 0)


def failed_rows(answers: list[Any]) -> list[int]:
    return [row for row, answer in enumerate(answers) if isinstance(answer, RowFailure)]


@pytest.mark.parametrize(
    "error",
    [RejectedError(500), RejectedError(503), RejectedError(429), TimeoutError(), ConnectionError()],
    ids=["500", "503", "429", "timeout", "connection"],
)
def test_a_failed_row_of_an_answered_call_is_no_outage(error: Exception) -> None:
    """If each call has a row that always fails, all other rows are answered, and the calls in flight stay."""

    async def fn(rows: list[int]) -> list[Any]:
        await asyncio.sleep(0.03)
        return [error if row % 50 == 7 else row for row in rows]

    run = VirtualRun(fn, batch_size=50, total_timeout=10, max_in_flight=Auto(initial=20))
    answers = run.of(range(5000))
    assert failed_rows(answers) == list(range(7, 5000, 50))
    assert min(run.numbers["windows"]) >= 20


@pytest.mark.parametrize("answered", [0, 20])
def test_a_destination_that_stops_answering_is_down(answered: int) -> None:
    """If all rows of the calls fail, the destination counts as down, even if calls were answered in part before."""

    async def fn(rows: list[int]) -> list[Any]:
        await asyncio.sleep(0.03)
        return [row if row < 50 * answered and row % 50 else ConnectionError("refused") for row in rows]

    run = VirtualRun(fn, batch_size=50)
    answers = run.of(range(50_000))
    assert {answer.kind for answer in answers[-1000:]} == {"circuit-open"}
    assert run.seconds < 15
    assert run.numbers["attempts"] < 400


def test_rejected_rows_lower_the_rate() -> None:
    """If the service rejects rows above its rate, and answers the other rows of the call, the calls slow down."""
    tokens, filled, rejected = 1000.0, 0.0, 0

    async def fn(rows: list[int]) -> list[Any]:
        nonlocal tokens, filled, rejected
        now = virtual_now()
        tokens, filled = min(1000.0, tokens + 1000 * (now - filled)), now
        accepted = min(len(rows), int(tokens))
        tokens -= accepted
        rejected += len(rows) - accepted
        await asyncio.sleep(0.03)
        return [*rows[:accepted], *[RejectedError(429)] * (len(rows) - accepted)]

    run = VirtualRun(fn, batch_size=25)
    assert run.of(range(20_000)) == list(range(20_000))
    assert run.seconds < 22
    assert rejected < 0.5 * 20_000
