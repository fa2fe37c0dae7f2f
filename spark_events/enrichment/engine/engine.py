"""Interface between the task and the engine: admits chunks and returns their answers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from spark_events.enrichment.engine.buffer import RowBuffer
from spark_events.enrichment.engine.bulk import Misfit
from spark_events.enrichment.engine.calls import PENDING, Chunk, RowBatch
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.job_state import TaskState
from spark_events.enrichment.engine.keys import HotKeys
from spark_events.enrichment.engine.life import RunLife
from spark_events.enrichment.engine.order import Answered, Ordered, Unordered, part_of
from spark_events.enrichment.engine.pool import Pool
from spark_events.enrichment.engine.process import Process, current_process, give_up
from spark_events.enrichment.engine.run import Definition, RunInputs
from spark_events.enrichment.engine.statistics import EngineCounts, counted, progress
from spark_events.enrichment.engine.tuning import EngineTuning
from spark_events.enrichment.plan import Plan

__all__ = ["Definition", "Engine", "StoppedError"]


class _BlockedError(Exception):
    """Error: a call blocks the loop beyond its timeout, so the run cannot continue."""


class StoppedError(Exception):
    """Error: the run was cancelled with :meth:`Engine.cancel`."""


class Engine:
    """Concurrent calls of a function for every row, answered in row order by default.

    Each task has one engine. The calls run on the loop of the worker process, in a separate thread. The caller's thread
    pulls chunks and returns answers.

    Args:
        plan: the options of the enrichment.
        definition: digests that identify reusable state of this process.
        misfit: returns the reason if a result is not a valid answer. The loop calls this function only if a retry, a
            later row with the same key or the cache depends on the check. None: every result is valid.
        share: the task's part of the job's limits, leased by code that the caller runs; None: the job has no limits.
        shared: what the tasks of the job share, over the driver; None: this process has its own state.
        tuning: constants of the algorithms.
        process: the worker process, whose state outlives the run; None: the current process.
    """

    def __init__(
        self,
        plan: Plan,
        definition: Definition,
        misfit: Misfit | None = None,
        *,
        share: JobShare | None = None,
        shared: TaskState | None = None,
        tuning: EngineTuning | None = None,
        process: Process | None = None,
    ) -> None:
        self._process = process = process or current_process()
        self._plan = plan
        tuning = tuning or EngineTuning()
        self._counts = counts = EngineCounts(tuning.durations)
        self._hot = hot = HotKeys(plan.expected_in_flight, tuning.hot_keys)
        self._share = share
        # Minimum number of waiting calls, so that runners stay busy while the next chunk is fetched and converted to
        # rows.
        self._low = max(plan.window.max, int(plan.buffer_rows * tuning.pool.low_ratio))
        inputs = RunInputs(plan, definition, misfit, share, shared, tuning)
        self._life = RunLife(inputs, process, counts, hot, self._low)
        flying = plan.expected_in_flight * (plan.batch_size or 1)
        self._buffer = RowBuffer(plan.buffer_rows, plan.buffer_bytes, flying, self._life.notify, tuning.buffer)
        self._order = Ordered(self._buffer) if plan.ordered else Unordered(self._buffer, tuning.order)
        self._given_up = False

    def run(self, chunks: Iterable[Chunk]) -> Iterator[Answered]:
        """Yield every chunk with its answers, in order.

        If the plan is unordered, also yield parts of chunks as their rows are answered. An answer is the function's
        result or a :class:`RowFailure`: a failed row raises no error here. The engine pulls further chunks only while
        the buffer has room. Spark closes the iterator when it kills a task. Closing it prevents new calls, cancels the
        calls in flight, and waits for a bounded time until they end.

        Raises:
            StoppedError: when :meth:`cancel` was called.
        """
        process, life = self._process, self._life
        source = iter(chunks)
        process.watch.add(self._stood_still, self.hint)
        try:
            yield from self._answers(life.begin(), source)
        except _BlockedError as error:
            give_up(process)
            self._given_up = True
            # The rows without an answer are returned as failed here. If the loop continues later, it must not start
            # calls for these rows.
            life.cut_off()
            yield from self._without_the_loop(source, RowFailure("timeout", "BlockedLoopError", str(error)))
        finally:
            process.watch.remove(self._stood_still)
            life.end()

    def cancel(self) -> None:
        """Make ``run`` stop its calls and raise StoppedError; may be called from any thread."""
        # Use the loop directly, because the caller's thread may be waiting for its next chunk.
        self._life.cut_off()
        self._life.news.put(StoppedError("the run was cancelled"))

    def hint(self, text: str) -> None:
        """Add a warning for the driver's log to the counters; may be called from any thread."""
        self._counts.hints[text] = 1

    def unfinished(self) -> list[tuple[Chunk, list[Any]]]:
        """Return the chunks that are not returned yet, with answers or ``PENDING``; may be called from any thread."""
        copies = [(batch, batch.answers.copy()) for batch in tuple(self._order.batches)]
        # Exclude chunks that have been returned in the meantime, because their consumer may have changed the answers.
        left = set(self._order.batches)
        return [(batch.chunk, answers) for batch, answers in copies if batch in left]

    @property
    def room(self) -> int:
        """Maximum number of rows of the next chunk; larger chunks are allowed while the engine holds none."""
        return self._plan.buffer_rows if self._given_up else self._buffer.room

    @property
    def answer_size(self) -> float | None:
        """Mean size in bytes of the latest measured answers; None before the first measurement."""
        # After the loop was abandoned, no further answers arrive.
        return 0.0 if self._given_up else self._buffer.answer

    @property
    def unreturned(self) -> int:
        """Number of rows that have an answer or a failure but are not returned yet; may be read from any thread."""
        return sum(len(batch.open) - batch.left for batch in tuple(self._order.batches))

    def progress(self) -> dict[str, Any]:
        """Return the counters that show the progress of the run; may be called from any thread."""
        return progress(self._counts)

    def statistics(self) -> dict[str, Any]:
        """Return the counters so far, as plain data."""
        if (share := self._share) is not None:
            self._counts.usage = share.used
            if share.problem:
                self.hint(f"Budget.usage failed ({share.problem}); the estimate counts instead: correct Budget.usage")
        peaks = {"buffer_rows": self._buffer.most_rows, "buffer_bytes": self._buffer.most_bytes}
        return {**counted(self._counts, self._hot.hot()), **peaks}

    def _answers(self, pool: Pool, chunks: Iterator[Chunk]) -> Iterator[Answered]:
        """Pull chunks, wait, and yield answered rows; runs in the caller's thread."""
        order, buffer, width, low = self._order, self._buffer, self._plan.window.max, self._low
        more = True
        while more or order.batches:
            room = more and buffer.has_room
            # Rows that the loop has not admitted yet count as waiting too.
            waiting = pool.feed.waiting + self._counts.rows - pool.admitted
            if room and waiting < width:
                more = self._pull(pool, chunks)
            elif (answered := order.pop()) is not None:
                yield answered
            elif room and waiting <= low:
                more = self._pull(pool, chunks)
            else:
                pool.occupancy.is_full = more and buffer.is_full
                if pool.occupancy.is_full:
                    # The buffer is full, so no new rows can complete a partial call: start the partial calls now.
                    self._life.on_loop(pool.flush)
                self._life.await_news()

    def _pull(self, pool: Pool, chunks: Iterator[Chunk]) -> bool:
        chunk = next(chunks, None)
        if chunk is None:
            self._life.on_loop(pool.flush)
            return False
        pool.occupancy.is_full = False
        batch = RowBatch(chunk, self._process.clock(), self._buffer)
        self._order.batches.append(batch)
        self._counts.rows += len(batch.rows)
        self._buffer.take_in(len(batch.rows), chunk.size)
        self._life.on_loop(functools.partial(pool.admit, batch))
        if not self._life.news.empty():
            self._life.await_news()
        return True

    def _without_the_loop(self, chunks: Iterator[Chunk], failure: RowFailure) -> Iterator[Answered]:
        """Yield the held rows with answers or failures, and fail all further rows without a call.

        The failure replaces each missing answer.
        """
        left = self._order.batches
        while left:
            batch = left.popleft()
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
            self._life.news.put(_BlockedError(f"{where} has blocked the event loop for {seconds:.0f} s"))
