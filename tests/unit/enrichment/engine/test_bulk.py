"""Rows of a call for several: which of them may begin, and which wait for others."""

from __future__ import annotations

from enrich_engine import chunks_of
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_events.enrichment.engine.buffer import Buffer
from spark_events.enrichment.engine.bulk import Groups
from spark_events.enrichment.engine.calls import GroupCall, RowBatch

SIZE = 4


def batch_of(rows: range) -> RowBatch:
    (chunk,) = chunks_of(rows, len(rows))
    return RowBatch(chunk, 0.0, Buffer(100, 1 << 20, 1, lambda: None))


def taken(groups: Groups) -> list[int] | None:
    found = groups.take()
    if found is None:
        return None
    call = found[2]
    assert isinstance(call, GroupCall)
    return list(call.argument())


def test_rows_that_come_after_a_flush_go_with_those_that_wait_for_nobody() -> None:
    """What is said to be waiting can be taken: else workers would be made for it again and again."""
    groups = Groups(SIZE, lambda: None)
    groups.add(batch_of(range(2)), range(2))
    groups.flush()
    groups.add(batch_of(range(2, 3)), range(1))
    assert (groups.waiting, groups.held) == (1, 0)
    assert taken(groups) == [0, 1, 2]
    assert (groups.waiting, groups.held) == (0, 0)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(["take", "flush", 1, 2, 3, 5, 9]), max_size=30))
def test_what_is_waiting_can_be_taken_and_nothing_else(steps: list[str | int]) -> None:
    """In order, in calls that are not too large, and all of it once nothing more comes."""
    told: list[None] = []
    groups = Groups(SIZE, lambda: told.append(None))
    added = 0
    calls: list[list[int]] = []
    for step in steps:
        if step == "flush":
            groups.flush()
            assert groups.held == 0
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
    assert len(told) == len(calls)
    assert (groups.waiting, groups.held) == (0, 0)
