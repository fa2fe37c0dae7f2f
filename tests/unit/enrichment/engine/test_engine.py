"""Tests of the engine: ordering, limits, failures as data, and stopping."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import itertools
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from enrich_engine import Run, chunks_of, new_process
from fakes import PATIENCE, eventually
from virtual_engine import VirtualRun

from spark_events.enrichment.engine import process
from spark_events.enrichment.engine.blocked_fraction import BlockedFractionTuning
from spark_events.enrichment.engine.calls import Chunk
from spark_events.enrichment.engine.engine import StoppedError
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.process import ProcessTuning
from spark_events.enrichment.engine.watch import WatchTuning
from spark_events.enrichment.engine.window import Window
from spark_events.enrichment.settings import Auto, Retry


class InFlight:
    """Function whose calls stay in flight until the test releases them."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.ended: list[Any] = []
        self.cancelled: list[Any] = []
        self.gate: asyncio.Event | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def release(self) -> None:
        """Release all calls in flight."""
        eventually(lambda: self.gate)
        assert self.loop is not None
        assert self.gate is not None
        self.loop.call_soon_threadsafe(self.gate.set)

    async def __call__(self, row: Any) -> Any:
        self.loop = asyncio.get_running_loop()
        self.gate = self.gate or asyncio.Event()
        self.begun.append(row)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(row)
            raise
        self.ended.append(row)
        return row


async def same(row: Any) -> Any:
    return row


def test_answers_are_yielded_in_the_order_of_the_rows() -> None:
    """Answers are yielded in row order, but later calls do not wait for the slow first call."""
    finished: list[int] = []
    overtaken = asyncio.Event()

    async def slow_first(row: int) -> int:
        if row == 0:
            await overtaken.wait()
        finished.append(row)
        # The pool is not a sliding window: far more than nine rows are answered before the first row.
        if len(finished) > 50:
            overtaken.set()
        return row

    assert Run(slow_first, max_in_flight=10, timeout=20).of(range(100)) == list(range(100))
    assert finished.index(0) > 50


def test_calls_continue_across_chunks() -> None:
    """While a slow last call for the previous chunk is in flight, calls for the next chunk begin."""
    begun: list[int] = []
    release = asyncio.Event()

    async def fn(row: int) -> int:
        begun.append(row)
        if row == 1:
            await release.wait()
        if row == 29:
            release.set()
        return row

    assert Run(fn, max_in_flight=2).of(chunks_of(range(30), 3)) == list(range(30))


def test_exactly_max_in_flight_calls_are_in_flight() -> None:
    """The engine reaches max_in_flight calls in flight and never exceeds this number."""
    now = most = 0

    async def fn(row: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.002)
        now -= 1
        return row

    run = Run(fn, max_in_flight=7)
    run.of(range(200))
    assert most == 7
    assert run.numbers["peak_in_flight"] == 7


def test_calls_that_return_immediately_need_few_runners() -> None:
    """Runners start in groups, so a few runners make all calls if no call waits."""
    runners: set[asyncio.Task[Any] | None] = set()

    async def fn(row: int) -> int:
        runners.add(asyncio.current_task())
        return row

    # The set keeps the tasks alive, so each runner is counted.
    assert Run(fn, max_in_flight=1_000).of(chunks_of(range(1_000), 1_000)) == list(range(1_000))
    assert len(runners) <= 64


@pytest.mark.parametrize("sizes", [(600,), (1, 1_000, 500), (1, 500, 300)])
def test_all_runners_start_if_calls_wait(sizes: tuple[int, ...]) -> None:
    """All calls that may be in flight begin before the first call ends."""
    begun = 0
    complete = asyncio.Event()

    async def fn(row: int) -> int:
        nonlocal begun
        begun += 1
        if begun == sum(sizes):
            complete.set()
        await complete.wait()
        return row

    rows = iter(range(sum(sizes)))
    chunks = (chunk for size in sizes for chunk in chunks_of(itertools.islice(rows, size), size))
    assert Run(fn, max_in_flight=2_000, timeout=20).of(chunks) == list(range(sum(sizes)))


@pytest.mark.parametrize(
    ("seconds", "initial", "grows"),
    [(2e-6, 20, False), (1e-3, 20, True), (2e-6, 1, True)],
    ids=["fast", "slow", "tiny"],
)
def test_only_calls_that_wait_enlarge_the_window(seconds: float, initial: int, grows: bool) -> None:
    """The window grows if calls wait or if it is tiny, because otherwise a larger window gains nothing."""
    window = Window(Auto(initial=initial))
    first = window.size
    window.begin(0.0)
    window.latencies += [seconds] * window.need
    window.turn()
    assert (window.size > first, window.is_instant) == (grows, not grows)
    assert window.latencies == []


