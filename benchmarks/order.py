"""Compare ordered and unordered enrichment: time and held rows of one engine.

Of 100 calls, 99 take 1 ms and one takes 100 ms. Both variants make the same calls and run alternately. The result is
the median of the ratios of pairs. Each run verifies the number of rows. ``ORDER_ROUNDS`` sets the number of
repetitions.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from benchmarks.enrichment import ideal_seconds
from spark_events.enrichment.engine.calls import Chunk
from spark_events.enrichment.engine.engine import Definition, Engine
from spark_events.enrichment.plan import Plan

_ROUNDS = int(os.environ.get("ORDER_ROUNDS", "5"))
_TAIL_EVERY, _TAIL, _REST = 100, 0.1, 0.001
_IN_FLIGHT = 100
_ROW_BYTES = 100
_LARGE = 100_000


@dataclasses.dataclass(frozen=True)
class _Case:
    """Case: a function, the number of rows, the rows per chunk, and the limits of the buffer."""

    fn: Callable[[int], Awaitable[Any]]
    rows: int = 40_000
    chunk: int = 1_000
    buffer: dict[str, int] = dataclasses.field(default_factory=dict)


async def _even(row: int) -> int:
    await asyncio.sleep(_REST)
    return row


async def _heavy_tail(row: int) -> int:
    await asyncio.sleep(_tail_of(row))
    return row


def _tail_of(row: int) -> float:
    return _TAIL if row % _TAIL_EVERY == 0 else _REST


async def _large(row: int) -> bytes:
    await _heavy_tail(row)
    return bytes(_LARGE)


# Chunks have the same size as in `Partition`: an eighth of the buffer.
_CASES = {
    "no tail, default buffer": _Case(_even),
    "heavy tail, default buffer": _Case(_heavy_tail),
    "heavy tail, buffer of 1,000 rows": _Case(_heavy_tail, 20_000, 125, {"buffer_rows": 1_000}),
    "heavy tail, buffer of 200 rows": _Case(_heavy_tail, 10_000, 25, {"buffer_rows": 200}),
    "heavy tail, answers of 100 KB, buffer of 64 MB": _Case(_large, 20_000, 80, {"buffer_bytes": 64 << 20}),
    "heavy tail, answers of 100 KB, buffer of 16 MB": _Case(_large, 10_000, 20, {"buffer_bytes": 16 << 20}),
}


def _chunks(case: _Case) -> Iterator[Chunk]:
    for start in range(0, case.rows, case.chunk):
        rows = list(range(start, min(case.rows, start + case.chunk)))
        yield Chunk(rows, lambda index, start=start: str(start + index), _ROW_BYTES * len(rows))  # type: ignore[misc]


def _run(case: _Case, *, ordered: bool) -> tuple[float, int]:
    """Return the duration in seconds, and the maximum number of held rows."""
    plan = Plan(case.fn, max_in_flight=_IN_FLIGHT, ordered=ordered, **case.buffer)  # type: ignore[arg-type]
    engine = Engine(plan, Definition("calls", "answers", "resource", str(time.monotonic_ns())))
    began = time.perf_counter()
    returned = sum(len(answers) for _, answers in engine.run(_chunks(case)))
    took = time.perf_counter() - began
    assert returned == engine.statistics()["calls"] == case.rows
    return took, engine.statistics()["buffer_rows"]


def run() -> None:
    """For each case, print the ratio of the ordered to the unordered duration, and the rows that both variants hold."""
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; {_IN_FLIGHT} calls in flight")
    for name, case in _CASES.items():
        runs: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
        for number in range(_ROUNDS):
            for ordered in (True, False) if number % 2 == 0 else (False, True):
                runs[ordered].append(_run(case, ordered=ordered))
        seconds = {ordered: [took for took, _ in some] for ordered, some in runs.items()}
        held = {ordered: max(rows for _, rows in some) for ordered, some in runs.items()}
        ratios = [slow / fast for slow, fast in zip(seconds[True], seconds[False], strict=True)]
        latencies = [_REST if case.fn is _even else _tail_of(row) for row in range(case.rows)]
        limit = ideal_seconds(latencies, _IN_FLIGHT)
        print(
            f"{name}: ordered takes {statistics.median(ratios):.2f} times unordered ({min(ratios):.2f} to"
            f" {max(ratios):.2f}); {statistics.median(seconds[True]) / limit:.2f} and"
            f" {statistics.median(seconds[False]) / limit:.2f} times the limit; rows held"
            f" {held[True]:,} and {held[False]:,}",
            flush=True,
        )


if __name__ == "__main__":
    run()
