"""Compare the cost of the enrichment engine with the theoretical limit, a bare loop and common alternatives.

The limit is the time of an ideal engine, see :func:`ideal_seconds`. In the bare loop, the same number of coroutines
only make the calls on the same event loop: this is the cost of Python without order, limits, timeouts and retries.
Compared variants run alternately, so other load on the machine affects all variants. The output includes the share of
time in which the engine was runnable but had no processor, because waiting for a processor can double a latency of
10 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks._recipes import RECIPES, Job
from spark_events.enrichment.engine.calls import Chunk
from spark_events.enrichment.engine.engine import Definition, Engine
from spark_events.enrichment.engine.loop import BackgroundLoop
from spark_events.enrichment.plan import Plan

_ROUNDS = int(os.environ.get("ENRICHMENT_ROUNDS", "3"))
_LATENCY = 0.01
_TAIL_EVERY, _TAIL, _REST = 100, 0.1, 0.001
_CHUNK = 10_000
_ROW_BYTES = 100

Function = Callable[[int], Awaitable[Any]]


async def _at_once(row: int) -> int:
    return row


async def _ten_milliseconds(row: int) -> int:
    await asyncio.sleep(_LATENCY)
    return row


async def _heavy_tail(row: int) -> int:
    await asyncio.sleep(_tail_of(row))
    return row


async def _slow_heavy_tail(row: int) -> int:
    # The timers of event loops have a resolution of 1 ms: a sleep of 1 ms takes 1.2 to 1.3 ms, even in a bare loop.
    await asyncio.sleep(10 * _tail_of(row))
    return row


def _tail_of(row: int) -> float:
    return _TAIL if row % _TAIL_EVERY == 0 else _REST


def ideal_seconds(latencies: Iterable[float], in_flight: int) -> float:
    """Return the shortest time for calls with these latencies that start in this order.

    The order of the results delays no call while the buffer has room. The time therefore applies to ordered results
    too. Unlike the sum of the latencies ÷ calls in flight, it includes the wait for the last slow call.
    """
    ends = [0.0] * in_flight
    for latency in latencies:
        heapq.heapreplace(ends, ends[0] + latency)
    return max(ends)


async def _record(row: int) -> dict[str, Any]:
    return {"country": f"country {row}", "risk": row / 7}


def _chunks(rows: int, size: int) -> Iterator[Chunk]:
    for start in range(0, rows, size):
        part = range(start, min(rows, start + size))
        yield Chunk(list(part), lambda index, start=start: str(start + index), _ROW_BYTES * len(part))  # type: ignore[misc]


def engine_seconds(fn: Function, rows: int, in_flight: int, chunk: int) -> float:
    """Return the seconds that the engine needs for ``rows``, with retries and timeouts.

    The function also verifies the order of the answers.
    """
    engine = Engine(
        Plan(fn, max_in_flight=in_flight), Definition("calls", "answers", "resource", str(time.monotonic_ns()))
    )
    began = time.perf_counter()
    first = 0
    for part, answers in engine.run(_chunks(rows, chunk)):
        assert answers[0] == first
        assert answers[-1] == first + len(part.rows) - 1
        first += len(part.rows)
    took = time.perf_counter() - began
    assert first == rows
    return took


def floor_seconds(background: BackgroundLoop, fn: Function, rows: int, in_flight: int) -> float:
    """Return the seconds of the bare loop: coroutines that only make the same calls, on the same kind of event loop."""
    left = iter(range(rows))

    async def work() -> None:
        for row in left:
            await fn(row)

    async def everything() -> None:
        await asyncio.gather(*(work() for _ in range(in_flight)))

    began = time.perf_counter()
    background.submit(everything()).result()
    return time.perf_counter() - began


def _latency_bound(background: BackgroundLoop) -> None:
    cases = [
        (f"10 ms, {in_flight} in flight, chunks of {chunk:,}", _ten_milliseconds, [_LATENCY] * rows, in_flight, chunk)
        for in_flight, rows in ((100, 20_000), (1000, 200_000))
        for chunk in (1_000, _CHUNK)
    ]
    slow = [10 * _tail_of(row) for row in range(20_000)]
    cases.append(("heavy tail (1 % at 1 s, else 10 ms), 100 in flight", _slow_heavy_tail, slow, 100, _CHUNK))
    for name, fn, latencies, in_flight, chunk in cases:
        rows, limit = len(latencies), ideal_seconds(latencies, in_flight)
        ours, floor, waited = [], [], []
        for _ in range(_ROUNDS):
            floor.append(floor_seconds(background, fn, rows, in_flight))
            before = _waited()
            ours.append(engine_seconds(fn, rows, in_flight, chunk))
            waited.append((_waited() - before) / ours[-1])
        pairs = [bare / full for bare, full in zip(floor, ours, strict=True)]
        print(
            f"{name}: {limit / statistics.median(ours):.2f} of the limit (best {limit / min(ours):.2f});"
            f" a bare loop {limit / statistics.median(floor):.2f} (best {limit / min(floor):.2f});"
            f" {statistics.median(pairs):.2f} of the bare loop (best {max(pairs):.2f});"
            f" the engine waited for a processor {statistics.median(waited):.0%} of the time",
            flush=True,
        )


def _waited() -> float:
    """Return the seconds for which this process's threads were runnable without a processor."""
    waited = 0
    for schedule in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            waited += int(schedule.read_text().split()[1])
    return waited / 1e9


