"""Run the real engine in virtual time: no waiting, and exact durations.

An engine's caller runs in its own thread, as in Spark. Only one thread runs at a time: while a caller runs, the loop
stands still, until the caller waits for the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from enrich_engine import chunks_of, definition, rows_of
from virtual_time import run

from spark_events.enrichment.engine.calls import Chunk
from spark_events.enrichment.engine.engine import Engine
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.ledger import JobLimits, Ledger, leased
from spark_events.enrichment.engine.loop import BackgroundLoop
from spark_events.enrichment.engine.process import Process
from spark_events.enrichment.engine.run import Definition
from spark_events.enrichment.engine.tuning import EngineTuning
from spark_events.enrichment.engine.watch import Watch
from spark_events.enrichment.plan import Plan

__all__ = ["Mailbox", "VirtualRun", "in_thread", "virtual_now", "virtual_process"]

_MOST_SECONDS = 100_000.0
_thread = threading.local()


def virtual_now() -> float:
    """Return the time of the running loop in seconds; also in a thread of :func:`in_thread`."""
    caller: _Caller | None = getattr(_thread, "caller", None)
    return asyncio.get_running_loop().time() if caller is None else caller.loop.time()


class _Caller:
    """A thread that runs only while the loop waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Any]) -> None:
        self.loop = loop
        self.over: asyncio.Future[Any] = loop.create_future()
        self._work = work
        self._go, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._waits.acquire()

    def pause(self) -> None:
        """Let the loop run until :meth:`resume`; called by the thread."""
        self._waits.release()
        self._go.acquire()

    def resume(self) -> None:
        """Let the thread run until it waits again; called by the loop."""
        self._go.release()
        self._waits.acquire()

    def _run(self) -> None:
        _thread.caller = self
        end: Callable[[], None]
        try:
            end = functools.partial(self.over.set_result, self._work())
        except BaseException as error:
            end = functools.partial(self.over.set_exception, error)
        self.loop.call_soon(end)
        self._waits.release()


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run a function in a thread that may wait for a :class:`Mailbox`, and return its result."""
    caller = _Caller(asyncio.get_running_loop(), work)
    caller.start()
    return await asyncio.wait_for(caller.over, _MOST_SECONDS)


class Mailbox(queue.SimpleQueue[Any]):
    """Queue in which a thread of :func:`in_thread` waits for messages from the loop."""

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._waiting: _Caller | None = None

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._messages.append(item)
        self._wake()

    def _wake(self) -> None:
        if (caller := self._waiting) is not None:
            self._waiting = None
            caller.loop.call_soon(caller.resume)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._messages:
            self._waiting = caller = _thread.caller
            timer = None if timeout is None else caller.loop.call_later(timeout, self._wake)
            caller.pause()
            if timer is not None:
                timer.cancel()
        if not self._messages:
            raise queue.Empty
        return self._messages.popleft()

    def empty(self) -> bool:
        return not self._messages


class _VirtualBackground(BackgroundLoop):
    """The running loop, in place of a loop in its own thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.kind = loop, "virtual"

    def mailbox(self) -> queue.SimpleQueue[Any]:
        return Mailbox()


class _NoWatch(Watch):
    """No watch, because no call takes virtual time without the loop."""

    def add(self, report: Any, warn: Any) -> None:
        return None

    def remove(self, report: Any) -> None:
        return None


def virtual_process() -> Process:
    """Return the state of a new worker process on the running loop."""
    loop = asyncio.get_running_loop()
    background = _VirtualBackground(loop)
    return Process(background, _NoWatch(background), loop.time)


class VirtualRun:
    """One run of the engine with a user's function, like :class:`enrich_engine.Run`, but in virtual time.

    Args:
        fn: the user's function.
        made: result of :func:`definition`; default: a new definition.
        job: limits that a ledger in this process leases to the run, as for a task without leases; None: no limits.
        process: the worker process, to share its state between runs; default: a new process.
        tuning: constants of the algorithms.
        plan: arguments of the plan.

    Attributes:
        pairs: rows with their answers, in the order in which they were returned.
        times: time of each pair.
        seconds: duration of the run.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        made: Definition | None = None,
        job: JobLimits | None = None,
        process: Process | None = None,
        tuning: EngineTuning | None = None,
        **plan: Any,
    ) -> None:
        self._plan = Plan(fn, **plan)
        self._made = made or definition()
        self._job = job
        self._process = process
        self._tuning = tuning
        self.pairs: list[tuple[Any, Any]] = []
        self.times: list[float] = []
        self.seconds = 0.0
        #: Counters.
        self.numbers: dict[str, Any] = {}

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
        """Like :meth:`of`, on a running virtual loop, so that several runs can share its time and a process."""
        process, began, sharing = self._process or virtual_process(), virtual_now(), None
        share = None
        if self._job is not None:
            share = JobShare(self._job, self._plan.budget, process.clock)
            lease = functools.partial(leased, Ledger(self._job, process.clock), 0)
            sharing = asyncio.ensure_future(share.run(lease))
        engine = Engine(self._plan, self._made, share=share, tuning=self._tuning, process=process)
        given = chunks_of(chunks) if isinstance(chunks, Sequence) else chunks

        def consume() -> None:
            for part, answers in engine.run(given):
                self.pairs += zip(rows_of(part), answers, strict=True)
                self.times += [process.clock()] * len(answers)

        try:
            await in_thread(consume)
        finally:
            self.seconds = virtual_now() - began
            self.numbers = engine.statistics()
            if sharing is not None:
                sharing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await sharing
        return [answer for _, answer in self.pairs]
