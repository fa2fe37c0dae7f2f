"""Common alternatives to enrich, each in its usual form.

All recipes keep the order and limit the calls in flight. Only enrich has timeouts and retries.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import aiostream

from spark_events.enrichment.engine.calls import Chunk
from spark_events.enrichment.engine.engine import Definition, Engine
from spark_events.enrichment.plan import Plan

__all__ = ["RECIPES", "Job"]


@dataclasses.dataclass(frozen=True)
class Job:
    """Workload that every recipe runs.

    Attributes:
        opened: returns a client as an async context manager.
        call: makes one call with the client.
        rows: number of rows; each row is its index.
        in_flight: maximum number of concurrent calls.
        batch: rows per Arrow batch.
    """

    opened: Callable[[], contextlib.AbstractAsyncContextManager[Any]]
    call: Callable[[Any, int], Awaitable[Any]]
    rows: int
    in_flight: int
    batch: int

    def batches(self, size: int) -> list[range]:
        """Split the rows into ranges of ``size``."""
        return [range(start, min(self.rows, start + size)) for start in range(0, self.rows, size)]


async def _bounded(job: Job, client: Any, rows: range) -> list[Any]:
    free = asyncio.Semaphore(job.in_flight)

    async def one(row: int) -> Any:
        async with free:
            return await job.call(client, row)

    return await asyncio.gather(*(one(row) for row in rows))


def _enrich(job: Job) -> list[Any]:
    async def fn(row: int, ctx: Any) -> Any:
        return await job.call(ctx.resource, row)

    key = str(time.monotonic_ns())
    engine = Engine(Plan(fn, resource=job.opened, max_in_flight=job.in_flight), Definition(key, key, key, key))
    chunks = (Chunk(part, lambda index, part=part: str(part[index]), len(part)) for part in job.batches(job.batch))  # type: ignore[misc]
    return [answer for _, answers in engine.run(chunks) for answer in answers]


def _gather_by_groups(job: Job) -> list[Any]:
    """Collect all rows at the driver, and gather groups of ``in_flight`` calls, one group at a time."""

    async def main() -> list[Any]:
        answers: list[Any] = []
        async with job.opened() as client:
            for group in job.batches(job.in_flight):
                answers += await asyncio.gather(*(job.call(client, row) for row in group))
        return answers

    return asyncio.run(main())


def _gather_with_semaphore(job: Job) -> list[Any]:
    """Collect all rows at the driver, and run one task per row behind a semaphore.

    This recipe is fast while all rows fit into memory.
    """

    async def main() -> list[Any]:
        async with job.opened() as client:
            return await _bounded(job, client, range(job.rows))

    return asyncio.run(main())


def _run_per_batch(job: Job) -> list[Any]:
    """Use a new loop, client and gather for each Arrow batch, as in a pandas UDF."""

    async def one_batch(rows: range) -> list[Any]:
        async with job.opened() as client:
            return await _bounded(job, client, rows)

    return [answer for rows in job.batches(job.batch) for answer in asyncio.run(one_batch(rows))]


def _aiostream(job: Job) -> list[Any]:
    """Use aiostream's ordered map."""

    async def main() -> list[Any]:
        async with job.opened() as client:

            async def one(row: int, *_: int) -> Any:
                return await job.call(client, row)

            rows = aiostream.stream.iterate(range(job.rows))
            mapped: aiostream.Stream[Any] = aiostream.stream.map(rows, one, ordered=True, task_limit=job.in_flight)
            return list(await aiostream.stream.list(mapped))

    return asyncio.run(main())


def _ordered_wait(job: Job) -> list[Any]:
    """Port of the algorithm of Flink's ``AsyncDataStream.orderedWait`` to asyncio.

    As in Flink's ``OrderedStreamElementQueue``, an element enters when the queue contains fewer than ``capacity``
    elements, including finished elements behind an unfinished head. Only a finished head leaves the queue.
    """

    async def main() -> list[Any]:
        queue: deque[asyncio.Task[Any]] = deque()
        answers: list[Any] = []
        async with job.opened() as client:
            for row in range(job.rows):
                while len(queue) >= job.in_flight:
                    await asyncio.wait([queue[0]])
                    while queue and queue[0].done():
                        answers.append(queue.popleft().result())
                queue.append(asyncio.ensure_future(job.call(client, row)))
            answers += [await task for task in queue]
        return answers

    return asyncio.run(main())


RECIPES: dict[str, Callable[[Job], list[Any]]] = {
    "enrich": _enrich,
    "collect, then gather by groups": _gather_by_groups,
    "collect, then gather with a semaphore": _gather_with_semaphore,
    "asyncio.run(gather) per batch": _run_per_batch,
    "aiostream's ordered map": _aiostream,
    "a port of Flink's orderedWait": _ordered_wait,
}
