"""Tests of the order in which the engine yields rows. The tests do not use the engine's threads."""

from __future__ import annotations

from enrich_engine import chunks_of, rows_of

from spark_events.enrichment.engine.buffer import RowBuffer
from spark_events.enrichment.engine.calls import RowBatch
from spark_events.enrichment.engine.order import Unordered


def _admitted(rows: int, size: int, keys: int = 0) -> tuple[Unordered, list[RowBatch], list[int]]:
    """Return rows in a buffer of eight rows, and a list that grows with each notification of the caller."""
    news: list[int] = []
    buffer = RowBuffer(8, 1 << 20, 8, lambda: news.append(1))
    held = Unordered(buffer)
    for chunk in chunks_of(range(rows), size, key=(lambda row: row % keys) if keys else None):
        batch = RowBatch(chunk, 0.0, buffer)
        held.batches.append(batch)
        buffer.take_in(len(batch.rows), chunk.size)
    return held, list(held.batches), news


def _popped(held: Unordered) -> list[int] | None:
    found = held.pop()
    return None if found is None else rows_of(found[0])


def test_answers_stored_meanwhile_leave_without_a_notification() -> None:
    """Answers that arrive while other rows are yielded are found, even if their notification was already consumed."""
    held, (first, second), _ = _admitted(8, 4)
    first.settle(1, "b")
    second.settle(0, "e")
    assert _popped(held) == [1]
    for row in (0, 2, 3):
        first.settle(row, "x")
    assert _popped(held) == [4]
    assert _popped(held) == [0, 2, 3]
    assert _popped(held) is None
    assert list(held.batches) == [second]


def test_the_caller_is_woken_for_each_share() -> None:
    """If the buffer of eight rows is full, one answer wakes the caller, because returned rows free the buffer."""
    held, (first, _), news = _admitted(8, 4)
    assert _popped(held) is None
    first.settle(2, "c")
    assert news
    assert _popped(held) == [2]
    assert held._buffer.rows == 7
    assert _popped(held) is None
    news.clear()
    first.settle(0, "a")
    assert news


def test_rows_of_a_key_wait_for_earlier_ones() -> None:
    """A row is yielded after earlier rows with the same key, even of another chunk. Rows of other keys do not wait."""
    held, (first, second), _ = _admitted(8, 4, keys=2)
    second.settle(0, "e")
    second.settle(1, "f")
    first.settle(1, "b")
    first.settle(3, "d")
    assert _popped(held) == [1, 3]
    assert _popped(held) == [5]
    assert _popped(held) is None
    first.settle(0, "a")
    first.settle(2, "c")
    assert _popped(held) == [0, 2]
    assert _popped(held) == [4]
    assert _popped(held) is None
