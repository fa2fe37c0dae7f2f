"""Tests of the queue of bulk calls: which rows may start a call, and which rows wait."""

from __future__ import annotations

from enrich_engine import chunks_of
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_events.enrichment.engine.buffer import RowBuffer
from spark_events.enrichment.engine.bulk import Groups
from spark_events.enrichment.engine.calls import GroupCall, RowBatch

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
    """Rows that arrive after a flush can be in the same call as the flushed rows."""
    groups = Groups(SIZE, lambda: None)
    groups.add(batch_of(range(2)), range(2))
    groups.flush()
    groups.add(batch_of(range(2, 3)), range(1))
    assert (groups.waiting, groups.held) == (1, 0)
    assert taken(groups) == [0, 1, 2]
    assert (groups.waiting, groups.held) == (0, 0)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(["take", "flush", 1, 2, 3, 5, 9]), max_size=30))
def test_exactly_the_waiting_rows_can_be_taken(steps: list[str | int]) -> None:
    """The queue returns all waiting rows once, in order, in calls of limited size. The last flush empties it."""
    notified: list[None] = []
    groups = Groups(SIZE, lambda: notified.append(None))
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
    assert len(notified) == len(calls)
    assert (groups.waiting, groups.held) == (0, 0)
