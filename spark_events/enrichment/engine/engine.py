"""The engine as the task sees it: chunks in, answers out, in order."""

from __future__ import annotations

import asyncio
import functools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from spark_events.enrichment.engine.assembly import Definition, assemble
from spark_events.enrichment.engine.buffer import Buffer
from spark_events.enrichment.engine.bulk import Misfit
from spark_events.enrichment.engine.calls import PENDING, Chunk, RowBatch
from spark_events.enrichment.engine.deadlines import GRACE_SECONDS
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.keys import HotKeys
from spark_events.enrichment.engine.pool import Pool, Signals
from spark_events.enrichment.engine.process import Process, current_process, give_up
from spark_events.enrichment.engine.resources import open_resource
from spark_events.enrichment.engine.statistics import EngineCounts, counted
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.signature import name_of

__all__ = ["Definition", "Engine", "StoppedError"]

_LOG = logging.getLogger(__name__)
#: A loop that a call blocks cannot stop; nobody waits for it longer than for a call that does not unwind.
_STOP_SECONDS = 2 * GRACE_SECONDS


class _BlockedError(Exception):
    """The loop stands still, and there is no hope."""


class StoppedError(Exception):
    """The run was cancelled with :meth:`Engine.cancel`."""


class Engine:
    """Calls a function for every row, many at once, and gives the answers in the rows' order.

    One engine a task. The calls are made on the loop of the worker process, in a thread of its own; chunks are pulled
    and answers handed out in the caller's thread.

    Args:
        plan: what the user asked for.
        definition: what may be kept in this process.
        rate: attempts a second that this task may make, the first one 1 / rate seconds after its beginning, for a task
            before it may have made one a moment ago; None: no limit.
        misfit: why what the function gave is no answer. It is asked, on the loop, only where that matters at once: for
            the rows behind it with the same key, and for the cache. None: whatever it gives is one.
        began: when the task began, of ``time.monotonic``; None: now.
    """

    def __init__(
        self,
        plan: Plan,
        definition: Definition,
        rate: float | None = None,
        misfit: Misfit | None = None,
        *,
        began: float | None = None,
    ) -> None:
        self._plan = plan
        self._definition = definition
        self._rate = rate
        self._began = time.monotonic() if began is None else began
        self._misfit = misfit
        self._counts = EngineCounts()
        self._hot = HotKeys(plan.max_in_flight)
        self._kind = ""
        # What happened on the loop: None for news in general, an exception that must end the run.
        self._news: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._held: deque[RowBatch] = deque()
        flying = plan.max_in_flight * (plan.batch_size or 1)
        self._buffer = Buffer(plan.buffer_rows, plan.buffer_bytes, flying, self._tell)
        # So many calls in store: while a chunk is fetched and made into rows, nobody must be idle.
        self._low = max(plan.max_in_flight, plan.buffer_rows // 4)
        self._pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._life: asyncio.Task[None] | None = None
        self._ending = False
        self._given_up = False
        self._ended = threading.Event()

    def run(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, list[Any]]]:
        """Yields every chunk with its answers, in the order in which the chunks came.

        An answer is what the function returned, or a :class:`RowFailure`: a row that fails never raises here.
        Chunks are pulled ahead, only while the buffer has room. Closing the iterator (Spark
        does, when a task is killed) starts no new call, cancels those in flight and waits for them, a bounded time.

        Raises:
            StoppedError: :meth:`cancel` was called.
        """
        process = current_process()
        self._loop = loop = process.background.loop
        self._kind = process.background.kind
        source = iter(chunks)
        process.watch.add(self._stood_still)
        try:
            loop.call_soon_threadsafe(self._begin, process)
            while self._pool is None:
                self._await_news()
            yield from self._answers(loop, self._pool, source)
        except _BlockedError as error:
            give_up(process)
            self._given_up = True
            # Should the loop turn again, the rows that go out as failed here must not be called.
            self._cut_off()
            yield from self._without_the_loop(source, RowFailure("timeout", "BlockedLoopError", str(error)))
        finally:
            process.watch.remove(self._stood_still)
            self._end()

    def cancel(self) -> None:
        """Starts no new call and cancels those in flight; for any thread. ``run`` then raises."""
        # At once, without the caller's thread, which may be waiting for its next chunk.
        self._cut_off()
        self._news.put(StoppedError("the run was cancelled"))

    def unfinished(self) -> list[tuple[Chunk, list[Any]]]:
        """The chunks that have not gone out, with the answers there are and ``PENDING`` for the others; any thread."""
        copies = [(batch, batch.answers.copy()) for batch in tuple(self._held)]
        # What has gone out meanwhile may have lost its answers to whoever has it now.
        held = set(self._held)
        return [(batch.chunk, answers) for batch, answers in copies if batch in held]

    @property
    def room(self) -> int:
        """Rows that the next chunk may have; where nothing is held, more do no harm."""
        return self._plan.buffer_rows if self._given_up else self._buffer.room

    @property
    def answer_size(self) -> float | None:
        """Bytes of an answer, the mean of the latest that were measured; None before the first."""
        # Where nothing is called any more, there are none.
        return 0.0 if self._given_up else self._buffer.answer

    def statistics(self) -> dict[str, Any]:
        """Return what was counted so far, as plain data."""
        peaks = {"buffer_rows": self._buffer.most_rows, "buffer_bytes": self._buffer.most_bytes, "loop": self._kind}
        return {**counted(self._counts, self._hot.hot()), **peaks}

    def _answers(
        self, loop: asyncio.AbstractEventLoop, pool: Pool, chunks: Iterator[Chunk]
    ) -> Iterator[tuple[Chunk, list[Any]]]:
        """Pulls, waits and hands out, in the caller's thread."""
        held, buffer, width, low = self._held, self._buffer, self._plan.max_in_flight, self._low
        more = True
        while more or held:
            room = more and buffer.has_room
            # What the loop has not seen yet waits as well.
            waiting = pool.feed.waiting + self._counts.rows - pool.admitted
            if room and waiting < width:
                more = self._pull(loop, pool, chunks)
            elif held and not held[0].left:
                batch = held.popleft()
                buffer.let_out(len(batch.rows), batch.chunk.size)
                yield batch.chunk, batch.answers
            elif room and waiting <= low:
                more = self._pull(loop, pool, chunks)
            else:
                if more and buffer.is_full:
                    # Nothing comes before something goes: no call must wait to be filled.
                    loop.call_soon_threadsafe(self._guarded, pool.flush)
                self._await_news()

    def _pull(self, loop: asyncio.AbstractEventLoop, pool: Pool, chunks: Iterator[Chunk]) -> bool:
        chunk = next(chunks, None)
        if chunk is None:
            loop.call_soon_threadsafe(self._guarded, pool.flush)
            return False
        batch = RowBatch(chunk, time.monotonic(), self._buffer)
        self._held.append(batch)
        self._counts.rows += len(batch.rows)
        self._buffer.take_in(len(batch.rows), chunk.size)
        loop.call_soon_threadsafe(self._guarded, functools.partial(pool.admit, batch))
        if not self._news.empty():
            self._await_news()
        return True

    def _without_the_loop(self, chunks: Iterator[Chunk], failure: RowFailure) -> Iterator[tuple[Chunk, list[Any]]]:
        """What has its answers goes out with them; the rest has failed, and nothing is called any more."""
        while self._held:
            batch = self._held.popleft()
            # The call that blocks it may end in this moment.
            there = batch.answers.copy()
            self._counts.failed(failure, there.count(PENDING))
            yield batch.chunk, [failure if answer is PENDING else answer for answer in there]
        for chunk in chunks:
            self._counts.rows += len(chunk.rows)
            self._counts.failed(failure, len(chunk.rows))
            yield chunk, [failure] * len(chunk.rows)

    def _stood_still(self, where: str, seconds: float) -> None:
        """For the watch: a call blocks the loop, which no deadline on the loop can end."""
        self._counts.stood_still(where, seconds)
        limit = self._plan.total_timeout or self._plan.timeout
        if limit is not None and seconds > limit:
            self._news.put(_BlockedError(f"{where} has blocked the event loop for {seconds:.0f} s"))

    def _await_news(self) -> None:
        """Waits until something has happened, and takes all that has."""
        while True:
            news = self._news.get()
            if news is not None:
                raise news
            if self._news.empty():
                return

    def _tell(self) -> None:
        self._news.put(None)

    def _guarded(self, step: Callable[[], None]) -> None:
        """On the loop: an error there must reach the caller, who would wait for ever."""
        try:
            step()
        except Exception as error:
            self._news.put(error)

    def _begin(self, process: Process) -> None:
        self._life = asyncio.get_running_loop().create_task(self._live(process))
        self._life.add_done_callback(self._over)

    async def _live(self, process: Process) -> None:
        """The run's part on the loop: from the opening of the resource to its release."""
        plan, key = self._plan, self._definition.resource
        signals = Signals(self._low, self._tell, process.watch.beat, self._news.put)
        try:
            resource = await open_resource(plan, key, process.resources)
        except asyncio.CancelledError:
            if self._ending:
                raise
            self._uncancel()
            resource = RowFailure("resource", "CancelledError", "other code on the event loop cancelled its opening")
        refusal = resource if isinstance(resource, RowFailure) else None
        if self._ending:
            # The end came just when it was open: asyncio.wait_for keeps what it has and forgets the cancellation.
            if plan.resource is not None and refusal is None:
                process.resources.release(key)
            raise asyncio.CancelledError
        pool = assemble(
            plan,
            self._definition,
            process,
            resource,
            self._rate,
            self._began,
            self._counts,
            self._hot,
            signals,
            self._misfit,
        )
        try:
            if refusal is not None:
                pool.refuse(refusal)
            pool.start()
            self._pool = pool
            self._tell()
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    # A call may cancel all tasks of its loop; whose end that is, is the engine's alone to say.
                    if self._ending:
                        raise
                    self._uncancel()
        finally:
            try:
                await pool.stop()
            finally:
                if plan.resource is not None and refusal is None:
                    process.resources.release(key)

    def _uncancel(self) -> None:
        uncancel = getattr(self._life, "uncancel", None)  # since Python 3.11
        if uncancel is not None:
            uncancel()

    def _over(self, life: asyncio.Task[None]) -> None:
        if not life.cancelled():
            error = life.exception()
        elif self._ending:
            error = None
        else:
            error = RuntimeError("other code on the event loop cancelled the enrichment before it began")
        if error is not None:
            self._news.put(error)
        self._ended.set()

    def _cut_off(self) -> None:
        """Starts no new call from this moment, and cancels those in flight as soon as the loop turns."""
        if self._pool is not None:
            self._pool.stopping = True
        self._ask_to_end()

    def _ask_to_end(self) -> bool:
        """Whether there is a loop that will hear it."""
        if self._loop is None:
            return False
        try:
            self._loop.call_soon_threadsafe(self._cancel_life)
        except RuntimeError:
            # It ended with its process.
            return False
        return True

    def _cancel_life(self) -> None:
        # Once: a second time would end the waiting for the calls.
        if self._life is not None and not self._ending:
            self._ending = True
            self._life.cancel()

    def _end(self) -> None:
        if self._ask_to_end() and not self._ended.wait(_STOP_SECONDS):
            # Its thread is in the hands of a call that blocks it; the watch has said which.
            _LOG.warning(
                "%s: the event loop is blocked; its calls could not be stopped in %g s",
                name_of(self._plan.fn),
                _STOP_SECONDS,
            )
