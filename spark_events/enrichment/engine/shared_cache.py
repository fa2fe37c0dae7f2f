"""Store of answers that worker processes share.

If the store fails or is slow, the engine calls the service, so no row fails because of the store. Lookups run one after
another, so that calls start in the order in which their rows were admitted. While a lookup waits for the store, calls
for the rows of earlier chunks run. Writes that wait for the store are sent together.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from spark_events.enrichment.engine.calls import RowBatch
from spark_events.enrichment.engine.failure import message_of, type_of
from spark_events.enrichment.engine.resources import Resources
from spark_events.enrichment.engine.statistics import EngineCounts
from spark_events.enrichment.settings import Cache

__all__ = ["Codec", "Pause", "SharedCache"]

T = TypeVar("T")
#: Function that receives a looked-up batch, the found answers by index, and the indices without an answer.
Deliver: TypeAlias = Callable[[RowBatch, dict[int, Any], list[int]], None]

#: After an error, no task of the worker process accesses the store for this time, in seconds.
_PAUSE_SECONDS = 5.0
#: Minimum time limit for opening the store, in seconds; opening may import a library.
_OPEN_SECONDS = 2.0
_MOST_WRITTEN = 500
#: Maximum number of answers that wait for a write; beyond this number, the oldest answer is dropped.
_MOST_PENDING = 10_000


class Codec(Protocol):
    """Conversion of requests to keys and of answers to bytes; each method may raise an exception."""

    def key(self, request: Hashable) -> str:
        """Return a string that is the same in every process for equal requests."""

    def encode(self, answer: Any) -> bytes:
        """Return the answer as bytes."""

    def decode(self, data: bytes) -> Any:
        """Return the answer from its bytes."""


@dataclasses.dataclass(slots=True)
class Pause:
    """Period after a failure of the store during which a worker process does not access the store."""

    until: float = 0.0


class SharedCache:
    """Access of one run to the store; used by the loop's thread only.

    Args:
        cache: the store, the time limit and the lifetime of answers.
        definition: the digest of everything, except the request, that determines an answer.
        codec: a function that returns the conversion; may raise an exception.
        resources: holds the open store between tasks.
        pause: the pause, shared by all runs of this process that use this store.
        counts: the counters of the run.
        clock: monotonic time in seconds.
    """

    def __init__(
        self,
        cache: Cache,
        definition: str,
        codec: Callable[[], Codec],
        resources: Resources,
        pause: Pause,
        counts: EngineCounts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert cache.store is not None
        self._open_it = cache.store
        self._cache = cache
        self._open_seconds = max(_OPEN_SECONDS, cache.timeout)
        # Two enrichments with the same function may have different stores.
        self._place = (definition, cache.store)
        self._prefix = f"{cache.version}:{definition}:"
        self._make_codec = codec
        self._resources = resources
        self._counts = counts
        self._clock = clock
        self._codec: Codec | None = None
        self._store: Any = None
        self._pause = pause
        self._lookups: deque[tuple[RowBatch, list[int], Deliver]] = deque()
        self._pending: dict[str, bytes] = {}
        self._writing: dict[str, bytes] = {}
        self._tasks: dict[Callable[[], Any], asyncio.Task[None]] = {}
        self._closing = False

    def look_up(self, batch: RowBatch, indices: list[int], deliver: Deliver) -> None:
        """Look up the answers of these rows, after the lookups of earlier batches.

        ``deliver`` receives the batch, the found answers by index, and the indices without an answer.
        """
        self._lookups.append((batch, indices, deliver))
        self._drain(self._lookups, self._look)

    def put(self, request: Hashable, answer: Any) -> None:
        """Enqueue an answer for the store."""
        if self._codec is None or self._is_paused:
            return
        try:
            self._pending[self._prefix + self._codec.key(request)] = self._codec.encode(answer)
        except Exception as error:
            self._failed("an answer cannot be stored", error)
            return
        if len(self._pending) > _MOST_PENDING:
            del self._pending[next(iter(self._pending))]
            self._counts.cache_errors += 1
        self._drain(self._pending, self._write)

    async def close(self, *, flush: bool) -> None:
        """Stop all access to the store.

        With ``flush``, first write pending answers, for at most ``Cache.timeout``.
        """
        writes = self._tasks.get(self._write)
        if flush and writes is not None:
            await asyncio.wait({writes}, timeout=self._cache.timeout)
        self._closing = True
        for task in self._tasks.values():
            task.cancel()
        if self._store is not None:
            self._resources.release(self._place)

    def _drain(self, queue: Collection[Any], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run one task of ``work`` while the queue has entries, even if user code cancels all tasks of its loop."""
        if not queue or self._closing or work in self._tasks:
            return

        def ended(_: asyncio.Task[None]) -> None:
            del self._tasks[work]
            self._drain(queue, work)

        self._tasks[work] = task = asyncio.ensure_future(work())
        task.add_done_callback(ended)

    async def _look(self) -> None:
        while self._lookups:
            batch, indices, deliver = self._lookups[0]
            found: dict[int, Any] = {}
            try:
                found = await self._found(batch, indices)
            finally:
                if not self._closing:
                    self._lookups.popleft()
                    deliver(batch, found, [index for index in indices if index not in found])

    async def _found(self, batch: RowBatch, indices: Sequence[int]) -> dict[int, Any]:
        if not indices or not await self._is_open():
            return {}
        assert self._codec is not None
        requests, codec = batch.chunk.requests, self._codec
        assert requests is not None
        try:
            keys = [self._prefix + codec.key(requests[index]) for index in indices]
        except Exception as error:
            self._failed("a request has no key", error)
            return {}
        # Answers that are not in the store yet.
        late = {**self._writing, **self._pending}
        stored: dict[str, bytes | None] = {key: late[key] for key in keys if key in late}
        rest = [key for key in keys if key not in stored]
        values = await self._bounded("reading", lambda: self._store.get_many(rest)) if rest else []
        if isinstance(values, Sequence) and len(values) == len(rest):
            stored.update(zip(rest, values, strict=True))
        elif values is not None:
            self._failed("reading", TypeError("get_many must return one value for each key"))
        found: dict[int, Any] = {}
        for index, key in zip(indices, keys, strict=True):
            if (value := stored.get(key)) is not None:
                try:
                    found[index] = codec.decode(value)
                except Exception as error:
                    self._failed("a stored answer cannot be read", error)
        return found

    async def _write(self) -> None:
        while self._pending:
            keys = list(itertools.islice(self._pending, _MOST_WRITTEN))
            self._writing = answers = {key: self._pending.pop(key) for key in keys}
            # Only lookups open the store, because one of two concurrently opened stores would never be closed.
            if self._store is not None and not self._is_paused:
                writing = functools.partial(self._store.set_many, answers, self._cache.ttl)
                await self._bounded("writing", writing)
            self._writing = {}

    @property
    def _is_paused(self) -> bool:
        return self._clock() < self._pause.until

    async def _is_open(self) -> bool:
        if self._is_paused:
            return False
        if self._store is None:
            self._store = await self._bounded("opening", self._opened, self._open_seconds)
        return self._store is not None

    async def _opened(self) -> Any:
        self._codec = self._make_codec()
        return await self._resources.acquire(self._place, self._open_it, self._open_seconds)

    async def _bounded(self, what: str, work: Callable[[], Awaitable[T]], seconds: float | None = None) -> T | None:
        """Return the result of an access; None after an error or the time limit.

        The time limit applies even if the store ignores its cancellation.
        """

        async def tried() -> T | None:
            try:
                return await work()
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # includes SystemExit, which would end the loop of the whole process
                self._failed(what, error, pause=True)
                return None

        limit = self._cache.timeout if seconds is None else seconds
        task = asyncio.ensure_future(tried())
        try:
            done, _ = await asyncio.wait({task}, timeout=limit)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            task.cancel()
            self._failed(what, TimeoutError(f"no answer within {limit:g} s"), pause=True)
            return None
        return None if task.cancelled() else task.result()

    def _failed(self, what: str, error: BaseException, *, pause: bool = False) -> None:
        counts = self._counts
        if pause:
            self._pause.until = self._clock() + _PAUSE_SECONDS
            self._pending.clear()
        if not counts.cache_errors:
            text = f"the cache's store failed ({what}: {type_of(error)}: {message_of(error)}); calls go to the service"
            counts.hints[text] = 1
        counts.cache_errors += 1
