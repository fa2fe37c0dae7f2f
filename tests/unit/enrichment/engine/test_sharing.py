"""Tests of the three ways to save calls: equal requests, the cache, and bulk calls."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from enrich_engine import Run, chunks_of, definition
from fakes import eventually

from spark_events.enrichment.engine.buffer import RowBuffer
from spark_events.enrichment.engine.calls import Call, Chunk, RowBatch
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.gate import Gate
from spark_events.enrichment.engine.limiter import Attempt, Permit
from spark_events.enrichment.engine.process import current_process
from spark_events.enrichment.engine.sharing import AnswerCache
from spark_events.enrichment.settings import Cache, Retry

AT_ONCE = Retry(initial=0, jitter=0)


def modulo(rows: int, by: int, size: int = 100) -> Iterator[Chunk]:
    """Return rows. The request of each row is the remainder of a division."""
    return chunks_of(range(rows), size, request=lambda row: row % by)


def test_equal_requests_of_a_batch_make_one_call() -> None:
    """Equal requests in a batch cause one call, whether this call is in flight or answered."""
    called: list[int] = []

    async def fn(row: int) -> int:
        called.append(row)
        await asyncio.sleep(0.001)
        return row % 7

    run = Run(fn, coalesce_by="id", max_in_flight=3)
    assert run.of(modulo(1000, 7, size=50)) == [row % 7 for row in range(1000)]
    assert sorted(called) == list(range(7))
    assert (run.numbers["calls"], run.numbers["coalesced"]) == (7, 993)


def test_equal_requests_share_a_failure_too() -> None:
    """Equal requests share the outcome of one call. If the call fails, each of their rows counts as failed."""
    called: list[int] = []

    async def fn(row: int) -> int:
        called.append(row)
        raise ValueError("no")

    run = Run(fn, coalesce_by="id")
    answers = run.of(modulo(300, 3, size=10))
    assert len(called) == 3
    assert all(isinstance(answer, RowFailure) for answer in answers)
    assert run.numbers["failures"] == {"ValueError": 300}


class Page(str):
    """Large answer whose deletion the test can observe."""

    __slots__ = ("__weakref__",)


def test_the_memory_for_equal_requests_is_also_limited_in_bytes() -> None:
    """The memory for equal requests is limited in bytes. Small answers, or one larger answer, are stored."""
    alive: weakref.WeakSet[Page] = weakref.WeakSet()

    async def fn(row: int) -> Page:
        page = Page("x" * 10_000 + str(row))
        alive.add(page)
        return page

    most = 0
    for _, part in Run(fn, coalesce_by="id", max_in_flight=5, buffer_bytes=1_000_000).engine.run(
        chunks_of(range(2_000), 20, request=lambda row: row)
    ):
        part.clear()
        most = max(most, len(alive))
    # The same number of answers may be queued for output, in addition to the answers of one chunk.
    assert 90 <= most <= 230
    for size, least, remembered in ((100, 500, 500), (10_000, 95, 100), (2_000_000, 1, 1)):
        answers = AnswerCache(500, ttl=None, most_bytes=1_000_000)
        for number in range(1_000):
            answers.put(number, "x" * size)
        assert least <= len(answers) <= remembered


def test_large_answers_among_small_answers_are_measured() -> None:
    """Large answers are measured, even if most rows share a small answer such as "not found"."""
    alive: weakref.WeakSet[Page] = weakref.WeakSet()

    async def fn(row: int) -> Page:
        page = Page("no" if row == 0 else "x" * 10_000 + str(row))
        alive.add(page)
        return page

    most = 0
    engine = Run(fn, coalesce_by="id", max_in_flight=5, buffer_bytes=1_000_000).engine

    def chunks() -> Iterator[Chunk]:
        for number, chunk in enumerate(chunks_of(range(20_000), 20, request=lambda row: row if row % 20 == 0 else 0)):
            if number == 2:
                # While only the small first answer is known, the number of rows that are read ahead is not limited.
                eventually(lambda: engine._buffer.measured > 1)
            yield chunk

    for _, part in engine.run(chunks()):
        part.clear()
        most = max(most, len(alive))
    assert 90 <= most <= 130


def test_a_replaced_answer_is_counted_once() -> None:
    """A replaced answer is counted once, so the remaining capacity does not shrink."""
    answers = AnswerCache(10, ttl=None, most_bytes=100_000)
    for _ in range(100):
        for number in range(5):
            answers.put(number, "x" * 10_000)
    assert len(answers) == 5


@pytest.mark.parametrize(("kind", "closed"), [("throttled", 60), ("timeout", 0)])
def test_a_failure_without_a_call_is_not_shared(kind: str, closed: float) -> None:
    """If a row fails without a call because of a requested delay, later equal rows do not share this failure."""
    called: list[str] = []
    made = definition()
    process = current_process()
    batch = RowBatch(next(chunks_of(["probe"])), 0.0, RowBuffer(1, 1, 1, lambda: None))
    gate = process.gates.get(made.calls, Gate)

    async def fn(row: str) -> str:
        called.append(row)
        return row

    async def close() -> Permit | None:
        gate.close(closed, crowded=False)
        # This call is the only probe that the breaker allows.
        return None if closed else await gate.enter(Attempt(lambda: Call(batch, 0), overtakes=False))

    async def reopen(passed: Permit | None) -> None:
        if passed:
            passed.end(answered=True)
        else:
            gate._begin()

    def source() -> Iterator[Chunk]:
        passed = process.background.submit(close()).result()
        yield from chunks_of(["a"], request=str)
        eventually(lambda: run.numbers["kinds"].get(kind))
        assert called == []
        process.background.submit(reopen(passed)).result()
        yield from chunks_of(["a"], request=str)

    run = Run(fn, made=made, coalesce_by="id", total_timeout=0.2)
    failure, answer = run.of(source())
    assert (failure.kind, failure.attempts) == (kind, 0)
    assert answer == "a"


def test_equal_requests_farther_apart_than_the_buffer_call_again() -> None:
    """The number of stored requests is limited: equal requests farther apart than the buffer cause another call."""
    called: Counter[int] = Counter()

    async def fn(row: int) -> int:
        called[row % 1000] += 1
        return row

    Run(fn, coalesce_by="id", buffer_rows=100).of(modulo(3000, 1000, size=50))
    assert set(called.values()) == {3}


def test_the_cache_outlives_the_run_until_its_ttl() -> None:
    """Per definition and process, the cache keeps answers after the run until their ttl. Failures are not cached."""
    called: list[int] = []

    async def fn(row: int) -> int:
        called.append(row)
        if row == 3:
            raise ValueError
        return row

    made = definition()
    cache = Cache(max_entries=10, ttl=60)
    assert Run(fn, made=made, cache=cache).of(chunks_of(range(4), request=lambda row: row))[:3] == [0, 1, 2]
    second = Run(fn, made=definition(answers=made.answers), cache=cache)
    assert second.of(chunks_of(range(4), request=lambda row: row))[:3] == [0, 1, 2]
    assert called == [0, 1, 2, 3, 3]
    assert second.numbers["cached"] == 3
    Run(fn, cache=cache).of(chunks_of([0], request=lambda row: row))
    assert called[-1] == 0


def test_cached_answers_are_limited_in_number_and_age() -> None:
    """Cached answers are limited in number and age. The least recently used answer is removed first."""
    now = 0.0
    answers = AnswerCache(2, ttl=10, clock=lambda: now)
    answers.put("a", 1)
    answers.put("b", 2)
    assert answers.get("a", None) == 1
    answers.put("c", 3)
    assert (answers.get("a", None), answers.get("b", None), answers.get("c", None)) == (1, None, 3)
    now = 10.0
    assert answers.get("a", None) is None
    assert len(answers) == 1


def test_bulk_calls_are_full_across_chunks() -> None:
    """Bulk calls contain rows of several chunks, so the number of calls is minimal. Each row receives its result."""
    sizes: list[int] = []

    async def fn(rows: list[int]) -> list[int]:
        sizes.append(len(rows))
        await asyncio.sleep(0.001)
        return [row * 2 for row in rows]

    run = Run(fn, batch_size=64, max_in_flight=4)
    assert run.of(chunks_of(range(1000), 30)) == [row * 2 for row in range(1000)]
    assert sorted(sizes) == [1000 % 64, *[64] * 15]
    assert run.numbers["calls"] == 16


def test_an_incomplete_bulk_call_does_not_wait_for_slow_input() -> None:
    """An incomplete bulk call does not wait for slow input: it starts as soon as the input pauses."""

    async def fn(rows: list[int]) -> list[int]:
        return rows

    more = threading.Event()

    def source() -> Iterator[Chunk]:
        yield from chunks_of(range(10))
        more.wait()
        yield from chunks_of(range(10, 20))

    run = Run(fn, batch_size=64)
    answers: list[Any] = []
    reader = threading.Thread(target=lambda: answers.extend(a for _, part in run.engine.run(source()) for a in part))
    reader.start()
    eventually(lambda: run.numbers["calls"] == 1)
    more.set()
    reader.join()
    assert answers == list(range(20))


def test_a_full_buffer_does_not_wait_for_a_full_call() -> None:
    """If the bulk size exceeds the buffer, a full buffer starts a call without waiting for further rows."""

    async def fn(rows: list[int]) -> list[int]:
        return rows

    assert Run(fn, batch_size=500, buffer_rows=20).of(chunks_of(range(300), 10)) == list(range(300))


def test_an_exception_as_result_fails_only_its_row() -> None:
    """An exception in the list of results fails only its row. If it is transient, only its row is retried."""
    calls: list[list[int]] = []

    async def fn(rows: list[int], ctx: Any) -> list[Any]:
        calls.append(rows)
        passing = [row for row in rows if row % 4 == 1 and ctx.attempt == 1]
        return [ConnectionError() if row in passing else ValueError("bad") if row % 4 == 2 else row for row in rows]

    run = Run(fn, batch_size=8, retry=AT_ONCE)
    answers = run.of(range(8))
    assert calls == [list(range(8)), [1, 5]]
    assert [type(answer).__name__ for answer in answers] == ["int", "int", "RowFailure", "int"] * 2
    assert answers[2].message == "bad"
    assert run.numbers["failures"] == {"ValueError": 2}


@pytest.mark.parametrize("broken", ["on_result", "on"])
def test_a_retry_policy_that_raises_fails_only_its_row(broken: str) -> None:
    """If a retry policy raises for one row of a bulk call, only this row fails, even after answered rows."""

    def raises(given: Any) -> bool:
        if given == 3 or isinstance(given, OSError):
            raise KeyError("ok")
        return False

    async def fn(rows: list[int]) -> list[Any]:
        return [OSError() if row == 3 and broken == "on" else row for row in rows]

    policy: dict[str, Any] = {broken: raises}
    run = Run(fn, batch_size=5, retry=Retry(initial=0, jitter=0, **policy))
    answers = run.of(range(5))
    assert [answer for answer in answers if not isinstance(answer, RowFailure)] == [0, 1, 2, 4]
    assert (answers[3].type, answers[3].attempts) == ("KeyError", 1)
    assert run.numbers["failures"] == {"KeyError": 1}


@pytest.mark.parametrize("attempts", [1, 2])
def test_rows_of_one_call_fail_each_for_its_own_reason(attempts: int) -> None:
    """Each failed row of a bulk call has its own reason and its own counts."""

    results = [ConnectionError("refused"), TimeoutError("slow"), ValueError("wrong"), 3]

    async def fn(rows: list[int]) -> list[Any]:
        await asyncio.sleep(0.01)
        return [results[row] for row in rows]

    run = Run(fn, batch_size=4, retry=Retry(attempts=attempts, initial=0, jitter=0))
    *failures, last = run.of(range(4))
    reported = [(one.kind, one.type, one.message, one.attempts, one.retryable) for one in failures]
    assert reported == [
        ("error", "ConnectionError", "refused", attempts, True),
        ("timeout", "TimeoutError", "slow", attempts, True),
        ("error", "ValueError", "wrong", 1, False),
    ]
    assert min(one.elapsed for one in failures) > 0
    assert last == 3
    assert run.numbers["failures"] == {"ConnectionError": 1, "TimeoutError": 1, "ValueError": 1}
    assert run.numbers["kinds"] == {"error": 2, "timeout": 1}


def test_a_failed_row_of_a_bulk_call_is_counted_like_a_single_row() -> None:
    """A failed row of a bulk call is counted like a row of a single call, as a timeout or as a rejection."""

    async def fn(rows: list[int]) -> list[Any]:
        return [TimeoutError("slow"), 1]

    failure, _ = Run(fn, batch_size=2, retry=None).of([0, 1])
    assert (failure.kind, failure.attempts, failure.retryable) == ("timeout", 1, False)


def test_remaining_rows_fail_with_their_last_call() -> None:
    """If a row's call is retried and the last attempt fails, the row reports the failure of the last attempt."""

    async def fn(rows: list[int], ctx: Any) -> list[Any]:
        if ctx.attempt == 2:
            raise ConnectionError("refused")
        return [ConnectionError("refused"), TimeoutError("slow")]

    failures = Run(fn, batch_size=2, retry=Retry(attempts=2, initial=0, jitter=0)).of([0, 1])
    assert [(one.type, one.attempts) for one in failures] == [("ConnectionError", 2)] * 2


