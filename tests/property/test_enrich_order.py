"""Tests, in virtual time, of the order in which the engine yields rows: no lost row, order per key, held rows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

from enrich_engine import chunks_of
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_engine import VirtualRun

from spark_events.enrichment.engine.calls import Chunk
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.settings import Retry


def left(fn: Any, chunks: Iterator[Chunk], **plan: Any) -> VirtualRun:
    """Run the pool without time limits until all rows are returned."""
    done = VirtualRun(fn, timeout=None, total_timeout=None, circuit_breaker=None, **plan)
    done.of(chunks)
    return done


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(0, 400),
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(1, 20),
    st.one_of(st.none(), st.integers(1, 9)),
    st.integers(0, 5),
)
def test_each_row_leaves_once(
    seed: int, rows: int, chunk: int, buffer: int, width: int, keys: int | None, failing: int
) -> None:
    """Each row is yielded once, with its own answer or failure. Rows of one key are yielded in order."""
    random.seed(seed)
    delays = [random.choice([0.001, 0.001, 0.01, 1.0]) for _ in range(rows)]

    async def fn(row: int) -> int:
        await asyncio.sleep(delays[row])
        if failing and row % failing == 0:
            raise KeyError
        return row

    known: dict[int, int] = {row: row for row in range(rows) if random.random() < 0.1}
    options = {"key": "k", "on_failure": "null"} if keys else {}
    made = chunks_of(range(rows), chunk, key=(lambda row: row % keys) if keys else None, known=known)
    result = left(fn, made, ordered=False, max_in_flight=width, buffer_rows=buffer, retry=None, **options)
    assert sorted(row for row, _ in result.pairs) == list(range(rows))
    for row, answer in result.pairs:
        if failing and row % failing == 0 and row not in known:
            assert isinstance(answer, RowFailure)
        else:
            assert answer == row
    for key in range(keys or 0):
        mine = [row for row, _ in result.pairs if row % (keys or 1) == key]
        assert mine == sorted(mine)
    assert result.numbers["buffer_rows"] < buffer + chunk


async def _heavy_tail(row: int) -> int:
    await asyncio.sleep(1.0 if row % 100 == 0 else 0.001)
    return row


def test_unordered_rows_free_the_buffer() -> None:
    """With a few slow calls and a small buffer, the unordered run is faster, because slow rows delay no other rows."""
    options: dict[str, Any] = {"max_in_flight": 20, "buffer_rows": 200, "retry": Retry()}
    ordered = left(_heavy_tail, chunks_of(range(5_000), 25), **options)
    unordered = left(_heavy_tail, chunks_of(range(5_000), 25), ordered=False, **options)
    assert [row for row, _ in ordered.pairs] == list(range(5_000))
    assert sorted(row for row, _ in unordered.pairs) == list(range(5_000))
    assert unordered.seconds < 0.5 * ordered.seconds


def test_unordered_runs_hold_fewer_rows() -> None:
    """In an ordered run, one slow row delays all later rows. In an unordered run, it delays only itself."""

    async def first_is_slow(row: int) -> int:
        await asyncio.sleep(10.0 if row == 0 else 0.001)
        return row

    options: dict[str, Any] = {"max_in_flight": 20, "buffer_rows": 10_000}
    ordered = left(first_is_slow, chunks_of(range(20_000), 100), **options)
    unordered = left(first_is_slow, chunks_of(range(20_000), 100), ordered=False, **options)
    assert ordered.numbers["buffer_rows"] == 10_000
    # The engine keeps a quarter of the buffer waiting, so that calls continue while it reads more rows.
    assert unordered.numbers["buffer_rows"] < 3_500
    assert unordered.pairs[-1] == (0, 0)
    assert unordered.times[-2] < 0.5 * unordered.seconds