def test_chunks_are_pulled_only_while_the_buffer_has_room() -> None:
    """While the first row has no answer, the engine reads at most the rows of the buffer and of one chunk."""
    pulled = 0
    first = InFlight()

    async def fn(row: int) -> int:
        return await first(row) if row == 0 else row

    def source() -> Iterator[Chunk]:
        nonlocal pulled
        for chunk in chunks_of(range(1_000), 10):
            pulled += 10
            yield chunk

    run = Run(fn, max_in_flight=5, buffer_rows=100)
    answers = run.engine.run(source())
    part: list[Any] = []
    reader = threading.Thread(target=lambda: part.extend(next(answers)[1]))
    reader.start()
    eventually(lambda: pulled >= 100 and run.engine._life.news.empty())
    assert pulled <= 110
    first.release()
    reader.join()
    assert part == list(range(10))
    assert [answer for _, some in answers for answer in some] == list(range(10, 1_000))
    assert run.numbers["buffer_rows"] <= 110


def test_the_next_chunk_is_fetched_at_the_exact_threshold() -> None:
    """When the number of waiting calls is low enough, the reader is notified once and fetches the next chunk."""
    fn = InFlight()
    fetched = threading.Event()

    async def second_slow(row: int) -> int:
        return row if row == 0 else await fn(row)

    def source() -> Iterator[Chunk]:
        # The chunk contains a quarter of the buffer, plus the rows that the runners take together.
        yield from chunks_of(range(40 + 32), 72)
        fetched.set()
        yield from chunks_of(range(72, 80))

    run = Run(second_slow, max_in_flight=2, buffer_rows=160)
    answers: list[int] = []
    reader = threading.Thread(target=lambda: answers.extend(run.of(source())))
    reader.start()
    eventually(lambda: len(fn.begun) == 2)
    try:
        assert fetched.wait(PATIENCE)
    finally:
        fn.release()
        reader.join()
    assert answers == list(range(80))


def test_the_buffer_is_also_limited_in_bytes() -> None:
    """The buffer is also limited in bytes: a few large rows or answers fill it."""

    def held_up(**plan: Any) -> Run:
        """While the first row has no answer, run the engine until it has read all rows or its buffer is full."""
        first, ended = InFlight(), threading.Event()

        async def large(row: int) -> dict[str, bytes]:
            await (first(row) if row == 0 else asyncio.sleep(0))
            return {"body": b"x" * 10_000}

        def source() -> Iterator[Chunk]:
            yield from chunks_of(range(2_000), 10)
            ended.set()

        run = Run(large, max_in_flight=4, **plan)
        reader = threading.Thread(target=run.of, args=(source(),))
        reader.start()
        try:
            eventually(lambda: ended.is_set() or run.engine._buffer.is_full)
        finally:
            first.release()
            reader.join()
        return run

    bounded = held_up(buffer_bytes=1_000_000)
    free = held_up()
    assert bounded.numbers["buffer_bytes"] < 2_000_000
    assert free.numbers["buffer_rows"] > 2 * bounded.numbers["buffer_rows"]


def test_unfinished_skips_a_chunk_that_is_yielded_meanwhile() -> None:
    """`unfinished` skips a chunk that is yielded concurrently, because the consumer may clear its answers."""

    class Held(deque[Any]):
        """Deque that allows the test to yield the first chunk between the read of the chunks and of their answers."""

        goes = False

        def __iter__(self) -> Iterator[Any]:
            seen = list(super().__iter__())
            if self.goes:
                self.goes = False
                next(answers)[1][:] = [None, None]
            return iter(seen)

    engine = Run(same).engine
    engine._order.batches = held = Held()
    answers = engine.run(chunks_of(range(6), 2))
    next(answers)
    eventually(lambda: [part for _, part in engine.unfinished()] == [[2, 3], [4, 5]])
    held.goes = True
    assert [part for _, part in engine.unfinished()] == [[4, 5]]
    assert [part for _, part in answers] == [[4, 5]]


def test_empty_input_gives_empty_output() -> None:
    """An empty partition causes no call, and an empty chunk is yielded unchanged."""
    assert Run(same).of([]) == []
    empty = Chunk([], str, 0)
    assert list(Run(same).engine.run([empty])) == [(empty, [])]


