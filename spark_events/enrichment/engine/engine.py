"""Interface between the task and the engine: admits chunks and returns their answers."""

from __future__ import annotations

import asyncio
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from spark_events.enrichment.engine.assembly import Definition, assemble
from spark_events.enrichment.engine.buffer import RowBuffer
from spark_events.enrichment.engine.bulk import Misfit
from spark_events.enrichment.engine.calls import PENDING, Chunk, RowBatch
from spark_events.enrichment.engine.client_limits import shortcomings, used_up
from spark_events.enrichment.engine.deadlines import GRACE_SECONDS
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.keys import HotKeys
from spark_events.enrichment.engine.order import Answered, Ordered, Unordered, part_of
from spark_events.enrichment.engine.pool import Pool
from spark_events.enrichment.engine.process import Process, current_process, give_up
from spark_events.enrichment.engine.resources import open_resource
from spark_events.enrichment.engine.run import Signals
from spark_events.enrichment.engine.shared_cache import Codec
from spark_events.enrichment.engine.statistics import EngineCounts, counted
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.signature import name_of

__all__ = ["Definition", "Engine", "StoppedError"]

_LOG = logging.getLogger(__name__)
#: Time limit for stopping a run, in seconds. It exceeds the grace period of cancelled calls; a blocked loop would never
#: stop.
_STOP_SECONDS = 2 * GRACE_SECONDS


class _BlockedError(Exception):
    """Error: a call blocks the loop beyond its timeout, so the run cannot continue."""


class StoppedError(Exception):
    """Error: the run was cancelled with :meth:`Engine.cancel`."""


class _Life(asyncio.Task[None]):
    """Task of a run. Only the engine may cancel it, but user code may cancel all tasks of its loop."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Ignore a cancellation that does not come from the engine."""
        return False

    def end(self) -> None:
        """Cancel the task."""
        super().cancel()


