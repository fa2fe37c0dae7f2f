"""What people write instead of enrich, each as it is usually written, over the same HTTP service.

All keep the order and at most so many calls in flight. None has timeouts or retries, which ours has.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import aiostream

from spark_events.enrich.engine.chunk import Chunk
from spark_events.enrich.engine.engine import Definition, Engine
from spark_events.enrich.plan import Plan

__all__ = ["RECIPES"]

_BATCH = 250


def _client(in_flight: int) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=in_flight))


async def _lookup(session: aiohttp.ClientSession, url: str, row: int) -> Any:
    async with session.get(f"{url}/users/{row}") as response:
        response.raise_for_status()
        return await response.json()


def _enrich(url: str, rows: int, in_flight: int) -> list[Any]:
    @contextlib.asynccontextmanager
    async def client() -> AsyncIterator[aiohttp.ClientSession]:
        async with _client(in_flight) as session:
            yield session

    async def fn(row: int, ctx: Any) -> Any:
        return await _lookup(ctx.resource, url, row)

    key = str(time.monotonic_ns())
    engine = Engine(Plan(fn, resource=client, max_in_flight=in_flight), Definition(key, key, key))
    starts = range(0, rows, _BATCH)
    chunks = (Chunk(list(range(s, min(rows, s + _BATCH))), lambda i, s=s: str(s + i), _BATCH) for s in starts)  # type: ignore[misc]
    return [answer for _, answers in engine.run(chunks) for answer in answers]


def _collect_and_gather(url: str, rows: int, in_flight: int) -> list[Any]:
    """All rows at the driver, as many calls at a time as may be in flight, one group after the other."""

    async def main() -> list[Any]:
        answers: list[Any] = []
        async with _client(in_flight) as session:
            for start in range(0, rows, in_flight):
                group = range(start, min(rows, start + in_flight))
                answers += await asyncio.gather(*(_lookup(session, url, row) for row in group))
        return answers

    return asyncio.run(main())


def _collect_and_gather_with_semaphore(url: str, rows: int, in_flight: int) -> list[Any]:
    """All rows at the driver, a task for each: fast while everything fits into its memory."""

    async def main() -> list[Any]:
        free = asyncio.Semaphore(in_flight)
        async with _client(in_flight) as session:

            async def one(row: int) -> Any:
                async with free:
                    return await _lookup(session, url, row)

            return await asyncio.gather(*(one(row) for row in range(rows)))

    return asyncio.run(main())


def _run_per_batch(url: str, rows: int, in_flight: int) -> list[Any]:
    """As in a pandas UDF: a loop, a client and a gather for each Arrow batch."""

    async def batch(part: range) -> list[Any]:
        free = asyncio.Semaphore(in_flight)
        async with _client(in_flight) as session:

            async def one(row: int) -> Any:
                async with free:
                    return await _lookup(session, url, row)

            return await asyncio.gather(*(one(row) for row in part))

    answers: list[Any] = []
    for start in range(0, rows, _BATCH):
        answers += asyncio.run(batch(range(start, min(rows, start + _BATCH))))
    return answers


def _aiostream(url: str, rows: int, in_flight: int) -> list[Any]:
    """aiostream's ordered map."""

    async def main() -> list[Any]:
        async with _client(in_flight) as session:

            async def one(row: int, *_: int) -> Any:
                return await _lookup(session, url, row)

            mapped = aiostream.stream.map(aiostream.stream.iterate(range(rows)), one, ordered=True, task_limit=in_flight)
            return list(await aiostream.stream.list(mapped))

    return asyncio.run(main())


def _ordered_wait(url: str, rows: int, in_flight: int) -> list[Any]:
    """A port of the algorithm of Flink's ``AsyncDataStream.orderedWait``, not Flink itself.

    As its ``OrderedStreamElementQueue``: an element enters when there are fewer than ``capacity`` in the queue, the
    finished ones that wait for their turn among them; only a finished head leaves.
    """

    async def main() -> list[Any]:
        queue: deque[asyncio.Task[Any]] = deque()
        answers: list[Any] = []
        async with _client(in_flight) as session:
            for row in range(rows):
                while len(queue) >= in_flight:
                    await asyncio.wait([queue[0]])
                    while queue and queue[0].done():
                        answers.append(queue.popleft().result())
                queue.append(asyncio.ensure_future(_lookup(session, url, row)))
            answers += [await task for task in queue]
        return answers

    return asyncio.run(main())


RECIPES: dict[str, Callable[[str, int, int], list[Any]]] = {
    "enrich": _enrich,
    "collect, then gather by groups": _collect_and_gather,
    "collect, then gather with a semaphore": _collect_and_gather_with_semaphore,
    "asyncio.run(gather) per batch": _run_per_batch,
    "aiostream's ordered map": _aiostream,
    "a port of Flink's orderedWait": _ordered_wait,
}