def test_a_failed_row_has_a_failure_as_answer() -> None:

    async def fn(row: int) -> int:
        if row == 3:
            raise KeyError("no such user")
        return row

    answers = Run(fn).of(range(5))
    failure = answers[3]
    assert isinstance(failure, RowFailure)
    assert (failure.kind, failure.type, failure.message, failure.attempts) == ("error", "KeyError", "'no such user'", 1)
    assert "test_engine.py" in failure.where
    assert failure.where.endswith("fn")
    assert not failure.retryable
    assert [*answers[:3], *answers[4:]] == [0, 1, 2, 4]


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit])
def test_exits_and_cancellations_fail_only_their_row(error: type[BaseException]) -> None:
    """SystemExit and CancelledError in the function fail only their row, without a retry. The loop continues."""
    called: list[int] = []

    async def fn(row: int) -> int:
        called.append(row)
        if row == 1:
            raise error
        await asyncio.sleep(0)
        return row

    answers = Run(fn, max_in_flight=2).of(range(4))
    assert [answers[0], *answers[2:]] == [0, 2, 3]
    assert isinstance(answers[1], RowFailure)
    assert answers[1].type in {error.__name__, "asyncio.exceptions.CancelledError", "RuntimeError"}
    assert called.count(1) == 1


def test_the_line_that_raised_a_stop_iteration_is_named() -> None:
    """Python raises a StopIteration of a coroutine again, without a line of the coroutine."""

    async def fn(row: int) -> int:
        return next(iter(()))

    (failure,) = Run(fn).of([0])
    assert failure.type == "RuntimeError"
    assert failure.where.endswith(f"{__file__}:{fn.__code__.co_firstlineno + 1} in {fn.__qualname__}")


def test_the_context_has_key_attempt_and_resource() -> None:
    """The context contains the resource, the attempt, and the row's key, which is the same in every attempt."""
    seen: list[tuple[str, int, Any]] = []

    async def fn(row: int, ctx: Any) -> int:
        seen.append((ctx.idempotency_key, ctx.attempt, ctx.resource))
        if ctx.attempt == 1 and row == 1:
            raise ConnectionError
        return row

    assert Run(fn, max_in_flight=1, retry=Retry(initial=0, jitter=0)).of([0, 1, 2]) == [0, 1, 2]
    assert seen == [("0", 1, None), ("1", 1, None), ("1", 2, None), ("2", 1, None)]


def test_rows_with_known_answers_are_not_called() -> None:
    called: list[int] = []

    async def fn(row: int) -> str:
        called.append(row)
        return "new"

    run = Run(fn)
    assert run.of(chunks_of(range(4), known={1: "old", 2: None})) == ["new", "old", None, "new"]
    assert called == [0, 3]
    assert run.numbers["known"] == 2


def test_closing_the_iterator_cancels_all_calls_in_flight() -> None:
    """If the iterator is closed, as when Spark kills a task, calls in flight are cancelled and no call begins."""
    fn = InFlight()
    run = Run(fn, max_in_flight=3, buffer_rows=10)

    async def quick_then_slow(row: int) -> int:
        return row if row == 0 else await fn(row)

    run = Run(quick_then_slow, max_in_flight=3, buffer_rows=10)
    answers = run.begin(chunks_of(range(100), 1))
    assert next(answers)[1] == [0]
    eventually(lambda: len(fn.begun) == 3)
    answers.close()
    assert sorted(fn.cancelled) == sorted(fn.begun)
    assert len(fn.begun) == 3
    assert fn.ended == []


def test_cancel_from_another_thread_ends_a_run_that_waits_for_input() -> None:
    """Another thread can cancel a run that waits for input. After the cancellation, no call begins or continues."""
    fn = InFlight()
    run = Run(fn, max_in_flight=2)
    more = threading.Event()

    def source() -> Iterator[Chunk]:
        yield from chunks_of([1, 2, 3])
        more.wait()
        yield from chunks_of([4])

    raised: list[BaseException] = []

    def read() -> None:
        try:
            list(run.engine.run(source()))
        except StoppedError as error:
            raised.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    eventually(lambda: len(fn.begun) == 2)
    run.engine.cancel()
    eventually(lambda: len(fn.cancelled) == 2)
    more.set()
    reader.join()
    assert len(raised) == 1
    assert len(fn.begun) == 2


def test_an_error_of_the_input_is_raised_and_stops_the_calls() -> None:
    fn = InFlight()

    def source() -> Iterator[Chunk]:
        yield from chunks_of([1, 2])
        eventually(lambda: len(fn.begun) == 2)
        raise OSError("the pipe broke")

    with pytest.raises(OSError, match="the pipe broke"):
        Run(fn).of(source())
    assert sorted(fn.cancelled) == [1, 2]