def test_late_results_are_ignored() -> None:
    """Late results of a bulk call are ignored, and the call is repeated with the same rows."""
    calls: list[list[int]] = []

    async def fn(rows: list[int], ctx: Any) -> list[int]:
        calls.append(rows)
        if ctx.attempt == 1:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return [10 * ctx.attempt + row for row in rows]

    run = Run(fn, batch_size=4, retry=AT_ONCE, timeout=0.05)
    assert run.of(range(4)) == [20, 21, 22, 23]
    assert calls == [[0, 1, 2, 3]] * 2
    assert run.numbers["timeouts"] == 1


@pytest.mark.parametrize("result", [[1], None, "ab", {1: 2, 3: 4}, 7])
def test_a_wrong_number_of_results_fails_the_rows(result: Any) -> None:
    """A wrong number of results fails all rows of the call, because results cannot be assigned to rows."""

    async def fn(rows: list[int]) -> Any:
        return result

    answers = Run(fn, batch_size=2).of([1, 2])
    assert {answer.type for answer in answers} == {"TypeError"}
    assert "one result for each of its 2 rows" in answers[0].message


def test_bulk_rows_have_the_same_keys_in_every_attempt() -> None:
    """In every attempt of a bulk call, each row keeps its key, and the keys are in row order."""
    seen: list[tuple[str, ...]] = []

    async def fn(rows: list[int], ctx: Any) -> list[Any]:
        assert ctx.idempotency_keys == tuple(map(repr, rows))
        seen.append(ctx.idempotency_keys)
        return [ConnectionError() if row == 2 and ctx.attempt == 1 else row for row in rows]

    assert Run(fn, batch_size=2, max_in_flight=1, retry=AT_ONCE).of([1, 2, 3, 4]) == [1, 2, 3, 4]
    assert seen == [("1", "2"), ("2",), ("3", "4")]