def _processor_time() -> None:
    rows = 300_000

    async def bare() -> None:
        for row in range(rows):
            await _at_once(row)

    ours, floor = [], []
    for _ in range(2 * _ROUNDS):
        began = time.process_time()
        asyncio.run(bare())
        floor.append(time.process_time() - began)
        began = time.process_time()
        engine_seconds(_at_once, rows, 100, _CHUNK)
        ours.append(time.process_time() - began)
    per_row = 1e6 / rows
    print(
        f"a function that returns immediately, retries and timeouts on: {min(ours) * per_row:.2f} µs of processor time"
        f" per row (median {statistics.median(ours) * per_row:.2f}), {min(floor) * per_row:.2f} for a bare call"
    )


def _memory() -> None:
    sizes = {rows: _peak_memory(rows) for rows in (100_000, 1_000_000, 10_000_000)}
    figures = ", ".join(f"{rows:,} rows: {size:.1f} MB" for rows, size in sizes.items())
    print(f"memory of the process, {figures}; ratio {sizes[10_000_000] / sizes[100_000]:.3f}")


def _peak_memory(rows: int) -> float:
    program = f"from benchmarks.enrichment import report_memory; report_memory({rows})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    return float(done.stdout)


def report_memory(rows: int) -> None:
    """Enrich ``rows`` with distinct answers, and print the peak memory in megabytes."""
    import resource

    engine = Engine(Plan(_record), Definition("calls", "answers", "resource", "batch"))
    for _ in engine.run(_chunks(rows, _CHUNK)):
        pass
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _against_others() -> None:
    """Compare the recipes with heavy-tailed latency, in memory and with an HTTP service on this machine."""

    async def pretend(_: object, row: int) -> int:
        return await _heavy_tail(row)

    # Only these recipes use the batch size.
    by_batch = {name: RECIPES[name] for name in ("enrich", "asyncio.run(gather) per batch")}
    for rows, batch, recipes in ((5_000, 1_000, RECIPES), (20_000, _CHUNK, by_batch)):
        job = Job(contextlib.nullcontext, pretend, rows, 100, batch)
        limit = ideal_seconds(map(_tail_of, range(rows)), 100)
        _compare(f"heavy tail, 100 in flight, batches of {batch:,}", recipes, job, limit)
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from enrich_service import EnrichService

    rows, in_flight, delay, share, tail = 1_500, 30, 0.025, 0.01, 0.5
    with tempfile.TemporaryDirectory() as folder, EnrichService(Path(folder) / "calls.jsonl") as service:

        async def get(session: aiohttp.ClientSession, row: int) -> int:
            async with session.get(f"{service.url}/users/{row}") as response:
                response.raise_for_status()
                return int((await response.json())["key"])

        def opened() -> aiohttp.ClientSession:
            return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=in_flight))

        def check(_: int) -> None:
            calls = service.calls()
            assert len(calls) == rows
            assert max(call.in_flight for call in calls) <= in_flight

        _compare(
            f"HTTP service, heavy tail (1 % at 500 ms, else 25 ms), {in_flight} in flight, batches of 250",
            RECIPES,
            Job(opened, get, rows, in_flight, 250),
            rows * (delay * (1 - share) + tail * share) / in_flight,
            lambda seed: service.script(delay=delay, tail=[share, tail], seed=seed),
            check,
        )


def _compare(
    name: str,
    recipes: dict[str, Callable[[Job], list[Any]]],
    job: Job,
    limit: float,
    before: Callable[[int], None] = lambda _: None,
    after: Callable[[int], None] = lambda _: None,
) -> None:
    """Run the recipes alternately, and reverse their order in every second round."""
    times: dict[str, list[float]] = {recipe: [] for recipe in recipes}
    for number in range(_ROUNDS):
        for recipe in list(recipes) if number % 2 == 0 else reversed(recipes):
            before(number)
            began = time.perf_counter()
            answers = RECIPES[recipe](job)
            times[recipe].append(time.perf_counter() - began)
            assert answers == list(range(job.rows))
            after(number)
    print(f"{name}:")
    ours = statistics.median(times["enrich"])
    for recipe, seconds in times.items():
        median = statistics.median(seconds)
        print(f"  {recipe}: {median / limit:.2f} times the limit, {median / ours:.2f} times enrich", flush=True)


def run() -> None:
    """Print all results."""
    background = BackgroundLoop()
    print(f"event loop: {background.kind}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    _processor_time()
    _latency_bound(background)
    background.close(1)
    _memory()
    _against_others()


if __name__ == "__main__":
    run()