def test_an_unhashable_key_ends_the_run_instead_of_hanging_it() -> None:
    """An error in the loop's thread, such as an unhashable key, is raised to the caller and does not hang the run."""
    with pytest.raises(TypeError, match="unhashable"):
        Run(same, key="k").of(chunks_of([1], key=lambda _: []))  # type: ignore[arg-type, return-value]


def test_a_call_that_blocks_the_loop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """If a call blocks the loop, the line and function that block it are logged, and the run continues."""
    named = threading.Event()

    async def lookup(row: int) -> int:
        if row == 1:
            named.wait(PATIENCE)
        return row

    run = Run(lookup, max_in_flight=2)
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(1) as pool:
        answers = pool.submit(run.of, range(3))
        try:
            eventually(lambda: "blocks the event loop" in caplog.text)
        finally:
            named.set()
        assert answers.result() == [0, 1, 2]
    (where,) = run.numbers["blocked"]
    assert "test_engine.py" in where
    assert "lookup" in where
    assert run.numbers["blocked"][where] > 0.5


def slow_module(folder: Path, name: str) -> None:
    """Write a module whose import exceeds the time that a call may block the loop."""
    folder.joinpath(f"{name}.py").write_text("import threading\nthreading.Event().wait(1.5)\n", encoding="utf-8")


def test_an_import_in_the_function_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an import in the function blocks the loop, the warning contains this cause and advice."""
    slow_module(tmp_path, "slow_in_function")
    monkeypatch.syspath_prepend(tmp_path)

    async def lookup(row: int) -> int:
        importlib.import_module("slow_in_function")
        return row

    run = Run(lookup)
    assert run.of([1]) == [1]
    (where,) = run.numbers["blocked"]
    assert where.endswith("lookup (an import: move it to the top of the module, or into resource)")


def test_an_import_in_the_resource_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An import in the resource causes no warning: client libraries are imported once, before the first call."""
    slow_module(tmp_path, "slow_in_resource")
    monkeypatch.syspath_prepend(tmp_path)

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        importlib.import_module("slow_in_resource")
        yield

    async def lookup(row: int, ctx: Any) -> int:
        return row

    run = Run(lookup, resource=opened)
    assert run.of([1]) == [1]
    assert "slow_in_resource" in sys.modules
    assert run.numbers["blocked"] == {}
    assert "blocks" not in caplog.text