class Engine:
    """Concurrent calls of a function for every row, answered in row order by default.

    Each task has one engine. The calls run on the loop of the worker process, in a separate thread. The caller's thread
    pulls chunks and returns answers.

    Args:
        plan: the options of the enrichment.
        definition: digests that identify reusable state of this process.
        rate: attempts per second of this task; None: no limit. The first attempt starts at least 1 / rate seconds after
            the task began, because the previous task may have made an attempt immediately before.
        misfit: returns the reason if a result is not a valid answer. The loop calls this function only if a retry, a
            later row with the same key or the cache depends on the check. None: every result is valid.
        share: the task's part of the job's limits, leased by code that the caller runs; None: the job has no limits.
        began: when the task began, in ``time.monotonic()`` seconds; None: now.
        codec: returns the conversion of answers for ``Cache.store``; None: the store is not used.
    """

    def __init__(
        self,
        plan: Plan,
        definition: Definition,
        rate: float | None = None,
        misfit: Misfit | None = None,
        *,
        share: JobShare | None = None,
        began: float | None = None,
        codec: Callable[[], Codec] | None = None,
    ) -> None:
        self._plan = plan
        self._definition = definition
        self._counts = EngineCounts()
        self._hot = HotKeys(plan.window.initial)
        self._assemble = functools.partial(
            assemble,
            plan,
            definition,
            rate=rate,
            began=time.monotonic() if began is None else began,
            counts=self._counts,
            hot=self._hot,
            misfit=misfit,
            share=share,
            codec=codec,
        )
        # Events from the loop: None for progress, an exception to end the run.
        self._news: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        flying = plan.window.initial * (plan.batch_size or 1)
        self._buffer = RowBuffer(plan.buffer_rows, plan.buffer_bytes, flying, self._notify)
        self._held = (Ordered if plan.ordered else Unordered)(self._buffer)
        # Minimum number of waiting calls, so that workers stay busy while the next chunk is fetched and converted to
        # rows.
        self._low = max(plan.window.max, plan.buffer_rows // 4)
        self._pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._life: _Life | None = None
        self._ending = False
        self._given_up = False
        self._ended = threading.Event()

    def run(self, chunks: Iterable[Chunk]) -> Iterator[Answered]:
        """Yield every chunk with its answers, in order.

        If the plan is unordered, also yield parts of chunks as their rows are answered. An answer is the function's
        result or a :class:`RowFailure`: a failed row raises no error here. The engine pulls further chunks only while
        the buffer has room. Spark closes the iterator when it kills a task. Closing it prevents new calls, cancels the
        calls in flight, and waits for a bounded time until they end.

        Raises:
            StoppedError: when :meth:`cancel` was called.
        """
        process = current_process()
        self._loop = loop = process.background.loop
        source = iter(chunks)
        process.watch.add(self._stood_still, self.hint)
        try:
            loop.call_soon_threadsafe(self._begin, process)
            while self._pool is None:
                self._await_news()
            yield from self._answers(loop, self._pool, source)
        except _BlockedError as error:
            give_up(process)
            self._given_up = True
            # The rows without an answer are returned as failed here. If the loop continues later, it must not start
            # calls for these rows.
            self._cut_off()
            yield from self._without_the_loop(source, RowFailure("timeout", "BlockedLoopError", str(error)))
        finally:
            process.watch.remove(self._stood_still)
            self._end()

    def cancel(self) -> None:
        """Make ``run`` stop its calls and raise StoppedError; may be called from any thread."""
        # Use the loop directly, because the caller's thread may be waiting for its next chunk.
        self._cut_off()
        self._news.put(StoppedError("the run was cancelled"))

    def hint(self, text: str) -> None:
        """Add a warning for the driver's log to the counters; may be called from any thread."""
        self._counts.hints[text] = 1

    def unfinished(self) -> list[tuple[Chunk, list[Any]]]:
        """Return the chunks that are not returned yet, with answers or ``PENDING``; may be called from any thread."""
        copies = [(batch, batch.answers.copy()) for batch in tuple(self._held.batches)]
        # Exclude chunks that have been returned in the meantime, because their consumer may have changed the answers.
        held = set(self._held.batches)
        return [(batch.chunk, answers) for batch, answers in copies if batch in held]

    @property
    def room(self) -> int:
        """Maximum number of rows of the next chunk; larger chunks are allowed while the engine holds none."""
        return self._plan.buffer_rows if self._given_up else self._buffer.room

    @property
    def answer_size(self) -> float | None:
        """Mean size in bytes of the latest measured answers; None before the first measurement."""
        # After the loop was abandoned, no further answers arrive.
        return 0.0 if self._given_up else self._buffer.answer

    def statistics(self) -> dict[str, Any]:
        """Return the counters so far, as plain data."""
        peaks = {"buffer_rows": self._buffer.most_rows, "buffer_bytes": self._buffer.most_bytes}
        return {**counted(self._counts, self._hot.hot()), **peaks}

    def _answers(self, loop: asyncio.AbstractEventLoop, pool: Pool, chunks: Iterator[Chunk]) -> Iterator[Answered]:
        """Pull chunks, wait, and yield answered rows; runs in the caller's thread."""
        held, buffer, width, low = self._held, self._buffer, self._plan.window.max, self._low
        more = True
        while more or held.batches:
            room = more and buffer.has_room
            # Rows that the loop has not admitted yet count as waiting too.
            waiting = pool.feed.waiting + self._counts.rows - pool.admitted
            if room and waiting < width:
                more = self._pull(loop, pool, chunks)
            elif (answered := held.pop()) is not None:
                yield answered
            elif room and waiting <= low:
                more = self._pull(loop, pool, chunks)
            else:
                pool.occupancy.is_full = more and buffer.is_full
                if pool.occupancy.is_full:
                    # The buffer is full, so no new rows can complete a partial call: start the partial calls now.
                    loop.call_soon_threadsafe(self._guarded, pool.flush)
                self._await_news()

    def _pull(self, loop: asyncio.AbstractEventLoop, pool: Pool, chunks: Iterator[Chunk]) -> bool:
        chunk = next(chunks, None)
        if chunk is None:
            loop.call_soon_threadsafe(self._guarded, pool.flush)
            return False
        pool.occupancy.is_full = False
        batch = RowBatch(chunk, time.monotonic(), self._buffer)
        self._held.batches.append(batch)
        self._counts.rows += len(batch.rows)
        self._buffer.take_in(len(batch.rows), chunk.size)
        loop.call_soon_threadsafe(self._guarded, functools.partial(pool.admit, batch))
        if not self._news.empty():
            self._await_news()
        return True

    def _without_the_loop(self, chunks: Iterator[Chunk], failure: RowFailure) -> Iterator[Answered]:
        """Yield the held rows with answers or failures, and fail all further rows without a call.

        The failure replaces each missing answer.
        """
        held = self._held.batches
        while held:
            batch = held.popleft()
            # Copy the answers, because the blocking call may end meanwhile.
            there = [batch.answers[row] for row in batch.open]
            self._counts.failed(failure, there.count(PENDING))
            yield part_of(batch, batch.open), [failure if answer is PENDING else answer for answer in there]
        for chunk in chunks:
            self._counts.rows += len(chunk.rows)
            self._counts.failed(failure, len(chunk.rows))
            yield chunk, [failure] * len(chunk.rows)

    def _stood_still(self, where: str, seconds: float) -> None:
        """Record a call that blocks the loop, and end the run when it exceeds its timeout; called by the watch."""
        self._counts.stood_still(where, seconds)
        limit = self._plan.total_timeout or self._plan.timeout
        if limit is not None and seconds > limit:
            self._news.put(_BlockedError(f"{where} has blocked the event loop for {seconds:.0f} s"))

    def _await_news(self) -> None:
        """Wait for an event from the loop, and consume all pending events."""
        while True:
            news = self._news.get()
            if news is not None:
                raise news
            if self._news.empty():
                return

    def _notify(self) -> None:
        self._news.put(None)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Execute a step on the loop, and pass its error to the caller, which would otherwise wait forever."""
        try:
            step()
        except Exception as error:
            self._news.put(error)

    def _begin(self, process: Process) -> None:
        self._life = _Life(self._live(process), loop=asyncio.get_running_loop())
        self._life.add_done_callback(self._over)

    async def _live(self, process: Process) -> None:
        """Do the loop's part of a run.

        Open the resource, execute the pool until cancellation, and release the resource.
        """
        plan, key = self._plan, self._definition.resource
        signals = Signals(self._low, self._notify, process.watch.beat, self._news.put)
        resource = await open_resource(plan, key, process.resources)
        refusal = resource if isinstance(resource, RowFailure) else None
        if refusal is None:
            self._warn(process, shortcomings(resource, plan))
        pool = self._assemble(process=process, resource=resource, signals=signals)
        try:
            if refusal is not None:
                pool.refuse(refusal)
            pool.start()
            self._pool = pool
            self._notify()
            await asyncio.Event().wait()
        finally:
            try:
                await pool.stop()
                if refusal is None:
                    self._warn(process, used_up(resource, plan, self._counts.peak))
            finally:
                if plan.resource is not None and refusal is None:
                    # A client may be unable to reconnect after its connection broke.
                    process.resources.release(key, broken=self._counts.only_unreachable)

    def _warn(self, process: Process, texts: Iterable[str]) -> None:
        for text in texts:
            self._counts.hints[text] = 1
            process.warn_once(text)

    def _over(self, life: asyncio.Task[None]) -> None:
        if not life.cancelled() and (error := life.exception()) is not None:
            self._news.put(error)
        self._ended.set()

    def _cut_off(self) -> None:
        """Start no new call, and cancel the calls in flight at the loop's next iteration."""
        if self._pool is not None:
            self._pool.run.stopping = True
        self._ask_to_end()

    def _ask_to_end(self) -> bool:
        """Schedule the shutdown of the run on the loop; return False if no loop is running."""
        if self._loop is None:
            return False
        try:
            self._loop.call_soon_threadsafe(self._cancel_life)
        except RuntimeError:
            # The loop has ended together with its process.
            return False
        return True

    def _cancel_life(self) -> None:
        # Cancel only once, because a second cancellation would end the wait for the calls.
        if self._life is not None and not self._ending:
            self._ending = True
            self._life.end()

    def _end(self) -> None:
        if self._ask_to_end() and not self._ended.wait(_STOP_SECONDS):
            # A call blocks the loop's thread; the watch has already logged this call.
            _LOG.warning(
                "%s: the event loop is blocked, and its calls did not stop within %g s; the task ends without them",
                name_of(self._plan.fn),
                _STOP_SECONDS,
            )
