"""Run the enrichment's pool in virtual time: no thread, no waiting, and exact durations."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from enrich_engine import chunks_of, definition, rows_of
from simulated_service import State
from virtual_time import run

from spark_events.enrichment.engine.assembly import Definition, assemble
from spark_events.enrichment.engine.buffer import RowBuffer
from spark_events.enrichment.engine.calls import Chunk, RowBatch
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.keys import HotKeys
from spark_events.enrichment.engine.ledger import JobLimits, Ledger, leased
from spark_events.enrichment.engine.order import Ordered, Unordered
from spark_events.enrichment.engine.pool import Pool
from spark_events.enrichment.engine.run import Signals
from spark_events.enrichment.engine.statistics import EngineCounts, counted
from spark_events.enrichment.plan import Plan

__all__ = ["VirtualRun", "virtual_now"]

_MOST_SECONDS = 100_000.0


def virtual_now() -> float:
    """Return the time of the running loop in seconds."""
    return asyncio.get_running_loop().time()


class VirtualRun:
    """One run of the pool with a user's function, like :class:`enrich_engine.Run`, but in virtual time.

    Args:
        fn: the user's function.
        made: result of :func:`definition`; default: a new definition.
        rate: attempts per second; None: no limit.
        job: limits that a ledger in this process leases to the run, as for a task without leases; None: no limits.
        state: state of the worker process, to share it between runs; default: a new state.
        plan: arguments of the plan.

    Attributes:
        pairs: rows with their answers, in the order in which they were returned.
        times: time of each pair.
        most_rows: the largest number of rows in the buffer.
        seconds: duration of the run.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        made: Definition | None = None,
        rate: float | None = None,
        job: JobLimits | None = None,
        state: State | None = None,
        **plan: Any,
    ) -> None:
        self._plan = Plan(fn, **plan)
        self._made = made or definition()
        self._rate = rate
        self._job = job
        self._state: Any = state or State()
        self._counts = EngineCounts()
        self._hot = HotKeys(self._plan.window.initial)
        self.pairs: list[tuple[Any, Any]] = []
        self.times: list[float] = []
        self.most_rows = 0
        self.seconds = 0.0

    def of(self, chunks: Iterator[Chunk] | Sequence[Any]) -> list[Any]:
        """Return the answers for chunks or rows, in the order in which they were returned."""
        return run(self._alone(chunks))[0]

    async def _alone(self, chunks: Iterator[Chunk] | Sequence[Any]) -> list[Any]:
        answers = await self.answers(chunks)
        # Let abandoned calls end, because asyncio logs a message about each pending task of a closed loop.
        if rest := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(rest)
        return answers

    async def answers(self, chunks: Iterator[Chunk] | Sequence[Any]) -> list[Any]:
        """Like :meth:`of`, on a running virtual loop, so that several runs can share its time and a state."""
        began = virtual_now()
        caller = _Caller(self, chunks_of(chunks) if isinstance(chunks, Sequence) else chunks)
        caller.pool.start()
        caller.go()
        try:
            await asyncio.wait_for(caller.over.wait(), _MOST_SECONDS)
        finally:
            self.seconds = virtual_now() - began
            await caller.pool.stop()
            if caller.sharing is not None:
                caller.sharing.cancel()
        self.most_rows = caller.buffer.most_rows
        return [answer for _, answer in self.pairs]

    @property
    def numbers(self) -> dict[str, Any]:
        """Return the counters."""
        return counted(self._counts, self._hot.hot())


class _Caller:
    """The part of :meth:`.Engine.run` that pulls chunks and returns rows, without a thread."""

    def __init__(self, owner: VirtualRun, chunks: Iterator[Chunk]) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._plan = plan = owner._plan
        self._chunks = chunks
        self._more = True
        self.over = asyncio.Event()
        self.buffer = RowBuffer(plan.buffer_rows, plan.buffer_bytes, plan.window.initial, self._news)
        self._held = (Ordered if plan.ordered else Unordered)(self.buffer)
        signals = Signals(plan.window.max, self._news, lambda: None, self._fail)
        share = self.sharing = None
        if owner._job is not None:
            share = JobShare(owner._job, plan.budget, self._loop.time)
            ledger = Ledger(owner._job, self._loop.time)
            self.sharing = self._loop.create_task(share.run(functools.partial(leased, ledger, 0)))
        self.pool: Pool = assemble(
            plan,
            owner._made,
            owner._state,
            None,
            owner._rate,
            self._loop.time(),
            owner._counts,
            owner._hot,
            signals,
            None,
            self._loop.time,
            share,
        )

    def _fail(self, error: BaseException) -> None:
        raise AssertionError("the engine failed") from error

    def _news(self) -> None:
        self._loop.call_soon(self.go)

    def go(self) -> None:
        """Pull chunks and take rows as long as possible."""
        while self._more or self._held.batches:
            if self._more and self.buffer.has_room and self.pool.feed.waiting <= self._plan.window.max:
                chunk = next(self._chunks, None)
                if chunk is None:
                    self._more = False
                    self.pool.flush()
                    continue
                batch = RowBatch(chunk, self._loop.time(), self.buffer)
                self._held.batches.append(batch)
                self._owner._counts.rows += len(batch.rows)
                self.buffer.take_in(len(batch.rows), chunk.size)
                self.pool.admit(batch)
            elif (answered := self._held.pop()) is not None:
                part, answers = answered
                self._owner.pairs += zip(rows_of(part), answers, strict=True)
                self._owner.times += [self._loop.time()] * len(answers)
            else:
                if self._more and self.buffer.is_full:
                    self.pool.flush()
                return
        self.over.set()