@pytest.mark.no_cover
@pytest.mark.parametrize(("seconds", "rows", "is_named"), [(0.0005, 10_000, False), (1.0, 6, True)])
def test_only_calls_that_last_are_reported_as_blocking(
    seconds: float, rows: int, is_named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Many short calls without a pause do not count as blocking, although together they slow down the loop."""
    # A busy machine interrupts short calls, too, but not for a fifth of a second each time.
    fraction = BlockedFractionTuning(gap_seconds=0.2, least_samples=4)
    tuning = ProcessTuning(watch=WatchTuning(blocked_seconds=PATIENCE, fraction=fraction))

    async def fn(row: int) -> int:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
        return row

    with new_process():
        process.exchange(process.Process(tuning=tuning))
        assert Run(fn, max_in_flight=100).of(range(rows)) == list(range(rows))
    assert ("blocks the event loop most of the time" in caplog.text) == is_named


def test_a_call_that_blocks_the_loop_forever_fails_the_remaining_rows() -> None:
    """If a call blocks the loop forever, only rows without answers fail. The next task uses a new loop."""
    release = threading.Event()

    async def lookup(row: int) -> int:
        if row == 15:
            release.wait(60)
        return row

    run = Run(lookup, max_in_flight=1, timeout=0.7, total_timeout=0.8)
    answers = run.of(chunks_of(range(40), 10))
    assert answers[:15] == list(range(15))
    assert {(answer.kind, answer.type) for answer in answers[15:]} == {("timeout", "BlockedLoopError")}
    assert "lookup" in answers[15].message
    assert run.numbers["failures"] == {"BlockedLoopError": 25}
    # Later chunks cause no calls, so they may have any size.
    assert (run.engine.room, run.engine.answer_size) == (run.engine._plan.buffer_rows, 0.0)
    assert Run(same).of(range(3)) == [0, 1, 2]
    release.set()


def test_rows_failed_by_a_blocked_loop_are_not_called_later() -> None:
    """For rows that failed because of a blocked loop, no call is made later. Calls in flight get no further attempt."""
    called: list[int] = []
    blocked = asyncio.Event()
    release = threading.Event()

    async def lookup(row: int) -> int:
        called.append(row)
        if row == 2:
            await blocked.wait()
            raise ConnectionError
        if row == 10:
            blocked.set()
            release.wait(60)
        return row

    plan: dict[str, Any] = {"timeout": 0.7, "total_timeout": None, "retry": Retry(initial=0, jitter=0)}
    answers = Run(lookup, max_in_flight=2, **plan).engine.run(chunks_of(range(40), 10))
    _, first = next(answers)
    release.set()
    parts = [first, *(part for _, part in answers)]
    assert called == list(range(11))
    kinds = [getattr(answer, "type", "") for part in parts for answer in part]
    assert kinds == ["BlockedLoopError" if row == 2 or row >= 10 else "" for row in range(40)]


def test_a_cancelled_run_waits_for_its_calls_to_clean_up() -> None:
    begun: list[int] = []
    cancelled: list[int] = []
    cleaned: list[int] = []

    async def fn(row: int) -> int:
        begun.append(row)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(row)
            await asyncio.sleep(0.1)
            cleaned.append(row)
        return row

    def source() -> Iterator[Chunk]:
        yield from chunks_of([1, 2, 3])
        eventually(lambda: len(begun) == 3)
        run.engine.cancel()
        eventually(lambda: len(cancelled) == 3)

    run = Run(fn, max_in_flight=20)
    with pytest.raises(StoppedError):
        run.of(source())
    assert sorted(cleaned) == [1, 2, 3]


def test_a_stalled_loop_causes_no_timeouts() -> None:
    """If answers arrive while the loop is stalled, they do not count as late after the stall."""

    async def fn(row: int) -> int:
        if row == 0:
            await asyncio.sleep(0.01)
            time.sleep(0.5)  # noqa: ASYNC251
        else:
            await asyncio.sleep(0.1)
        return row

    run = Run(fn, max_in_flight=4, timeout=0.3, retry=None)
    assert run.of(range(4)) == [0, 1, 2, 3]
    assert run.numbers["timeouts"] == 0


def test_timeouts_apply_while_every_iteration_of_the_loop_is_slow() -> None:
    """If every iteration of the loop takes long, a call without an answer still times out, within a few iterations."""

    async def fn(row: int) -> int:
        if row == 0:
            await asyncio.sleep(3600)
        loop: Any = asyncio.get_running_loop()
        loop.now += 0.15  # a call that blocks the loop
        await asyncio.sleep(0)
        return row

    run = VirtualRun(fn, max_in_flight=2, timeout=2, retry=None)
    (failure, *answers) = run.of(range(60))
    assert answers == list(range(1, 60))
    assert failure.kind == "timeout"
    assert failure.elapsed < 3


def test_answers_that_arrive_during_one_slow_iteration_are_not_late() -> None:
    """After one slow iteration, calls whose answers have arrived get a few more iterations to return them."""
    done: list[asyncio.Future[None]] = []

    async def fn(row: int) -> int:
        loop: Any = asyncio.get_running_loop()
        if row == 0:
            await asyncio.sleep(0.1)
            loop.now += 10
            done[0].set_result(None)
            return row
        done.append(loop.create_future())
        await done[0]
        for _ in range(3):
            loop.now += 0.15  # other calls
            await asyncio.sleep(0)
        return row

    run = VirtualRun(fn, max_in_flight=2, timeout=2, retry=None)
    assert run.of([0, 1]) == [0, 1]
    assert run.numbers["timeouts"] == 0


def test_consecutive_runs_leave_no_tasks_or_threads() -> None:

    async def tasks() -> int:
        return len(asyncio.all_tasks())

    from spark_events.enrichment.engine.process import current_process

    def left() -> tuple[int, set[threading.Thread]]:
        gc.collect()
        return current_process().background.submit(tasks()).result(), set(threading.enumerate())

    Run(same).of(range(10))
    tasks_before, threads_before = left()
    for _ in range(20):
        Run(same, max_in_flight=50).of(range(1000))
    # Tasks of earlier tests may have ended during this test, so the number may have decreased.
    tasks_left, threads_left = left()
    assert tasks_left <= tasks_before
    assert threads_left <= threads_before


def test_several_engines_run_at_the_same_time() -> None:
    """Several engines can run in threads of one process at the same time. Each run receives its own answers."""

    async def fn(row: int) -> int:
        await asyncio.sleep(0.001)
        return row

    found: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda n=n: found.__setitem__(n, Run(fn, max_in_flight=5).of(range(n, n + 300))))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: list(range(n, n + 300)) for n in range(4)}


def test_a_forked_process_has_its_own_loop() -> None:
    """A forked process, such as a Spark worker, uses its own loop, because it cannot use its parent's loop."""
    Run(same).of(range(3))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if Run(same).of(range(3)) == [0, 1, 2] else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