@pytest.mark.parametrize("rows", [[1, 2, 3], [1]])
def test_a_bulk_call_has_no_key(rows: list[int]) -> None:
    """A bulk call has no idempotency key of its own, because each attempt may group the rows differently."""
    calls: list[list[int]] = []

    async def fn(rows: list[int], ctx: Any) -> Any:
        calls.append(rows)
        return ctx.idempotency_key

    answers = Run(fn, batch_size=2, retry=AT_ONCE).of(rows)
    assert [row for call in calls for row in call] == rows
    assert {(answer.type, answer.retryable) for answer in answers} == {("spark_events.errors.InvalidPlanError", False)}
    assert all("with batch_size, use ctx.idempotency_keys, one for each row" in answer.message for answer in answers)


def test_bulk_and_coalescing_together() -> None:
    """With both bulk calls and coalescing, the calls contain only distinct requests."""
    calls: list[list[int]] = []

    async def fn(rows: list[int]) -> list[int]:
        calls.append(rows)
        return [row % 5 for row in rows]

    run = Run(fn, batch_size=10, coalesce_by="id")
    assert run.of(modulo(100, 5)) == [row % 5 for row in range(100)]
    assert calls == [[0, 1, 2, 3, 4]]


class _Odd(dict[str, int]):
    """User-defined mapping whose size cannot be determined."""

    def __sizeof__(self) -> int:
        raise RuntimeError

    def values(self) -> Any:
        raise RuntimeError


@pytest.mark.parametrize("options", [{}, {"coalesce_by": "id"}])
def test_an_answer_of_unknown_size_is_accepted(options: dict[str, Any]) -> None:
    """An answer of unknown size is accepted.

    Regression: an answer of unknown size ended the task, and Spark repeated all calls.
    """

    async def fn(row: int) -> _Odd:
        return _Odd(x=row)

    rows = chunks_of([1, 2, 1], request=lambda row: row) if options else [1, 2, 1]
    assert Run(fn, **options).of(rows) == [{"x": 1}, {"x": 2}, {"x": 1}]
