"""Tests of rows with the same key, for which calls are sequential."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any

from enrich_engine import Run, chunks_of
from virtual_engine import VirtualRun, virtual_now

from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.keys import HotKeys
from spark_events.enrichment.settings import Retry


def test_calls_of_a_key_are_sequential_and_in_order() -> None:
    """Calls for one key are sequential and in order, including retries. Calls for different keys are concurrent."""
    rng = random.Random(7)
    flying: defaultdict[int, int] = defaultdict(int)
    order: defaultdict[int, list[int]] = defaultdict(list)
    together = most = 0

    async def fn(row: int, ctx: Any) -> int:
        nonlocal together, most
        key = row % 13
        flying[key] += 1
        together += 1
        most = max(most, together)
        assert flying[key] == 1
        try:
            await asyncio.sleep(rng.random() / 500)
            if ctx.attempt == 1 and row % 5 == 0:
                raise ConnectionError
        finally:
            flying[key] -= 1
            together -= 1
        order[key].append(row)
        return row

    run = Run(fn, key="k", max_in_flight=8, retry=Retry(initial=0.001, jitter=0), circuit_breaker=None)
    assert run.of(chunks_of(range(600), 50, key=lambda row: row % 13)) == list(range(600))
    assert all(rows == sorted(rows) for rows in order.values())
    assert sum(map(len, order.values())) == 600
    assert most == 8


def test_rows_after_a_failed_row_of_their_key_are_skipped() -> None:
    """After a failed row, later rows with the same key are skipped, so a repeated batch processes the rows in order."""
    called: list[int] = []

    async def fn(row: int) -> int:
        called.append(row)
        if row == 4:
            raise ValueError
        return row

    def rows() -> Any:
        return chunks_of(range(12), 5, key=lambda row: row % 2)

    run = Run(fn, key="k")
    answers = run.of(rows())
    assert [row for row in called if row % 2 == 0] == [0, 2, 4]
    assert [answer.kind for answer in answers if isinstance(answer, RowFailure)] == ["error", *["skipped"] * 3]
    assert [row for row in called if row % 2] == [1, 3, 5, 7, 9, 11]
    called.clear()
    answers = Run(fn, key="k", on_failure="null").of(rows())
    assert sorted(called) == list(range(12))
    assert sum(isinstance(answer, RowFailure) for answer in answers) == 1


def test_shared_answers_within_a_key_keep_its_order() -> None:
    """Rows of one key that share the failed call of an earlier row are followed by no call of this key."""
    called: list[str] = []

    async def fn(row: str) -> str:
        called.append(row)
        await asyncio.sleep(1)
        if row == "a1":
            raise ValueError
        return row

    rows = ["a1", "b1", "a1", "a2", "b1", "b2"]
    run = VirtualRun(fn, key="k", coalesce_by=("k", "n"), retry=None)
    answers = run.of(chunks_of(rows, 2, key=lambda row: row[0], request=lambda row: row))
    assert called == ["a1", "b1", "b2"]
    kinds = [answer.kind if isinstance(answer, RowFailure) else answer for answer in answers]
    assert kinds == ["error", "b1", "error", "skipped", "b1", "b2"]


def test_rows_after_an_uncancellable_call_of_their_key_are_skipped() -> None:
    """After an uncancellable call, later rows with the same key are skipped, because the call may still run."""

    async def fn(row: int) -> int:
        end = virtual_now() + 2.5
        while row == 0 and virtual_now() < end:
            try:
                await asyncio.sleep(0.5)
            except asyncio.CancelledError:
                continue
        return row

    run = VirtualRun(fn, key="k", timeout=0.05, on_failure="null")
    answers = run.of(chunks_of(range(6), key=lambda row: row % 2))
    assert [answer.kind for answer in answers[::2]] == ["timeout", "skipped", "skipped"]
    assert answers[1::2] == [1, 3, 5]


def test_hot_keys_are_those_that_delay_the_batch() -> None:
    """A key is hot if its rows at least double the duration of a batch. The detection uses bounded memory."""
    hot = HotKeys(width=10)
    rng = random.Random(1)
    for number in range(10_000):
        hot.count("hot" if rng.random() < 0.4 else number)
    ((key, rows),) = hot.hot()
    assert key == "hot"
    assert 3_000 < rows <= 4_200
    assert len(hot._counts) <= 256
    even = HotKeys(width=10)
    for number in range(10_000):
        even.count(number % 100)
    assert even.hot() == []


def test_a_run_reports_its_hot_keys() -> None:

    async def fn(row: int) -> int:
        return row

    run = Run(fn, key="k", max_in_flight=50)
    run.of(chunks_of(range(400), key=lambda row: "big" if row % 2 else row))
    assert list(run.numbers["hot_keys"]) == ["'big'"]
